"""Checks before every page: the session's cookie, the origin of a change, size and rate; and the headers of every answer.

A cookie opens pages only, never the API, and a token in a header opens the API only, never a page. So a request that
another site makes a browser send cannot reach the API, and one that changes something must state our own origin.
"""

from __future__ import annotations

import logging
import time
from urllib.parse import quote, urlsplit

from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fairlead.model.words import printable
from fairlead.service.api.bodies import read_body, received_again
from fairlead.service.api.error_responses import ApiError
from fairlead.service.api.guard import Buckets
from fairlead.service.api.limits import Limits
from fairlead.service.store.tokens import Token, Tokens
from fairlead.service.web.sessions import Sessions, cookie_name

SIGN_IN, STATIC = "/sign-in", "/static/"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    # Not no-referrer, with which browsers hide the origin of our own forms.
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
]
_NO_STORE = (b"cache-control", b"no-store")
_LONGEST_FORM = 64 << 10  # bytes
_log = logging.getLogger("fairlead.api")


class Door:
    """The middleware of all pages: pure ASGI, as that of the API, so that it covers streams."""

    def __init__(self, app: ASGIApp, tokens: Tokens, sessions: Sessions, limits: Limits) -> None:
        self._app, self._tokens, self._sessions, self._limits = app, tokens, sessions, limits
        self._requests = Buckets(limits.requests_per_s, limits.burst)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def sending(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                headers = list(message.get("headers", []))
                kept = any(name == b"cache-control" for name, _ in headers)
                message["headers"] = [*headers, *_HEADERS, *([] if kept else [_NO_STORE])]
            await send(message)

        refusal = self._refusal(scope)
        if refusal is not None:
            await refusal(scope, receive, sending)
            return
        try:
            body = await read_body(receive, self._limits) if scope["method"] == "POST" else b""
            if body is not None:
                await self._app(scope, received_again(body, receive) if scope["method"] == "POST" else receive, sending)
        except ApiError as error:  # of the body
            await PlainTextResponse(error.message, error.status)(scope, receive, sending)
        except Exception:
            _log.exception("%s %s failed", scope["method"], printable(scope["path"]))
            if begun:
                raise
            await PlainTextResponse("the service failed; its log has the details", 500)(scope, receive, sending)

    def _refusal(self, scope: Scope) -> ASGIApp | None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        method, path = scope["method"], scope["path"]
        if method not in ("GET", "HEAD", "POST"):
            return PlainTextResponse("a page is read with GET and changes something with POST", 405)
        declared = headers.get("content-length", "0")
        if not declared.isdigit() or int(declared) > _LONGEST_FORM or "transfer-encoding" in headers:
            return PlainTextResponse("the form is too large", 413)
        if method == "POST" and not same_origin(headers):
            return PlainTextResponse("this form was not sent by a page of this service", 403)
        cookie = cookie_of(headers)
        scope.setdefault("state", {}).update(cookie=cookie, token=None)
        if path.startswith(STATIC):
            return None
        token = self._signed_in(cookie, headers.get("host", ""))
        scope["state"]["token"] = token
        if token is None:
            return None if path == SIGN_IN else _ask_to_sign_in(scope, headers)
        if not self._requests.take(token.id):
            return PlainTextResponse("too many requests; wait a moment", 429)
        return None

    def _signed_in(self, cookie: str, host: str) -> Token | None:
        now_s = time.time()
        session = self._sessions.find(cookie, host, now_s) if cookie else None
        token = self._tokens.get(session.token) if session is not None else None
        return token if token is not None and token.valid_at(now_s) else None


def same_origin(headers: dict[str, str]) -> bool:
    """Whether a page of this service sent the request. All browsers state the origin of a request that changes things."""
    try:
        return bool(headers.get("host")) and urlsplit(headers.get("origin", "")).netloc == headers["host"]
    except ValueError:  # such as of "http://["
        return False


def cookie_of(headers: dict[str, str]) -> str:
    """The value of our cookie; empty if there is none."""
    # Not http.cookies, which drops all cookies if another application of this host has set an unusual one.
    return cookie_parser(headers.get("cookie", "")).get(cookie_name(headers.get("host", "")), "")


def _ask_to_sign_in(scope: Scope, headers: dict[str, str]) -> ASGIApp:
    """Lead a person to the form, and then back; a script gets an error."""
    if scope["method"] != "GET" or headers.get("sec-fetch-dest", "document") != "document":
        return PlainTextResponse("sign in first", 401)
    query = scope.get("query_string", b"").decode("latin-1")
    wanted = scope["path"] + (f"?{query}" if query else "")
    return RedirectResponse(SIGN_IN if wanted == "/" else f"{SIGN_IN}?to={quote(wanted, safe='')}", 303)
