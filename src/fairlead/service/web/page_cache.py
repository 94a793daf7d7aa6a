"""Rendered pages that readers with the same rights share: one rendering for each change, however many have it open.

A page is used again only while nothing was committed to either file of the state, and not for longer than `FRESH_S`,
because some of what pages show is not in those files: ages, progress, the state of the scheduler process.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from fairlead.service.web.packing import PagePart

FRESH_S = 2.0
MOST_BYTES = 32 << 20  # of all pages; the least recently used are dropped


@dataclass(frozen=True, slots=True)
class SharedPage:
    """A page without the part that names its reader, which is between these two."""

    before: PagePart
    after: PagePart

    @property
    def size(self) -> int:
        return self.before.size + self.after.size


@dataclass(frozen=True, slots=True)
class _Rendered:
    page: SharedPage
    version: Hashable  # of the state, read before rendering began
    begun_s: float


class PageCache:
    """Pages by everything that they depend on besides the state, whose version `version` returns."""

    def __init__(self, version: Callable[[], Hashable], most_bytes: int = MOST_BYTES) -> None:
        self._version, self._most_bytes = version, most_bytes
        self._pages: OrderedDict[Hashable, _Rendered] = OrderedDict()
        self._rendering: dict[Hashable, asyncio.Task[_Rendered]] = {}
        self._waiting: Counter[Hashable] = Counter()  # readers by page
        self._turn = asyncio.Lock()  # threads that render at once would only delay each other
        self.bytes, self.renderings = 0, 0

    async def page(self, key: Hashable, render: Callable[[], SharedPage]) -> SharedPage:
        """The page of this key. `render` makes it, in a thread, unless it is there already or is being made."""
        asked_s = _now_s()
        while True:
            last = self._pages.get(key)
            if last is not None and self._usable(last, asked_s):
                self._pages.move_to_end(key)
                return last.page
            task = self._rendering.get(key)
            is_mine = task is None
            if task is None:
                task = self._rendering[key] = asyncio.create_task(self._render(key, render))
            self._waiting[key] += 1
            try:
                await asyncio.wait([task])  # it continues for others if this reader leaves
            finally:
                self._waiting[key] -= 1
            if not task.cancelled() and (is_mine or task.exception() is not None):
                return task.result().page

    def _usable(self, last: _Rendered, asked_s: float) -> bool:
        """Whether it shows the present state, or at least a later one than when it was asked for."""
        if last.begun_s >= asked_s:
            return True
        return asked_s - last.begun_s < FRESH_S and last.version == self._version()

    async def _render(self, key: Hashable, render: Callable[[], SharedPage]) -> _Rendered:
        try:
            async with self._turn:
                if not self._waiting[key]:
                    raise asyncio.CancelledError  # all readers have left
                version, begun_s = self._version(), _now_s()
                self.renderings += 1
                made = _Rendered(await asyncio.to_thread(render), version, begun_s)
            self._keep(key, made)
            return made
        finally:
            del self._rendering[key]
            self._waiting += Counter()  # forgets those that nobody waits for

    def _keep(self, key: Hashable, made: _Rendered) -> None:
        old = self._pages.pop(key, None)
        self.bytes += made.page.size - (0 if old is None else old.page.size)
        self._pages[key] = made
        while self.bytes > self._most_bytes:
            _, dropped = self._pages.popitem(last=False)
            self.bytes -= dropped.page.size


def _now_s() -> float:
    return asyncio.get_running_loop().time()
