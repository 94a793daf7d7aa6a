"""Evidence about speeds that a few wrong reports cannot move. All values are logarithms of observed / expected speeds."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple, TypeAlias

from fairlead.model.allocation import Spot

WINDOW = 9  # newest reports of a job at one place that count: their median ignores four wrong ones
VOTERS = 16  # newest jobs whose votes about a node count: as many new ones replace all that was believed
SPOTS = 32  # newest spots of several nodes that are remembered for a job
FULL_WEIGHT = 3  # reports after which a job's vote has its full weight
NEEDED_JOBS, NEEDED_REPORTS = 2, 3  # before a node has a factor at all
BOUND = math.log(4.0)  # largest factor of a node, either way; beyond it the scale of a job is wrong and not the node

Window: TypeAlias = tuple[float, ...]  # newest reports, the last one last


class Vote(NamedTuple):
    """What one job says about something that other jobs say too, and from how many reports."""

    value: float
    reports: int


class Seen(NamedTuple):
    """The newest reports of a job at one place, and their median."""

    window: Window
    value: float

    @property
    def vote(self) -> Vote:
        return Vote(self.value, len(self.window))


@dataclass(slots=True)
class JobEvidence:
    """The reports of one job. It is mutable, because it stays open until the job ends."""

    model: str
    at: dict[int, Seen] = field(default_factory=dict)  # by node, or by type where nodes are not told apart
    spread: dict[Spot, Seen] = field(default_factory=dict)  # by spot of several nodes
    reports: dict[int, int] = field(
        default_factory=dict
    )  # all reports ever, by type; those of mixed types do not count

    def copy(self) -> JobEvidence:
        return JobEvidence(self.model, dict(self.at), dict(self.spread), dict(self.reports))

    @property
    def is_empty(self) -> bool:
        return not self.at and not self.spread


def with_report(seen: Seen | None, value: float) -> Seen:
    return seen_from((value,) if seen is None else (*seen.window[1 - WINDOW :], value))


def seen_from(window: Window) -> Seen:
    return Seen(window, median(window))


def middle(votes: Iterable[Vote]) -> float:
    """The weighted median: half of the weight is on each side. A vote weighs as its reports, up to `FULL_WEIGHT`."""
    ranked = sorted(votes)
    if len(ranked) == 1:
        return ranked[0].value
    weights = [min(vote.reports, FULL_WEIGHT) for vote in ranked]
    half, below = sum(weights) / 2.0, 0
    for position, weight in enumerate(weights):
        below += weight
        if below > half:
            return ranked[position].value
        if below == half:
            return (ranked[position].value + ranked[position + 1].value) / 2.0
    raise ValueError("a median needs at least one vote")


def cast(votes: dict[int, Vote], voter: int, vote: Vote) -> None:
    """Replace the voter's vote; the newest votes come last, and only `VOTERS` of them are kept."""
    votes.pop(voter, None)
    votes[voter] = vote
    if len(votes) > VOTERS:
        del votes[next(iter(votes))]


def verdict(votes: dict[int, Vote]) -> float | None:
    """What the jobs agree on, within the bounds; None while there are too few of them or too few reports."""
    reports = sum(min(vote.reports, FULL_WEIGHT) for vote in votes.values())
    if len(votes) < NEEDED_JOBS or reports < NEEDED_REPORTS:
        return None
    return min(max(middle(votes.values()), -BOUND), BOUND)
