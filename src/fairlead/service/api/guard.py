"""Checks before every handler: size, authentication, rate. Pure ASGI, so that it is cheap and covers streams.

Default deny: only the paths in OPEN need no token, and a route that `access.RULES` does not list is always refused.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fairlead.service.api.error_responses import answer
from fairlead.service.api.limits import Limits
from fairlead.service.store.tokens import Token, Tokens

OPEN = frozenset({"/v1/health"})
_HEADERS = [(b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff")]
_log = logging.getLogger("fairlead.api")


class Buckets:
    """Token buckets by key: `rate` per second on average, `burst` at once. The least recently used are dropped."""

    def __init__(
        self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic, most: int = 10_000
    ) -> None:
        self._rate, self._burst, self._clock, self._most = rate, burst, clock, most
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def level(self, key: str) -> float:
        level, at_s = self._levels.get(key, (self._burst, 0.0))
        return min(self._burst, level + (self._clock() - at_s) * self._rate)

    def take(self, key: str) -> bool:
        level = self.level(key)
        passes = level >= 1.0
        self._levels[key] = (level - 1.0 if passes else level, self._clock())
        self._levels.move_to_end(key)
        if len(self._levels) > self._most:
            self._levels.popitem(last=False)
        return passes


class Guard:
    """The middleware that refuses requests or passes them on."""

    def __init__(self, app: ASGIApp, tokens: Tokens, limits: Limits) -> None:
        self._app, self._tokens, self._limits = app, tokens, limits
        self._requests = Buckets(limits.requests_per_s, limits.burst)
        self._failures = Buckets(limits.failures_per_s, limits.failures_burst)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = False

        async def sending(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                message["headers"] = [*message.get("headers", []), *_HEADERS]
            await send(message)

        refusal = self._refusal(scope)
        if refusal is not None:
            await refusal(scope, receive, sending)
            return
        try:
            await self._app(scope, self._limited(receive), sending)
        except Exception:
            _log.exception("%s %s failed", scope["method"], scope["path"])
            if begun:
                raise
            failure = answer(500, "internal", "the service failed", "try again; the service's log has the details")
            await failure(scope, receive, sending)

    def _refusal(self, scope: Scope) -> ASGIApp | None:
        headers = dict(scope["headers"])
        declared = headers.get(b"content-length", b"0")
        if not declared.isdigit() or int(declared) > self._limits.body_bytes:
            return self._too_large()
        if scope["path"] in OPEN:
            return None
        token = self._authenticate(headers.get(b"authorization", b""))
        if token is None:
            return self._stranger(scope["client"][0] if scope.get("client") else "?")
        if not self._requests.take(token.id):
            return answer(429, "too_many_requests", "this token sends too many requests", "wait a moment and try again")
        scope.setdefault("state", {})["token"] = token
        return None

    def _stranger(self, address: str) -> ASGIApp:
        """The refusal of a caller without a valid token; others at the same address are not affected."""
        if self._failures.take(address):
            remedy = "ask an admin for a new token"
            return answer(401, "no_valid_token", "no token, or one that is wrong, expired or revoked", remedy)
        remedy = "wait, then use a valid token"
        return answer(429, "too_many_failures", "too many requests without a valid token", remedy)

    def _authenticate(self, header: bytes) -> Token | None:
        scheme, _, shown = header.decode("latin-1").partition(" ")
        return self._tokens.find(shown.strip(), time.time()) if scheme.lower() == "bearer" else None

    def _limited(self, receive: Receive) -> Receive:
        """Counts the bytes of a body without a declared length as they arrive."""
        received = 0

        async def receiving() -> Message:
            nonlocal received
            message = await receive()
            if message["type"] == "http.request":
                received += len(message.get("body", b""))
                if received > self._limits.body_bytes:
                    raise HTTPException(413, _too_large_message(self._limits))
            return message

        return receiving

    def _too_large(self) -> ASGIApp:
        return answer(413, "too_large", _too_large_message(self._limits), "send less; data belongs in files")


def _too_large_message(limits: Limits) -> str:
    return f"the body is larger than {limits.body_bytes} bytes"
