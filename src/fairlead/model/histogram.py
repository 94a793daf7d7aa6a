"""Counts of values by upper bounds, as monitoring systems store them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

# Upper bounds in seconds for decisions, commits and calls: from a millisecond to the patience of a decision.
FAST_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Histogram:
    """How many values there were up to each bound, how many beyond the last one, and their sum."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)  # ascending
        self.counts = [0] * (len(self.bounds) + 1)  # of values in (bound before, bound]; the last is unbounded
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def to_json(self) -> dict[str, Any]:
        return {"bounds": list(self.bounds), "counts": list(self.counts), "total": self.total}


def histogram_from_json(document: dict[str, Any]) -> Histogram:
    histogram = Histogram(document["bounds"])
    if len(document["counts"]) != len(histogram.counts):
        raise ValueError("a histogram has one count more than it has bounds")
    histogram.counts, histogram.total = [int(count) for count in document["counts"]], float(document["total"])
    return histogram
