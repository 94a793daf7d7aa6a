"""Finish-time fairness over GPU types: Themis's measure as Gavel optimises it (OSDI 2020)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fairlead.model.allocation import Level, Shares
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.view import View
from fairlead.numerics.isolated import isolated_shares
from fairlead.numerics.levels import Gangs, raise_level, raise_total
from fairlead.policies.kept_shares import KeptShares, keep, to_go_s
from fairlead.policies.policy import Knows, RoundPolicy
from fairlead.policies.ranges import Number


@dataclass(frozen=True, slots=True, eq=False)
class FtfMemory:
    """The last shares, and for each job how long its completed work would have taken alone."""

    kept: KeptShares
    done: FloatArray  # j  samples
    alone_s: FloatArray  # j
    alone_rate: FloatArray  # j  samples/s, at the time of the last shares


def gavel_ftf(view: View, memory: FtfMemory | None, *, every_s: float = 1800.0) -> tuple[Shares, FtfMemory]:
    """The job that ends latest relative to its time alone ends as early as possible.

        min  max_j  rho_j,     rho_j = (t_j + n_j / theta_j.x_j) / (a_j + n_j / theta_j.s_j)

    t_j is the time since the job arrived, n_j its remaining work, s_j its isolated share, a_j the time that its completed
    work would have taken with that share. The second objective is the sum of speeds relative to the isolated ones.
    For L = 1 / rho this needs speeds of n_j L / (T_j - L t_j), T_j = a_j + n_j / theta_j.s_j, with the largest L possible.
    A job of unknown length counts as long as the others on average. Shares are kept for `every_s` while no job arrives or
    ends.
    """
    if memory is not None and memory.kept.still_holds(view):
        return memory.kept.shares, memory
    assert view.done is not None, "gavel-ftf declares that it knows lengths"
    up = np.where(view.capacity > 0, view.ideal_rate, 0.0)
    alone = isolated_shares(up > 0, view.width, view.capacity, view.weight)  # j,t  GPUs
    alone_rate = (up * alone).sum(axis=1) / view.width  # j  samples/s
    alone_s = _alone_so_far(view, memory, alone_rate)
    gangs = Gangs.of(view.rate, view.width, np.ones(view.jobs), view.capacity)
    speed = alone_rate[gangs.alive] / up.max(axis=1, initial=0.0)[gangs.alive]  # g  of full speed
    gpus = finish_time_shares(
        gangs, to_go_s(view)[gangs.alive], (view.now_s - view.arrival_s)[gangs.alive], alone_s[gangs.alive], speed
    )
    kept = keep(view, alone, every_s, "equal shares") if gpus is None else keep(view, gpus, every_s, "optimal")
    return kept.shares, FtfMemory(kept, view.done, alone_s, alone_rate)


def finish_time_shares(
    gangs: Gangs, to_go_s: FloatArray, since_s: FloatArray, alone_s: FloatArray, alone_speed: FloatArray
) -> FloatArray | None:
    """Shares of all jobs; None if there are no jobs or the solver gave up.

    The arguments by active job are the seconds left at full speed, since its arrival, and alone so far, and its speed
    alone as a fraction of full speed.
    """
    if not to_go_s.size:
        return None
    expected_s = alone_s + to_go_s / alone_speed  # T

    def need(level: float) -> tuple[FloatArray, FloatArray]:
        left_s = expected_s - level * since_s
        return level * to_go_s / left_s, to_go_s * expected_s / (left_s * left_s)

    # No job can be faster than at full speed from now on.
    raised = raise_level(gangs, need, most=float((expected_s / (since_s + to_go_s)).min()))
    return None if raised is None else gangs.shares(raise_total(gangs, raised, 1.0 / alone_speed))


def _alone_so_far(view: View, memory: FtfMemory | None, alone_rate: FloatArray) -> FloatArray:
    """j  time alone so far; work since the last shares counts at the isolated rate of that time."""
    assert view.done is not None
    with np.errstate(divide="ignore", invalid="ignore"):
        alone_s = np.nan_to_num(view.done / alone_rate, nan=0.0, posinf=0.0)  # j  for new jobs
        if memory is not None and memory.kept.job.size and view.jobs:
            known, at = _places(view.job, memory.kept.job)
            more = np.maximum(view.done[known] - memory.done[at], 0.0) / memory.alone_rate[at]
            alone_s[known] = memory.alone_s[at] + np.nan_to_num(more, nan=0.0, posinf=0.0)
    return alone_s


def _places(job: IntArray, known: IntArray) -> tuple[IntArray, IntArray]:
    """The jobs that are in `known`, and their positions there."""
    at = np.minimum(np.searchsorted(known, job), len(known) - 1)
    same = np.flatnonzero(known[at] == job)
    return same, at[same]


POLICY = RoundPolicy(
    name="gavel-ftf",
    summary="The job that ends latest relative to its time alone ends as early as possible, then the total speed is largest.",
    paper="Gavel (OSDI 2020), finish-time fairness",
    level=Level.SHARES,
    allocate=gavel_ftf,
    remembers=(FtfMemory, KeptShares),
    ranges={"every_s": Number(0.0, 1e9)},
    knows=frozenset({Knows.LENGTHS}),
)
