"""Answers that cost a process: one at a time, a few of them per caller, and a short queue."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fairlead.service.api.error_responses import ApiError
from fairlead.service.api.guard import Buckets
from fairlead.service.api.limits import Limits


class Turns:
    """Lets callers take turns; refuses one that asks too often, and everyone while too many wait."""

    def __init__(self, limits: Limits) -> None:
        self._buckets = Buckets(limits.explanations_per_s, limits.explanations_burst)
        self._most, self._present, self._lock = limits.explanations_waiting, 0, asyncio.Lock()

    @asynccontextmanager
    async def turn(self, caller: str) -> AsyncIterator[None]:
        if self._present >= self._most:
            raise ApiError(429, "too_busy", "too many callers wait for an answer", "try again in a minute")
        if not self._buckets.take(caller):
            raise ApiError(429, "too_many_requests", "this token asks for too many answers", "wait a few seconds")
        self._present += 1
        try:
            async with self._lock:
                yield
        finally:
            self._present -= 1
