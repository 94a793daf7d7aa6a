"""The outcome of one round: which jobs stop, which start, and where."""

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
    """The explanation of a decision."""

    outcomes: Outcomes  # why jobs wait, for jobs whose reason has changed
    successors: Mapping[int, tuple[int, ...]]  # job that stops and starts nowhere else -> jobs that start on its nodes
    gain: float  # full-speed GPUs that the changes gain: sum over jobs of GPUs x rate / the job's fastest rate


@dataclass(frozen=True, slots=True)
class Decision:
    """What to stop and start; jobs are positions. A job in both `stop` and `start` moves."""

    time_s: float
    cause: Cause
    stop: IntArray
    start: IntArray
    spots: tuple[Spot, ...]  # one per job of `start`
    holds_until_s: float
    solver: str
    why: Why | None = None  # None = not requested
    trials: tuple[int, ...] = ()  # jobs of new models that run to be measured, from now on or still
    # A solve was cut short by the wall clock. Nobody can repeat that: a replay uses this decision, and what the policy
    # remembered is empty after it.
    by_clock: bool = False
