"""Connections of the web server: deadlines for requests that arrive slowly, and caps on how many are open.

A connection whose client still owes a part of its request is *pending*. When a cap is reached, the connection that has
been pending for longest is closed for the new one, so that clients that send nothing cannot keep out those that do. If
it is the cap on all connections, the address that has the most of them loses it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from fairlead.service.api.limits import Limits

_FLUSH_S = 5.0  # for the last bytes of a closed connection; after that it is cut off
_TIMEOUT = "408 Request Timeout"
_FULL = "503 Service Unavailable"


@dataclass
class OpenConnections:
    """All open connections by address."""

    limits: Limits
    most: int
    proxies: frozenset[str] = frozenset()  # addresses that stand for many clients
    by_peer: dict[str, dict[BoundedProtocol, None]] = field(default_factory=dict)

    def enter(self, new: BoundedProtocol) -> bool:
        """Count a new connection; False if there is no room, and no pending connection to close for it."""
        own = self.by_peer.setdefault(new.peer, {})
        own[new] = None
        if new.peer not in self.proxies and len(own) > self.limits.connections_per_peer:
            return _close_one(own, new)
        if sum(map(len, self.by_peer.values())) > self.most:
            # From the address with the most of them: a client with few connections is not closed for one with many.
            return any(_close_one(some, new) for some in sorted(self.by_peer.values(), key=len, reverse=True))
        return True

    def leave(self, old: BoundedProtocol) -> None:
        own = self.by_peer.get(old.peer, {})
        own.pop(old, None)
        if not own:
            self.by_peer.pop(old.peer, None)


def _close_one(connections: dict[BoundedProtocol, None], new: BoundedProtocol) -> bool:
    """Close the connection that has been pending for longest, other than the new one; False if there is none."""
    pending = (one for one in connections if one is not new and one.pending)
    victim = min(pending, key=lambda one: one.pending_since_s, default=None)
    if victim is None:
        return False
    victim.give_up(_TIMEOUT)
    return True


class BoundedProtocol(H11Protocol):
    """uvicorn's connection with caps and deadlines. It inherits because uvicorn offers no other way in."""

    def __init__(self, *, open_connections: OpenConnections, **more: Any) -> None:
        super().__init__(**more)
        self._open = open_connections
        self.peer = "?"
        self.pending = ""  # what the client still owes: "head", "body" or nothing
        self.pending_since_s = 0.0  # on the clock of the event loop
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.peer = self.client[0] if self.client else "?"
        self._wait_for("head")
        if not self._open.enter(self):
            self.give_up(_FULL)

    def connection_lost(self, exc: Exception | None) -> None:
        self._open.leave(self)
        self._wait_for("")
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return  # the client writes on although it was given up
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._look()

    def give_up(self, status: str) -> None:
        """Close the connection, with an answer if the client waits for one."""
        answers = status == _FULL or self._is_half_sent()
        self._open.leave(self)
        self._wait_for("")
        if self.transport.is_closing():
            return
        if answers:
            self.transport.write(f"HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n".encode())
        self.transport.close()
        self.loop.call_later(_FLUSH_S, self.transport.abort)

    def _is_half_sent(self) -> bool:
        """Whether a request has begun that has no answer yet. An idle connection is closed without a word."""
        if self.pending == "head":
            return bool(self.conn.trailing_data[0])
        return self.pending == "body" and not self.cycle.response_started

    def _look(self) -> None:
        state = self.conn.their_state
        self._wait_for("head" if state is h11.IDLE else "body" if state is h11.SEND_BODY else "")

    def _wait_for(self, part: str) -> None:
        """Start the clock of the part of a request that is awaited now, unless it runs already."""
        if part == self.pending and self._deadline is not None:
            return
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        self.pending, self.pending_since_s = part, self.loop.time()
        if part and not self.transport.is_closing():
            limits = self._open.limits
            seconds = limits.head_s if part == "head" else limits.body_s
            self._deadline = self.loop.call_later(seconds, self.give_up, _TIMEOUT)
