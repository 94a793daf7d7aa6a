"""When waiting jobs will start: ranges over simulated futures.

With n futures that are as likely as the real one, the real start is among the ranks of theirs with equal chances, so
the range from the k-th smallest to the k-th largest holds it with the chance (n + 1 - 2 k) / (n + 1). For ten futures
and k = 1 that is 9 / 11, for about 8 of 10.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fairlead.model.lifecycle import Phase
from fairlead.rounds.state import State
from fairlead.studies.runs.origin import Origin
from fairlead.studies.what_if.changes import ScaleArrivals
from fairlead.studies.what_if.drawing import ENOUGH, history_of
from fairlead.studies.what_if.forward import forward

CHANCE = 0.8
FUTURES = 10
FEWEST = 4
HORIZON_S = 86_400.0


@dataclass(frozen=True, slots=True)
class StartRange:
    """Seconds from the present until a job starts, from the earliest to the latest."""

    low_s: float | None  # None: after the time that was simulated
    high_s: float | None


@dataclass(frozen=True)
class StartRanges:
    ranges: Mapping[str, StartRange]  # by job
    chance: float  # that a start is in its range
    reason: str | None = None  # why there are no ranges


NOTHING_WAITS = "no job waits"
LENGTHS_UNKNOWN = (
    f"fewer than {ENOUGH} jobs have ended, and some jobs declare no length (steps), so it would be a guess"
)


def waiting_jobs(state: State) -> list[str]:
    """Jobs in the queue that hold no GPUs and that some node can run."""
    jobs, _ = state.schedulable()
    waiting = jobs[(state.phase[jobs] == Phase.WAITING) & (state.held_gpus[jobs] == 0)]
    return [state.specs[j].id for j in waiting.tolist()]


def start_ranges(
    origin: Origin,
    futures: int = FUTURES,
    horizon_s: float = HORIZON_S,
    is_enough: Callable[[], bool] = lambda: False,
) -> StartRanges:
    """The start of every waiting job, with later arrivals at the recent rate and lengths drawn where none is declared.

    A policy that serves in order of arrival ignores what comes later, and a declared length is believed, so a range may
    be a single time. There are no estimates while lengths would only be guessed. Once `is_enough` returns True,
    `FEWEST` futures do.
    """
    known, jobs = _lengths_are_known(origin.state), waiting_jobs(origin.state)
    reason = NOTHING_WAITS if not jobs else None if known else LENGTHS_UNKNOWN
    jobs = jobs if known else []
    starts_s: dict[str, list[float]] = {job: [] for job in jobs}
    made = 0
    while jobs and made < futures and not (made >= FEWEST and is_enough()):
        future = forward(origin, (ScaleArrivals(1.0),), horizon_s=horizon_s, seed=made, until_started=jobs)
        for job in jobs:
            start_s = future.jobs[job].start_s
            starts_s[job].append(math.inf if start_s is None else start_s - future.now_s)
        made += 1
    return StartRanges({job: range_of(times) for job, times in starts_s.items()}, chance_of(made or futures), reason)


def _lengths_are_known(state: State) -> bool:
    """Whether every active job declares a length, or enough jobs have ended to draw from."""
    everything = history_of(state).groups.get((), None)
    ended = 0 if everything is None else int(everything.ended.sum())
    return ended >= ENOUGH or all(state.specs[j].steps is not None for j in state.active_jobs.tolist())


def range_of(times_s: Sequence[float]) -> StartRange:
    """The range of the middle of these times that holds another such time with the chance `chance_of`."""
    k, ranked = _cut(len(times_s)), sorted(times_s)
    low_s, high_s = ranked[k - 1], ranked[-k]
    return StartRange(None if math.isinf(low_s) else low_s, None if math.isinf(high_s) else high_s)


def chance_of(futures: int) -> float:
    """The chance that a range over this many futures holds the truth: as near to `CHANCE` as they permit."""
    return (futures + 1 - 2 * _cut(futures)) / (futures + 1)


def _cut(futures: int) -> int:
    """k: the range ends with the k-th smallest and the k-th largest."""
    return max(1, round((futures + 1) * (1 - CHANCE) / 2))
