"""Errors as the API returns them: a stable code, what is wrong, what to do. No stack traces, nothing that was sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi.responses import JSONResponse
from pydantic import BaseModel


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


def answer(status: int, code: str, message: str, remedy: str | None = None) -> JSONResponse:
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {"Retry-After": "1"} if status == 429 else None
    body = {"error": {"code": code, "message": message, "remedy": remedy}}
    return JSONResponse(body, status, headers=headers)


def no_such(what: str, name: str) -> ApiError:
    """Also the answer for what belongs to another tenant, which must not learn whether it exists."""
    return ApiError(
        404, f"no_such_{what}", f"there is no {what} {name} that you may see", "look at the list, or your token"
    )


def complaint(errors: Sequence[Any]) -> str:
    """The first thing wrong with what was sent. It names the place and never repeats the value: that may be a secret."""
    first = errors[0]
    place = ".".join(str(part) for part in first["loc"] if part != "body")
    what = str(first["msg"]).removeprefix("Value error, ")
    if first["type"] == "json_invalid":
        return "the body is not JSON"
    return f"{place}: {what[:1].lower()}{what[1:]}" if place else what
