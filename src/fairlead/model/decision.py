"""The outcome of one round: what to stop and what to start where."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from fairlead.model.allocation import Spot
from fairlead.model.arrays import IntArray


class Cause(StrEnum):
    ROUND = "round"
    EVENT = "event"  # inside a round: free GPUs only


@dataclass(frozen=True, slots=True)
class Decision:
    """Jobs by position. A job in both `stop` and `start` moves."""

    time_s: float
    cause: Cause
    stop: IntArray
    start: IntArray
    spots: tuple[Spot, ...]  # one per job of `start`
    holds_until_s: float
    solver: str
