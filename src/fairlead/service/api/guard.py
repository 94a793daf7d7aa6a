"""Checks before every handler: size, authentication, rate. Pure ASGI, so that it is cheap and covers streams.

Default deny: only the paths in OPEN need no token, and a route that `access.RULES` does not list is always refused.
"""

from __future__ import annotations

import logging
import math
import time
from collections import OrderedDict
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fairlead.model.words import printable
from fairlead.service.api.bodies import read_body, received_again, too_large
from fairlead.service.api.error_responses import ApiError, answer
from fairlead.service.api.limits import Limits
from fairlead.service.store.tokens import Role, Token, Tokens

OPEN = frozenset({"/v1/health", "/healthz", "/readyz"})
METRICS = "/metrics"
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")  # hosts by which the port of metrics may be called
_HEADERS = [(b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff")]
_log = logging.getLogger("fairlead.api")


_ANYONE_ON_THIS_MACHINE = Token("", b"", "metrics port", Role.METRICS, None, 0.0, math.inf)


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

    def __init__(self, app: ASGIApp, tokens: Tokens, limits: Limits, metrics_port: int | None = None) -> None:
        self._app, self._tokens, self._limits, self._metrics_port = app, tokens, limits, metrics_port
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
            body = await read_body(receive, self._limits) if _has_body(scope) else b""
            if body is not None:
                await self._app(scope, received_again(body, receive) if body else receive, sending)
        except ApiError as error:
            await error.answer()(scope, receive, sending)
        except Exception:
            _log.exception("%s %s failed", scope["method"], printable(scope["path"]))
            if begun:
                raise
            failure = answer(500, "internal", "the service failed", "try again; the service's log has the details")
            await failure(scope, receive, sending)

    def _refusal(self, scope: Scope) -> ASGIApp | None:
        headers = dict(scope["headers"])
        if b"content-length" in headers and b"transfer-encoding" in headers:
            return _ambiguous()
        declared = headers.get(b"content-length", b"0")
        if not declared.isdigit() or int(declared) > self._limits.body_bytes:
            return too_large(self._limits).answer()
        if self._metrics_port is not None and scope["server"][1] == self._metrics_port:
            return self._refusal_on_metrics_port(scope, headers.get(b"host", b""))
        if scope["path"] in OPEN:
            return None
        token = self._authenticate(headers.get(b"authorization", b""))
        if token is None:
            return self._stranger(scope["client"][0] if scope.get("client") else "?")
        if not self._requests.take(token.id):
            return answer(429, "too_many_requests", "this token sends too many requests", "wait a moment and try again")
        scope.setdefault("state", {})["token"] = token
        return None

    def _refusal_on_metrics_port(self, scope: Scope, host: bytes) -> ASGIApp | None:
        """Only metrics and probes; the caller counts as a token that may read metrics.

        The name by which the port is called is checked, because a page in a browser of this machine can make any name
        of its own lead to 127.0.0.1 and read the answer.
        """
        if host.decode("latin-1").rpartition(":")[0] not in _LOOPBACK:
            return answer(403, "not_allowed", "this port is for callers on the same machine", "call 127.0.0.1")
        if scope["path"] not in (METRICS, *OPEN) or scope["method"] != "GET":
            return answer(404, "no_such_path", "this port has metrics only", f"read {METRICS}")
        scope.setdefault("state", {})["token"] = _ANYONE_ON_THIS_MACHINE
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


def _ambiguous() -> ASGIApp:
    """The refusal of a body with two lengths. A proxy may believe the other one, so what follows is not read."""
    problem = "the request has both Content-Length and Transfer-Encoding"
    refusal = answer(400, "bad_request", problem, "send one of them")
    refusal.headers["Connection"] = "close"
    return refusal


def _has_body(scope: Scope) -> bool:
    headers = dict(scope["headers"])
    return b"transfer-encoding" in headers or headers.get(b"content-length", b"0") != b"0"
