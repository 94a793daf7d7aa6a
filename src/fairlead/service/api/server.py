"""The web server of the API process. Imported late, so that the scheduler starts at the same time."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import uvicorn

from fairlead.service.api.app import build_app
from fairlead.service.api.connections import BoundedProtocol, OpenConnections
from fairlead.service.api.context import ServiceContext
from fairlead.service.api.limits import connection_limit
from fairlead.service.api.repeated_messages import limit_log

__all__ = ["ServiceContext", "build_server"]

# The event loop accepts up to its backlog in one go, before any of these connections can be counted. The kernel's own
# queue is longer, so that a burst of clients waits there instead of having to connect again.
_ACCEPTED_AT_ONCE = 64
_QUEUED = 1024


def build_server(
    service: ServiceContext, proxies: Sequence[str] = (), build: Callable[[ServiceContext], Any] = build_app
) -> uvicorn.Server:
    """The web server, without a log of requests, which would contain private data.

    `build` makes the application that it serves: the API alone, or with what is built on it. Headers that state another
    client address are believed only if they come from one of the `proxies`.
    """
    limit_log()
    counted = OpenConnections(service.limits, connection_limit(service.limits), frozenset(proxies))
    protocol: Any = partial(BoundedProtocol, open_connections=counted)
    config = uvicorn.Config(
        build(service),
        http=protocol,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(proxies),
        forwarded_allow_ips=list(proxies),
        backlog=_ACCEPTED_AT_ONCE,
        timeout_graceful_shutdown=3,
    )
    return uvicorn.Server(config)


def serve_on(server: uvicorn.Server, *listening: socket.socket) -> None:
    """Run the server on the sockets until a signal or `should_exit` ends it."""

    async def run() -> None:
        serving = asyncio.create_task(server.serve(sockets=list(listening)))
        while not server.started and not serving.done():
            await asyncio.sleep(0.01)
        if not serving.done():
            for one in listening:
                one.listen(_QUEUED)
        await serving

    asyncio.run(run())
