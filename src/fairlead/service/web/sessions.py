"""Sessions of signed-in browsers, in memory only: a cookie stands for a token without containing it.

Nothing on disk lets anybody in, so a restart of the service ends all sessions. A session ends after some hours, with its
token, or when its user signs out. It is valid only at the address (host and port) at which it began, because browsers
send cookies to every port of a host.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict
from dataclasses import dataclass

LIFETIME_S = 12 * 3600.0
MOST_SESSIONS = 10_000  # of all tokens; the oldest are dropped
MOST_OF_A_TOKEN = 100


@dataclass(frozen=True, slots=True)
class Session:
    token: str  # id of the token
    host: str  # as the browser wrote it
    expires_s: float


class Sessions:
    """All sessions, by the digest of what the cookie contains."""

    def __init__(self) -> None:
        self._by_digest: OrderedDict[bytes, Session] = OrderedDict()

    def begin(self, token: str, host: str, now_s: float) -> str:
        """Begin a session; returns the value of its cookie."""
        self._make_room(token, now_s)
        value = secrets.token_urlsafe(32)
        self._by_digest[_digest(value)] = Session(token, host, now_s + LIFETIME_S)
        return value

    def find(self, value: str, host: str, now_s: float) -> Session | None:
        session = self._by_digest.get(_digest(value))
        return session if session is not None and session.host == host and now_s < session.expires_s else None

    def end(self, value: str) -> None:
        self._by_digest.pop(_digest(value), None)

    def __len__(self) -> int:
        return len(self._by_digest)

    def _make_room(self, token: str, now_s: float) -> None:
        """Drop what has expired, and the oldest where there are too many."""
        for digest in [one for one, session in self._by_digest.items() if session.expires_s <= now_s]:
            del self._by_digest[digest]
        of_token = [one for one, session in self._by_digest.items() if session.token == token]
        for digest in of_token[: max(len(of_token) - MOST_OF_A_TOKEN + 1, 0)]:
            del self._by_digest[digest]
        while len(self._by_digest) >= MOST_SESSIONS:
            self._by_digest.popitem(last=False)


def cookie_name(host: str) -> str:
    """The name of the cookie: several services on one machine differ in their ports only."""
    port = host.rpartition(":")[2]
    return f"fairlead_{port}" if port.isdecimal() else "fairlead"


def _digest(value: str) -> bytes:
    return hashlib.sha256(value.encode()).digest()
