"""Live updates: one reader of the log's last number for all open pages, which then get a tick and load their parts again.

A tick says that something changed and nothing about it, so every page may get every tick. What a page then loads is
what its user may see.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

LEAST_S, EACH_S = 1.0, 0.1  # between two ticks: at least, and for each open page
QUIET_S = 15.0  # a quiet stream sends a blank message after this time, which also detects a browser that has gone
_LOOK_S = 0.5


class Pulse:
    """The last number of the log, read at most once in half a second however many pages are open."""

    def __init__(self, last_seq: Callable[[], int]) -> None:
        self._last_seq = last_seq
        self._seq, self._read_s = 0, -1.0
        self.open = 0

    def seq(self) -> int:
        now_s = asyncio.get_running_loop().time()
        if now_s - self._read_s >= _LOOK_S:
            self._seq, self._read_s = self._last_seq(), now_s
        return self._seq

    def _until_next_s(self) -> float:
        """All pages get their ticks at the same moments, so that those that load the same page share it."""
        every_s = max(LEAST_S, EACH_S * self.open)
        return every_s - asyncio.get_running_loop().time() % every_s

    async def ticks(self) -> AsyncIterator[bytes]:
        """Server-sent events: one whenever the log has grown, but not too often while many pages are open."""
        self.open += 1
        try:
            seen, quiet_s = self.seq(), 0.0
            yield b"retry: 3000\n\n"
            while True:
                pause_s = self._until_next_s()
                await asyncio.sleep(pause_s)
                quiet_s += pause_s
                if self.seq() != seen:
                    seen, quiet_s = self.seq(), 0.0
                    yield b"event: tick\ndata: changed\n\n"
                elif quiet_s >= QUIET_S:
                    quiet_s = 0.0
                    yield b": nothing new\n\n"
        finally:
            self.open -= 1
