"""Readable logarithmic axes: round numbers as ticks, however short the axis is."""

from __future__ import annotations

import math
from collections.abc import Iterable

FEW, MANY = 4, 9  # ticks
# Digits of ticks within a decade; each set is nearly even on a logarithmic axis.
_DIGITS = ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7))
_STEPS = (1, 2, 2.5, 5)


def log_range(values: Iterable[float], room: float = 0.08) -> tuple[float, float]:
    """A range around all values, with this part of the span free at both ends."""
    positive = [value for value in values if value > 0]
    if not positive:
        return 0.1, 10.0
    low, high = min(positive), max(positive)
    span = max(math.log(high / low), math.log(1.5))  # a single value is in the middle
    free = math.exp(room * span + (span - math.log(high / low)) / 2)
    return low / free, high * free


def log_ticks(low: float, high: float) -> list[float]:
    """A few round numbers from low to high."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    every = max(1, -(-(last - first) // MANY))
    for digits in _DIGITS:
        powers = range(first, last + 1, every if len(digits) == 1 else 1)
        ticks = [digit * 10.0**power for power in powers for digit in digits]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) >= FEW:
            return ticks
    return _even(low, high)


def tick_text(tick: float) -> str:
    return f"{tick:,.0f}" if tick >= 1000 else f"{tick:.4g}"


def _even(low: float, high: float) -> list[float]:
    """Multiples of a round step, which are nearly even on less than a decade."""
    most = (high - low) / FEW
    size = 10.0 ** math.floor(math.log10(most))
    step = max(size * step for step in _STEPS if size * step <= most)
    return [n * step for n in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]
