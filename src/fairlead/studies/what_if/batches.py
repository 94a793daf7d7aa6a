"""Jobs that one tenant submits one after the other often have nearly the same length, such as the trials of a sweep.

How often is learnt from the jobs that have ended. With q the part of neighbours (two jobs that a tenant submitted one
after the other) whose lengths differ by less than a factor `ALIKE`, and q_0 the same for any two jobs of the cluster, a
job is assumed to have the length of the job before it with the chance

    rho = (q - q_0) / (1 - q_0)

and otherwise a length of its own. Drawing every length by itself makes ranges too narrow: a queue behind ten alike jobs
waits for one unknown length and not for the mean of ten.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fairlead.model.arrays import FloatArray
from fairlead.model.lifecycle import Phase
from fairlead.rounds.state import State

ALIKE = 1.25
FEWEST = 10  # neighbours that have ended; with fewer, lengths are drawn one by one


@dataclass(frozen=True)
class Likeness:
    """How alike neighbours are: the chance, and the ratios of lengths of neighbours that were alike."""

    chance: float = 0.0
    ratios: tuple[float, ...] = (1.0,)


def neighbours_of(state: State) -> dict[int, int]:
    """Job -> the job that the same tenant submitted before it. Jobs that failed are left out."""
    latest: dict[int, int] = {}
    before: dict[int, int] = {}
    lost = (Phase.FAILED, Phase.CANCELLED)
    tenant, phase = state.tenant.tolist(), state.phase.tolist()
    for j in range(state.jobs):
        if phase[j] in lost:
            continue
        if tenant[j] in latest:
            before[j] = latest[tenant[j]]
        latest[tenant[j]] = j
    return before


def likeness_of(length_s: FloatArray, before: dict[int, int]) -> Likeness:
    """From the lengths of jobs by position, NaN for those that have not ended."""
    ended = np.isfinite(length_s) & (length_s > 0)
    pairs = [(p, j) for j, p in before.items() if ended[j] and ended[p]]
    if len(pairs) < FEWEST:
        return Likeness()
    log = np.log(length_s[np.array(pairs)])  # pair, 2
    difference = log[:, 1] - log[:, 0]
    alike = np.abs(difference) <= np.log(ALIKE)
    q, q_0 = float(alike.mean()), _any_two(np.log(length_s[ended]))
    chance = max(q - q_0, 0.0) / max(1.0 - q_0, 1e-9)
    return Likeness(chance, tuple(np.exp(difference[alike]).tolist()) or (1.0,))


def _any_two(log: FloatArray) -> float:
    """The part of all pairs of two different jobs that are alike."""
    ranked, many = np.sort(log), len(log)
    first = np.searchsorted(ranked, ranked - np.log(ALIKE))
    last = np.searchsorted(ranked, ranked + np.log(ALIKE), side="right")
    return float((last - first - 1).sum()) / (many * (many - 1))


def copied_length_s(
    likeness: Likeness, before_s: float, age_s: float, survival: float, draws: Sequence[float]
) -> float | None:
    """The length that a job has from the job before it, whose length is `before_s`; None: it has one of its own.

    That a job has run for `age_s` speaks for the hypotheses under which it still runs: that it is like the job before,
    if that was longer, or one of the `survival` part of all jobs that last so long. `draws` are two numbers in [0, 1).
    """
    ratio = likeness.ratios[int(draws[1] * len(likeness.ratios))]
    copied_s = before_s * ratio
    if copied_s <= age_s:
        return None
    rho = likeness.chance
    return copied_s if draws[0] * (rho + (1.0 - rho) * survival) < rho else None
