"""Jobs placed on nodes, each on one of several spots: exactly, or nearly so in bounded work.

    max  sum_ic v_ic X_ic    s.t.  sum_c X_ic <= 1                every job i
                                   sum_ic X_ic a_icn <= free_n    every node n,     X in {0, 1}

Spot c of job i takes a_icn GPUs of node n and is worth v_ic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fairlead.model.allocation import Spot
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.numerics.solve import Limit, LinearProgram, Optimal, TimeLimit, columns_from_entries, solve

GAP = 5e-3  # the part of its bound by which a plan may fall short
RELAXED = Limit(iterations=20_000)
BRANCHED = Limit(nodes=20)
# The solver's work at its first node can only be limited by the size of its program: 300 columns take up to 0.4 CPU s,
# 3,900 took 3.5 s, and with 300 the plans of a 512-GPU run are worth 99.3 % of those with 3,900 on average.
MOST_COLUMNS = 300
# The dive solves a linear program in every pass. The cheapest 5,000 columns (of up to 20,000) gave the same value as all
# of them on plans for 512 GPUs, while 2,500 lost up to 0.4 %; for 2,048 GPUs of 8 types, two of four decisions lost up
# to 0.3 %.
MOST_DIVED = 5_000
ONE = 1.0 - 1e-6  # the solver is accurate to about 1e-7
GREEDY = "greedy in queue order"


@dataclass(frozen=True, slots=True, eq=False)
class SpotChoices:
    """The spots that jobs may take on real nodes."""

    job: IntArray  # c
    value: FloatArray  # c
    spots: Sequence[Spot]  # c

    def only(self, columns: IntArray) -> SpotChoices:
        return SpotChoices(self.job[columns], self.value[columns], [self.spots[c] for c in columns.tolist()])


@dataclass(frozen=True, slots=True, eq=False)
class SpotPlan:
    spots: dict[int, Spot]  # job -> where, for the jobs that got something
    value: float
    bound: float  # no plan is worth more if the nodes of a group are equal; inf if a solve gave up
    solver: str


NOTHING = SpotPlan({}, 0.0, 0.0, "optimal")


def exact(choices: SpotChoices, free: IntArray, limit: Limit = BRANCHED, gap: float = GAP) -> SpotPlan:
    """The plan that solves the program above; a greedy plan if the limit is reached before there is a solution."""
    if not len(choices.job):
        return NOTHING
    outcome = solve(_program(choices, free), limit, gap=gap)
    scale = float(choices.value.max())
    if isinstance(outcome, Optimal | TimeLimit) and outcome.x is not None:
        taken = np.flatnonzero(outcome.x > 0.5)
        spots = {int(choices.job[c]): choices.spots[c] for c in taken.tolist()}
        bound = -(outcome.objective if isinstance(outcome, Optimal) else outcome.bound) * scale
        return SpotPlan(spots, float(choices.value[taken].sum()), bound, "optimal")
    return greedy(choices, free)


def near(choices: SpotChoices, free: IntArray, gap: float = GAP, seconds: float | None = None) -> SpotPlan:
    """A plan that is as good as bounded work allows.

    A dive rounds the linear program over the `MOST_DIVED` columns of least reduced cost: columns at 1 are fixed, then the
    largest fraction is rounded up, and the rest is solved again. If the result is more than `gap` below the bound, the
    whole-number program decides over the columns whose reduced cost does not rule them out, the cheapest `MOST_COLUMNS`
    of them.
    """
    if len(choices.job) <= MOST_COLUMNS:
        return exact(choices, free, replace(BRANCHED, seconds=seconds), gap)
    limit = replace(RELAXED, seconds=seconds)
    relaxed = solve(replace(_program(choices, free), whole=None), limit)
    if not isinstance(relaxed, Optimal):
        return greedy(choices, free)
    scale = float(choices.value.max())
    bound, cost = -relaxed.objective * scale, relaxed.reduced_cost * scale  # c
    dived = np.sort(np.lexsort((cost, relaxed.x <= 0))[:MOST_DIVED])
    best = _dive(choices.only(dived), free, relaxed.x[dived], limit)
    if best.value < (1.0 - gap) * bound:
        open_ = np.flatnonzero(cost <= bound - best.value + 1e-9 * bound)
        open_ = np.sort(open_[np.argsort(cost[open_], kind="stable")[:MOST_COLUMNS]])
        branched = exact(choices.only(open_), free, replace(BRANCHED, seconds=seconds), gap)
        best = branched if branched.value > best.value else best
    return replace(best, bound=bound)


def greedy(choices: SpotChoices, free: IntArray) -> SpotPlan:
    """Each job, in the order in which jobs first appear, takes its best spot that fits."""
    left: list[int] = free.tolist()
    spots: dict[int, Spot] = {}
    value = 0.0
    first = {job: at for at, job in reversed(list(enumerate(choices.job.tolist())))}
    queue = np.lexsort((-choices.value, np.array([first[job] for job in choices.job.tolist()])))
    for c in queue.tolist():
        job, spot = int(choices.job[c]), choices.spots[c]
        if job not in spots and fits(spot, left):
            spots[job] = spot
            value += float(choices.value[c])
            take(spot, left)
    return SpotPlan(spots, value, np.inf, GREEDY)


def fits(spot: Spot, free: Sequence[int] | IntArray) -> bool:
    return all(free[node] >= gpus for node, gpus in spot)


def take(spot: Spot, free: list[int]) -> None:
    for node, gpus in spot:
        free[node] -= gpus


def _dive(choices: SpotChoices, free: IntArray, x: FloatArray, limit: Limit) -> SpotPlan:
    """Round the fractional solution `x` step by step; every pass places at least one job, so it ends."""
    left: list[int] = free.tolist()
    spots: dict[int, Spot] = {}
    value, columns = 0.0, np.arange(len(choices.job))
    while True:
        before = len(spots)
        for c in _largest_first(choices.value[columns], x).tolist():
            if (x[c] < ONE and len(spots) > before) or x[c] < 1.0 - ONE:
                break
            job, spot = int(choices.job[columns[c]]), choices.spots[columns[c]]
            if job not in spots and fits(spot, left):
                spots[job] = spot
                value += float(choices.value[columns[c]])
                take(spot, left)
        open_ = [c for c in columns.tolist() if int(choices.job[c]) not in spots and fits(choices.spots[c], left)]
        if len(spots) == before or not open_:
            return SpotPlan(spots, value, np.inf, "optimal")
        columns = np.array(open_, dtype=np.int64)
        program = _program(choices.only(columns), np.array(left, dtype=np.int64))
        outcome = solve(replace(program, whole=None), limit)
        if not isinstance(outcome, Optimal):
            return SpotPlan(spots, value, np.inf, "optimal")
        x = outcome.x


def _largest_first(value: FloatArray, x: FloatArray) -> IntArray:
    """Columns in order of their fraction, rounded to the solver's tolerance, then of their value."""
    return np.lexsort((np.arange(len(x)), -value, -np.round(x, 6)))


def _program(choices: SpotChoices, free: IntArray) -> LinearProgram:
    columns = len(choices.job)
    pieces = [(c, node, gpus) for c, spot in enumerate(choices.spots) for node, gpus in spot]
    column, node, gpus = np.array(pieces, dtype=np.int64).reshape(-1, 3).T
    jobs, job_row = np.unique(choices.job, return_inverse=True)
    nodes, node_row = np.unique(node, return_inverse=True)
    start, index, value = columns_from_entries(
        row=np.concatenate((job_row.reshape(-1), len(jobs) + node_row.reshape(-1))),
        column=np.concatenate((np.arange(columns), column)),
        value=np.concatenate((np.ones(columns), gpus.astype(np.float64))),
        columns=columns,
    )
    return LinearProgram(
        cost=-choices.value / choices.value.max(),
        low=np.zeros(columns),
        high=np.ones(columns),
        row_low=np.full(len(jobs) + len(nodes), -np.inf),
        row_high=np.concatenate((np.ones(len(jobs)), free[nodes])).astype(np.float64),
        start=start,
        index=index,
        value=value,
        whole=np.ones(columns, dtype=np.bool_),
    )
