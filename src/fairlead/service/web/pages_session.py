"""Signing in and out, and the files beside the pages."""

from __future__ import annotations

import time
from typing import Annotated
from urllib.parse import parse_qs

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from fairlead.service.api.context import ServiceContext
from fairlead.service.api.error_responses import ApiError
from fairlead.service.api.guard import Buckets
from fairlead.service.web.door import SIGN_IN
from fairlead.service.web.rendering import packed, show, static_file
from fairlead.service.web.sessions import LIFETIME_S, Sessions, cookie_name

router = APIRouter()
_REFUSED = "This token is wrong, has expired or was revoked. Ask an admin for a new one."
_TOO_OFTEN = "Too many attempts without a valid token from your address. Wait a minute."


@router.get(SIGN_IN)
async def form(request: Request, to: Annotated[str, Query(max_length=2000)] = "/") -> Response:
    if request.state.token is not None:
        return RedirectResponse(own_path(to), 303)
    return show(request, "sign_in.html.j2", title="Sign in", to=own_path(to), problem="")


@router.post(SIGN_IN)
async def sign_in(request: Request) -> Response:
    """Begin a session, if the form has a valid token."""
    service: ServiceContext = request.app.state.service
    fields = await read_form(request)
    to, address = own_path(fields.get("to", "/")), request.client.host if request.client else "?"
    token = service.tokens.find(fields.get("token", "").strip(), time.time())
    if token is None:
        attempts: Buckets = request.app.state.attempts
        problem, status = (_REFUSED, 403) if attempts.take(address) else (_TOO_OFTEN, 429)
        return show(request, "sign_in.html.j2", status, title="Sign in", to=to, problem=problem)
    host = request.headers["host"]
    sessions: Sessions = request.app.state.sessions
    answer = RedirectResponse(to, 303)
    answer.set_cookie(
        cookie_name(host),
        sessions.begin(token.id, host, time.time()),
        max_age=int(min(LIFETIME_S, token.expires_s - time.time())),
        path="/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
    return answer


@router.post("/sign-out")
async def sign_out(request: Request) -> Response:
    """End the session, here and in the browser."""
    sessions: Sessions = request.app.state.sessions
    sessions.end(request.state.cookie)
    answer = RedirectResponse(SIGN_IN, 303)
    answer.delete_cookie(cookie_name(request.headers["host"]), path="/", httponly=True, samesite="strict")
    return answer


@router.get("/static/{name}")
async def static(request: Request, name: Annotated[str, Path(max_length=100)]) -> Response:
    found = static_file(name)
    if found is None:
        return PlainTextResponse("there is no such file", 404)
    content, kind = found
    return packed(request, content, kind, headers={"Cache-Control": "public, max-age=31536000, immutable"})


def own_path(path: str) -> str:
    """The path, if it leads to a page of this service and nowhere else; otherwise that of the overview."""
    fits = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable() and "\\" not in path
    return path if fits else "/"


async def read_form(request: Request) -> dict[str, str]:
    """The fields of a form, as the browser encodes them; of a repeated one the last."""
    text = (await request.body()).decode("utf-8", "replace")
    try:
        fields = parse_qs(text, keep_blank_values=True, max_num_fields=100)
    except ValueError:
        raise ApiError(400, "too_many_fields", "the form has too many fields", "send at most 100") from None
    return {name: values[-1] for name, values in fields.items()}
