"""Which policy a comparison speaks for: how far each one is behind the best of every number, seed by seed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from fairlead.policies.policy import Policy
from fairlead.studies.compare.answer import ComparisonAnswer
from fairlead.studies.compare.run_records import RunRecord


@dataclass(frozen=True, slots=True)
class Aspect:
    """A number above 0 by which runs are judged, less being better."""

    name: str  # as users weigh it
    label: str
    read: Callable[[RunRecord], float | None]


ASPECTS = (
    Aspect("completion", "mean JCT", lambda run: run.summary.jct_s["mean"]),
    Aspect("tail", "p99 JCT", lambda run: run.summary.jct_s["p99"]),
    Aspect("makespan", "makespan", lambda run: run.summary.makespan_s),
    Aspect("fairness", "max FTF", lambda run: run.summary.ftf["max"]),
    # 1 + waiting / expected running: by how much waiting stretches a job. The latency ratio itself may be 0.
    Aspect("waiting", "1 + max LR", lambda run: _stretch(run.summary.latency_ratio["max"])),
)


@dataclass(frozen=True, slots=True)
class PolicyScore:
    """How many times the best of each number a policy has, as geometric means over seeds; 1 is best."""

    policy: str
    total: float  # over aspects, by their weights
    behind: Mapping[str, float]  # by aspect
    won: int  # seeds with the lowest total of all
    seeds: int
    knows: tuple[str, ...]
    promises: tuple[str, ...]  # to tenants

    @property
    def weakest(self) -> str:
        """The aspect in which it is furthest behind."""
        return max(self.behind, key=self.behind.__getitem__)


@dataclass(frozen=True, slots=True)
class Scores:
    ranked: tuple[PolicyScore, ...]  # the best first
    left_out: Mapping[str, str]  # policies that are not ranked, and why

    def of(self, policy: str) -> PolicyScore:
        return next(score for score in self.ranked if score.policy == policy)


def scores_of(answer: ComparisonAnswer, policies: Iterable[Policy], weights: Mapping[str, float]) -> Scores:
    """Scores of those of these policies that finished every job with every seed; `weights` are by aspect and not all 0.

    With a seed, a policy is value / best value behind in an aspect, and exp(sum_a w_a ln behind_a / sum_a w_a) in total.
    """
    field = {policy.name: policy for policy in policies}
    runs = {name: {run.seed: run for run in answer.runs if run.policy == name} for name in field}
    seeds = sorted({seed for mine in runs.values() for seed in mine})  # those that change nothing are run once
    left_out = {name: why for name, mine in runs.items() if (why := _why_not(mine, seeds))}
    values = {
        name: [[_value(aspect, mine[seed]) for aspect in ASPECTS] for seed in seeds]
        for name, mine in runs.items()
        if name not in left_out
    }  # by seed and aspect
    logs = {name: [[math.log(value) for value in row] for row in rows] for name, rows in values.items()}
    best = [_lowest([rows[s] for rows in logs.values()]) for s in range(len(seeds))]
    behind = {name: [_minus(row, low) for row, low in zip(rows, best, strict=True)] for name, rows in logs.items()}
    weight = [weights[aspect.name] for aspect in ASPECTS]
    totals = {name: [_weighed(row, weight) for row in rows] for name, rows in behind.items()}
    lowest = [min(column) for column in zip(*totals.values(), strict=True)]
    scores = [
        PolicyScore(
            name,
            math.exp(fmean(total)),
            {aspect.name: math.exp(fmean(row[a] for row in behind[name])) for a, aspect in enumerate(ASPECTS)},
            sum(one == low for one, low in zip(total, lowest, strict=True)),
            len(total),
            tuple(sorted(field[name].knows)),
            tuple(sorted(field[name].promises)),
        )
        for name, total in totals.items()
    ]
    return Scores(tuple(sorted(scores, key=lambda score: score.total)), left_out)


def _why_not(runs: Mapping[int, RunRecord], seeds: Sequence[int]) -> str:
    if not runs or len(runs) < len(seeds):
        return "a run failed or was not started"
    unfinished = sum(run.summary.jobs_total - run.summary.jobs_finished for run in runs.values())
    if unfinished:
        return f"{unfinished} jobs were never finished"
    if any(_value(aspect, run) <= 0 for run in runs.values() for aspect in ASPECTS):
        return "a number that is judged does not exist or is 0"
    return ""


def _value(aspect: Aspect, run: RunRecord) -> float:
    value = aspect.read(run)
    return 0.0 if value is None else value


def _lowest(rows: Sequence[Sequence[float]]) -> list[float]:
    return [min(column) for column in zip(*rows, strict=True)]


def _minus(row: Sequence[float], low: Sequence[float]) -> list[float]:
    return [value - least for value, least in zip(row, low, strict=True)]


def _weighed(row: Sequence[float], weight: Sequence[float]) -> float:
    return sum(value * w for value, w in zip(row, weight, strict=True)) / sum(weight)


def _stretch(latency_ratio: float | None) -> float | None:
    return None if latency_ratio is None else 1.0 + latency_ratio
