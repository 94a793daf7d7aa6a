"""Limits on what one client may ask of the service, and on all clients together."""

from __future__ import annotations

import resource
from dataclasses import dataclass

# File descriptors that connections leave free in the API process. The databases take 6 for each of up to 40 threads
# that read, connections that were accepted but not counted yet up to 192, a restart of the scheduler and logs the rest.
RESERVED_DESCRIPTORS = 512
_FEWEST_CONNECTIONS = 32  # with a very low limit of the system, where nothing would be left


@dataclass(frozen=True, slots=True)
class Limits:
    body_bytes: int = 1 << 20
    body_values: int = 2000  # values in the JSON of a body: each may be an error, and errors take 30 us each
    body_depth: int = 32  # lists and mappings inside each other
    requests_per_s: float = 1000.0  # of one token, on average
    burst: float = 2000.0
    failures_per_s: float = 5.0  # of one address without a valid token
    failures_burst: float = 50.0
    explanations_per_s: float = 0.5  # of one token, on average: each is a process that simulates
    explanations_burst: float = 10.0
    explanations_waiting: int = 16  # of all tokens: they are answered one after another
    streams: int = 32  # open at once, of one token
    connections: int = 1024  # open at once
    connections_per_peer: int = 512  # of one address, unless it is a proxy
    head_s: float = 10.0  # from a connection to the end of a request's header
    body_s: float = 30.0  # from there to the end of its body


def connection_limit(limits: Limits) -> int:
    """How many connections may be open: less than `connections` if the system allows this process few descriptors."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(min(limits.connections, most - RESERVED_DESCRIPTORS), _FEWEST_CONNECTIONS)
