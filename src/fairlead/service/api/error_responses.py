"""Errors of the API: a stable code, a message and a remedy. No stack traces, and no values of the request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi.responses import JSONResponse
from pydantic import BaseModel

_LONGEST_MESSAGE = 1000  # characters


class ErrorBody(BaseModel):
    code: str
    message: str
    remedy: str | None = None


class ErrorAnswer(BaseModel):
    error: ErrorBody


class ApiError(Exception):
    def __init__(self, status: int, code: str, message: str, remedy: str | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.remedy = status, code, message, remedy

    def answer(self) -> JSONResponse:
        return answer(self.status, self.code, self.message, self.remedy)


def answer(status: int, code: str, message: str, remedy: str | None = None, retry_s: int = 1) -> JSONResponse:
    """The response to a bad request. A long message, which can only repeat what was sent, is cut off."""
    message = message if len(message) <= _LONGEST_MESSAGE else f"{message[:_LONGEST_MESSAGE]}..."
    headers = (
        {"WWW-Authenticate": "Bearer"} if status == 401 else {"Retry-After": str(retry_s)} if status == 429 else None
    )
    body = {"error": {"code": code, "message": message, "remedy": remedy}}
    return JSONResponse(body, status, headers=headers)


def no_such(kind: str, name: str) -> ApiError:
    """The error for something unknown, or of another tenant: a caller must not learn whether that exists."""
    return ApiError(
        404, f"no_such_{kind}", f"there is no {kind} {name} that you may see", "check the list, or your token"
    )


def complaint(errors: Sequence[Any]) -> str:
    """The first problem of a request. It names the field and never repeats the value, which may be a secret."""
    first = errors[0]
    place = ".".join(str(part) for part in first["loc"] if part != "body")
    problem = str(first["msg"]).removeprefix("Value error, ")
    if first["type"] == "json_invalid":
        return "the body is not JSON"
    return f"{place}: {problem[:1].lower()}{problem[1:]}" if place else problem
