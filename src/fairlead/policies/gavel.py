"""Heterogeneity-aware max-min fairness (Gavel, OSDI 2020)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fairlead.model.allocation import Answer, Level, Shares
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.jobs import MOST_GPUS
from fairlead.model.view import View
from fairlead.numerics import kernel
from fairlead.numerics.isolated import isolated_shares
from fairlead.numerics.maxmin import MaxMinSolver
from fairlead.policies.policy import RoundPolicy

# A solver with this many times more groups than there are now is replaced by a new one.
CROWDED = 4


@dataclass(frozen=True, slots=True, eq=False)
class GavelMemory:
    """The last problem and its shares, which are reused while nothing changes, and the open solver."""

    job: IntArray  # j
    weight: FloatArray  # j
    rate: FloatArray  # j,t
    capacity: IntArray  # t
    shares: Shares
    solver: MaxMinSolver

    def still_holds(self, view: View) -> bool:
        return (
            _same(view.job, self.job)
            and _same(view.weight, self.weight)
            and _same(view.capacity, self.capacity)
            and _same(view.rate, self.rate)
        )


def gavel(view: View, memory: GavelMemory | None) -> tuple[Shares, GavelMemory]:
    """The smallest speed relative to the isolated share is as large as possible, then the total is largest.

        max  min_j  theta_j.x_j / theta_j.s_j     s.t.  sum_t x_jt <= d_j,   sum_j x_jt <= m_t,   x >= 0

    x_jt are GPUs (time fraction times width d_j), theta rates, s the isolated share with the job's weight. Jobs with
    equal rates, width and weight are one group with equal shares: the optimum is unchanged, by convexity.
    Departs: the second objective, which Gavel leaves to its solver; with it, shares do not depend on the past.
    """
    if memory is not None and memory.still_holds(view):
        return memory.shares, memory
    groups = _groups(view) if kernel.kernel is None else _groups_compiled(view)
    solver = memory.solver if memory is not None else None
    if solver is None or solver.size > CROWDED * len(groups.count) + 32:
        solver = MaxMinSolver(len(view.capacity))
    solution = solver.solve(groups.rate, groups.scale, groups.width, groups.count, view.capacity)
    shares = Shares(
        gpus=(groups.alone if solution is None else solution.shares)[groups.of_job],
        owner_of=np.arange(view.jobs),
        owner_key=view.job,
        answer=Answer(solver="equal shares" if solution is None else "optimal"),
    )
    return shares, GavelMemory(view.job, view.weight, view.rate, view.capacity, shares, solver)


def _same(one: IntArray | FloatArray, other: IntArray | FloatArray) -> bool:
    """Whether two arrays are equal; while nothing changes, views share the same arrays."""
    return one is other or np.array_equal(one, other)


def divide_max_min(speedup: FloatArray, capacity: FloatArray, weight: FloatArray) -> FloatArray | None:
    """Shares l,t of tenants, by the same rule without the limit of a gang. None if the solver gave up.

        max  min_l  (W_l.x_l / w_l) / (W_l.m / sum(w))     s.t.  sum_l x_lt <= m_t,   x >= 0

    Tenants with equal speedups are one group with the sum of their weights.
    """
    groups, group_of = np.unique(speedup, axis=0, return_inverse=True)  # g,t  l
    count = np.bincount(group_of, weight, len(groups))  # g
    alone = np.maximum(groups @ capacity, 1e-300) / weight.sum()  # g  isolated throughput of one unit of weight
    any_width = np.full(len(groups), MOST_GPUS)
    solution = MaxMinSolver(len(capacity)).solve(groups, 1.0 / alone, any_width, count, capacity)
    return None if solution is None else solution.shares[group_of] * weight[:, None]


@dataclass(frozen=True, slots=True, eq=False)
class _Groups:
    """Groups of equal jobs."""

    of_job: IntArray  # j
    count: IntArray  # g  jobs
    width: IntArray  # g
    rate: FloatArray  # g,t
    alone: FloatArray  # g,t  GPUs of one job if the cluster were divided
    scale: FloatArray  # g  1 / rate with these


def _groups(view: View) -> _Groups:
    group_of, first, count = _group(view)  # j, g, g
    rate = np.where(view.capacity > 0, view.rate[first], 0.0)  # g,t  a type that is down entirely has no rates
    width, weight, whole = view.width[first], view.weight[first], float(view.weight.sum())
    alone = isolated_shares(rate > 0, width, view.capacity, weight, whole)
    isolated = np.maximum((view.ideal_rate[first] * alone).sum(axis=1), 1e-300)  # g
    return _Groups(group_of, count, width, rate, alone, 1.0 / isolated)


def _groups_compiled(view: View) -> _Groups:
    """The same in one call."""
    of_job, first, count = np.empty((3, view.jobs), dtype=np.int64)
    rate, alone = np.empty((2, *view.rate.shape))
    scale, whole = np.empty(view.jobs), float(view.weight.sum())
    columns = view.alike, view.rate, view.ideal_rate, view.width, view.weight, view.capacity
    n = kernel.kernel.isolated_groups(*columns, whole, of_job, first, count, rate, alone, scale)
    return _Groups(of_job, count[:n], view.width.take(first[:n]), rate[:n], alone[:n], scale[:n])


def _group(view: View) -> tuple[IntArray, IntArray, IntArray]:
    """Group of each job (j), first job of each group (g), jobs in each group (g); in order of first appearance."""
    count = np.bincount(view.alike)
    first = np.empty(len(count), dtype=np.int64)
    first[view.alike[::-1]] = np.arange(view.jobs - 1, -1, -1)  # the earliest job is written last
    numbers = count.nonzero()[0]
    numbers = numbers[first[numbers].argsort()]  # g
    group = np.empty(len(count), dtype=np.int64)
    group[numbers] = np.arange(len(numbers))
    return group[view.alike], first[numbers], count[numbers]


POLICY = RoundPolicy(
    name="gavel",
    summary="The smallest speed relative to the isolated share is as large as possible, then the total is largest.",
    paper="Gavel (OSDI 2020), heterogeneity-aware max-min",
    level=Level.SHARES,
    allocate=gavel,
)
