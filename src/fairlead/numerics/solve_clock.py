"""A wall-clock limit on all solves of a decision, for live use. Simulations and replays have none: they count work.

The clock is passed in, because this layer reads none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class SolveClock:
    """`left_s` returns the seconds that are left; `cut_short` becomes true if a solve ran out of them."""

    def __init__(self, left_s: Callable[[], float]) -> None:
        self._left_s = left_s
        self.cut_short = False

    def seconds(self, limit_s: float | None) -> float:
        """The seconds that the next solve may take, within its own limit."""
        left_s = max(self._left_s(), 0.0)
        return left_s if limit_s is None else min(left_s, limit_s)


_CURRENT: ContextVar[SolveClock | None] = ContextVar("solve_clock", default=None)


def current_clock() -> SolveClock | None:
    return _CURRENT.get()


@contextmanager
def limited_by(clock: SolveClock) -> Iterator[SolveClock]:
    """Every solve in this context is limited by the clock."""
    token = _CURRENT.set(clock)
    try:
        yield clock
    finally:
        _CURRENT.reset(token)
