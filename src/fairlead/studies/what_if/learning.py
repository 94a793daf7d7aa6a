"""Start estimates that learn from their own past: a conformal correction of ranges.

Ranges over simulated futures are as good as the model of lengths and arrivals, which is never right for every cluster.
So each estimate is compared with the start that followed. With the range [l, h] and the start t, in seconds from the
estimate, and the constant c that keeps small times from counting much, its score is the factor, as a logarithm, by
which the range would have had to be wider to hold the start; it is negative if the range could have been narrower:

    s = max(log((l + c) / (t + c)),  log((t + c) / (h + c)))

A new range is widened at both ends by the factor exp(q), where q is the ceil((n + 1) CHANCE)-th smallest of the last n
scores (Romano, Patterson and Candes, "Conformalized quantile regression", NeurIPS 2019, on the scale of logarithms). If
the next score is as likely to have each rank among the last ones as any other, the widened range holds the start in at
least `CHANCE` of all cases, whatever the model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fairlead.rounds.state import State
from fairlead.studies.what_if.estimates import CHANCE, HORIZON_S, StartRange

SMALL_S = 60.0  # c
FEWEST_SCORES = 20  # with fewer, ranges stay as they are
MOST_SCORES = 200
MOST_PENDING = 2000
WIDEST = math.log(100.0)  # a range is widened, or narrowed, at most by this


@dataclass(frozen=True, slots=True)
class CheckedEstimate:
    """An estimate that has been compared with the start: when the job started, its score, and whether what was shown held."""

    time_s: float
    score: float
    held: bool


@dataclass(frozen=True, slots=True)
class PendingEstimate:
    """The first estimate of a job that still waits: when it was made, the range of the futures, and the one shown."""

    time_s: float
    own: StartRange
    shown: StartRange


@dataclass(frozen=True)
class Experience:
    """What past estimates have shown, the newest last, and those that cannot be checked yet, by job. It is bounded."""

    checked: tuple[CheckedEstimate, ...] = ()
    pending: Mapping[str, PendingEstimate] = field(default_factory=dict)

    def widening(self) -> float:
        """q: the logarithm of the factor by which ranges are widened."""
        return widening_of([one.score for one in self.checked])

    def held_since(self, time_s: float) -> tuple[int, int]:
        """How many of the estimates that were checked since then held, and how many were checked."""
        recent = [one.held for one in self.checked if one.time_s >= time_s]
        return sum(recent), len(recent)

    def after(self, starts_s: Mapping[str, float]) -> Experience:
        """The experience after these first starts, by job. Each estimate is checked once."""
        started = sorted((starts_s[job], job) for job in self.pending if job in starts_s)
        new = [_check(self.pending[job], time_s) for time_s, job in started]
        left = {job: one for job, one in self.pending.items() if job not in starts_s}
        return Experience((*self.checked, *new)[-MOST_SCORES:], left)

    def with_pending(self, waiting: Mapping[str, PendingEstimate]) -> Experience:
        """With the estimates of the jobs that wait now. The first estimate of a job counts; other jobs are left out."""
        kept = [(job, self.pending.get(job, one)) for job, one in waiting.items()]
        return replace(self, pending=dict(kept[:MOST_PENDING]))


def widening_of(scores: Sequence[float]) -> float:
    if len(scores) < FEWEST_SCORES:
        return 0.0
    rank = math.ceil((len(scores) + 1) * CHANCE)
    return min(max(sorted(scores)[min(rank, len(scores)) - 1], -WIDEST), WIDEST)


def widened(one: StartRange, q: float) -> StartRange:
    """The range with both ends moved by exp(q). If it is narrowed to nothing, its middle remains."""
    if one.low_s is None:
        return one
    low = math.log(one.low_s + SMALL_S) - q
    high = math.inf if one.high_s is None else math.log(one.high_s + SMALL_S) + q
    if low > high:
        low = high = (low + high) / 2
    low_s, high_s = max(math.exp(low) - SMALL_S, 0.0), math.exp(high) - SMALL_S
    return StartRange(low_s, high_s if high_s <= HORIZON_S else None)


def score_of(one: StartRange, start_s: float) -> float:
    """s"""
    start = math.log(start_s + SMALL_S)
    low = math.log((HORIZON_S if one.low_s is None else one.low_s) + SMALL_S)
    high = math.inf if one.high_s is None else math.log(one.high_s + SMALL_S)
    return max(low - start, start - high)


def holds(one: StartRange, start_s: float, same_s: float = 1e-6) -> bool:
    low_s = HORIZON_S if one.low_s is None else one.low_s
    return low_s - same_s <= start_s and (one.high_s is None or start_s <= one.high_s + same_s)


def _check(pending: PendingEstimate, time_s: float) -> CheckedEstimate:
    start_s = max(time_s - pending.time_s, 0.0)
    return CheckedEstimate(time_s, score_of(pending.own, start_s), holds(pending.shown, start_s))


def first_starts_s(state: State) -> dict[str, float]:
    """When each job that has started did so first."""
    times_s = state.first_start_s[: state.jobs].tolist()
    return {state.specs[j].id: time_s for j, time_s in enumerate(times_s) if math.isfinite(time_s)}


def experience_to_json(experience: Experience) -> dict[str, Any]:
    return {
        "checked": [[one.time_s, one.score, one.held] for one in experience.checked],
        "pending": {
            job: [one.time_s, one.own.low_s, one.own.high_s, one.shown.low_s, one.shown.high_s]
            for job, one in experience.pending.items()
        },
    }


def experience_from_json(value: Mapping[str, Any]) -> Experience:
    return Experience(
        tuple(CheckedEstimate(*row) for row in value.get("checked", ())),
        {
            job: PendingEstimate(time_s, StartRange(low_s, high_s), StartRange(shown_low_s, shown_high_s))
            for job, (time_s, low_s, high_s, shown_low_s, shown_high_s) in value.get("pending", {}).items()
        },
    )
