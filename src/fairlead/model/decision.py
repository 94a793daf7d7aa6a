"""The outcome of one round: what to stop and what to start where."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from fairlead.model.allocation import Spot
from fairlead.model.arrays import IntArray
from fairlead.model.outcomes import Outcomes


class Cause(StrEnum):
    ROUND = "round"
    EVENT = "event"  # inside a round: free GPUs only


@dataclass(frozen=True, slots=True, eq=False)
class Why:
    """What stands behind a decision."""

    outcomes: Outcomes  # why jobs wait, where that has changed
    successors: Mapping[int, tuple[int, ...]]  # job that stops and starts nowhere else -> jobs that start on its nodes
    gain: float  # GPUs at full speed won by what changes: sum over jobs of GPUs x rate / the job's fastest rate


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
    why: Why | None = None  # None = nobody asked
