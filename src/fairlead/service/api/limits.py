"""Limits on what one client may ask of the service."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    body_bytes: int = 1 << 20
    requests_per_s: float = 1000.0  # of one token, on average
    burst: float = 2000.0
    failures_per_s: float = 5.0  # of one address without a valid token
    failures_burst: float = 50.0
    streams: int = 32  # open at once, of one token
