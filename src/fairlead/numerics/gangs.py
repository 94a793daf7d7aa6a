"""One round as a program: gangs on GPU types at the least cost, where an idle GPU has a price.

No GPU stays idle that a gang fits on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.numerics.division import NO_TYPE, best_division, few_ways
from fairlead.numerics.one_choice import ChoiceProgram, choose
from fairlead.numerics.solve import Limit, LinearProgram, Optimal, TimeLimit, solve

ITERATIONS = 1_000_000  # of one solve
NODES = 50  # of one whole-number solve
CLOSE = 0.003  # of the sum of |c| over all grants: a rounded solution this close to its bound is good enough
SETTLE = 40  # jobs; more take longer and gain little (1000 GPUs of 8 types, 4000 jobs: at most 0.2 % above the bound)
WHOLE = 0.999  # a job that gets this much of a type in the linear program is granted the type
STAY = 1e-6  # rounds: the preference for the type that a job holds; above the solver's tolerance of 1e-7


@dataclass(frozen=True, slots=True)
class Effort:
    """How much work a round may take; counted, never timed."""

    settle: int = SETTLE  # jobs
    exact: bool = False
    nodes: int = NODES
    iterations: int = ITERATIONS


def assign(
    c: FloatArray,
    runs: BoolArray,
    d: IntArray,
    Y: IntArray,
    held: IntArray,
    bonus: float,
    effort: Effort | None = None,
) -> tuple[IntArray, str]:
    """j  type of each job or -1, and the name of the method that decided it.

        min  sum_j sum_i (c_ij - B d_j) x_ij     s.t.  sum_i x_ij <= 1,   sum_j d_j x_ij <= Y_i,   x_ij in {0, 1}

    B, the `bonus`, is the worth of a GPU in use.

    The linear program has at most one fractional job per type. These jobs are dropped, and the free GPUs are then handed
    out where a GPU costs least, always to the smallest c_ij / d_j that fits. If the result costs more than `CLOSE` above
    the linear program, the `settle` jobs for which the choice matters least are decided again: by enumerating all ways
    to divide what the others leave, if these are few enough, or else by a small whole-number program.
    """
    effort = effort or Effort()
    cells = _cells(c, runs, d, Y, held, bonus)
    relaxed = _relax(cells, effort.iterations)
    if relaxed is None:
        return cells.refill(np.full(len(d), NO_TYPE)), "greedy"
    sure = cells.grant(np.full(len(d), NO_TYPE), relaxed.x)
    best = cells.refill(sure.copy())
    close = CLOSE * float(np.abs(cells.cost) @ cells.granted(best))
    if cells.worth(best) - relaxed.objective <= close:
        return best, "rounded"
    open_jobs = np.ones(len(d), dtype=np.bool_)
    if not effort.exact:
        open_jobs[np.argsort(_regret(cells, relaxed), kind="stable")[effort.settle :]] = False
    tried = _settled(cells, np.where(open_jobs, NO_TYPE, sure), open_jobs, effort.nodes, close / 2)
    if tried is None or cells.worth(tried) >= cells.worth(best):
        return best, "rounded"
    return tried, "exact" if effort.exact else "settled"


@dataclass(frozen=True, slots=True)
class _GrantCells:
    """The (job, type) pairs that may be granted."""

    jobs: IntArray  # x
    types: IntArray  # x
    cost: FloatArray  # x
    d: IntArray  # j
    Y: IntArray  # i
    bonus: float  # B

    @property
    def price(self) -> FloatArray:
        """x  c - B d: the cost of each cell in the programs."""
        return np.asarray(self.cost - self.bonus * self.d[self.jobs])

    def prices(self) -> FloatArray:
        """j,i  the same, infinite where a job cannot run."""
        prices = np.full((len(self.d), len(self.Y)), np.inf)
        prices[self.jobs, self.types] = self.price
        return prices

    def part(self, open_jobs: BoolArray, Y: IntArray) -> tuple[_GrantCells, BoolArray]:
        """The cells of the open jobs, renumbered from 0, with Y GPUs; and which of all cells these are."""
        mine = open_jobs[self.jobs]
        row = np.cumsum(open_jobs) - 1  # of an open job
        jobs, types, cost = row[self.jobs[mine]], self.types[mine], self.cost[mine]
        return _GrantCells(jobs, types, cost, self.d[open_jobs], Y, self.bonus), mine

    def program(self, whole: bool = False) -> LinearProgram:
        """Rows: one per job, one per type."""
        cells, rows = len(self.cost), len(self.d) + len(self.Y)
        return LinearProgram(
            cost=self.price,
            low=np.zeros(cells),
            high=np.ones(cells),
            row_low=np.full(rows, -np.inf),
            row_high=np.concatenate((np.ones(len(self.d)), self.Y.astype(np.float64))),
            start=np.arange(0, 2 * cells + 1, 2),
            index=np.column_stack((self.jobs, len(self.d) + self.types)).ravel(),
            value=np.column_stack((np.ones(cells), self.d[self.jobs])).ravel().astype(np.float64),
            whole=np.ones(cells, dtype=np.bool_) if whole else None,
        )

    def grant(self, type_of: IntArray, x: FloatArray) -> IntArray:
        sure = x > WHOLE
        type_of[self.jobs[sure]] = self.types[sure]
        return type_of

    def granted(self, type_of: IntArray) -> FloatArray:
        """x  0 or 1."""
        return np.asarray(type_of[self.jobs] == self.types, dtype=np.float64)

    def worth(self, type_of: IntArray) -> float:
        return float(self.price @ self.granted(type_of))

    def free(self, type_of: IntArray) -> IntArray:
        """i  GPUs."""
        ran = type_of >= 0
        return self.Y - np.bincount(type_of[ran], self.d[ran], len(self.Y)).astype(np.int64)

    def refill(self, type_of: IntArray) -> IntArray:
        """Grant free GPUs to jobs without any, by increasing c / d, until nothing fits; ties go to the earlier job and type."""
        free = self.free(type_of)
        could = np.flatnonzero((type_of[self.jobs] < 0) & (self.d[self.jobs] <= free[self.types]))
        could = could[np.argsort(self.price[could] / self.d[self.jobs[could]], kind="stable")]
        jobs, room = self.jobs[could], free.tolist()
        for j, i, width in np.stack((jobs, self.types[could], self.d[jobs])).T.tolist():
            if room[i] >= width and type_of[j] < 0:
                type_of[j] = i
                room[i] -= width
        return type_of


def _cells(c: FloatArray, runs: BoolArray, d: IntArray, Y: IntArray, held: IntArray, bonus: float) -> _GrantCells:
    """The cells of a round. Of two equal choices, the type that a job holds is the cheaper one."""
    jobs, types = np.nonzero(runs)
    cost = c[jobs, types] - STAY * (held[jobs] == types)
    return _GrantCells(jobs, types, cost, d, Y, bonus)


@dataclass(frozen=True, slots=True)
class _Relaxed:
    """The linear program's optimum, where a job may be granted in part."""

    x: FloatArray  # cells
    objective: float
    alone: FloatArray  # j  dual of the job's row
    price: FloatArray  # i  dual of the type's row


def _relax(cells: _GrantCells, iterations: int) -> _Relaxed | None:
    width, count = cells.d[cells.jobs].astype(np.float64), len(cells.jobs)
    program = ChoiceProgram(
        job=cells.jobs,
        cost=cells.price,
        start=np.arange(count + 1),
        row=cells.types,
        amount=width,
        low=np.full(len(cells.Y), -np.inf),
        high=cells.Y.astype(np.float64),
    )
    chosen = choose(program, Limit(iterations=iterations))
    if chosen is None:
        return None
    alone = np.zeros(len(cells.d))
    np.minimum.at(alone, cells.jobs, program.net(chosen.price))
    return _Relaxed(chosen.x, chosen.objective, alone, chosen.price)


def _regret(cells: _GrantCells, relaxed: _Relaxed) -> FloatArray:
    """j  how much more the job's second-best choice costs than its best, at the prices of the program."""
    choice = np.full((len(cells.d), len(cells.Y) + 1), np.inf)  # j,i+1  the last: no GPUs
    choice[:, -1] = -relaxed.alone
    width = cells.d[cells.jobs]
    choice[cells.jobs, cells.types] = cells.price - relaxed.alone[cells.jobs] - relaxed.price[cells.types] * width
    choice.partition(1, axis=1)
    return np.asarray(choice[:, 1] - choice[:, 0])


def _settled(cells: _GrantCells, sure: IntArray, open_jobs: BoolArray, nodes: int, close: float) -> IntArray | None:
    """The best types of the open jobs on what the others leave, then a refill; None if the solver ran out of nodes.

    The solver may stop when its solution is `close` to its bound.
    """
    free, at = cells.free(sure), np.flatnonzero(open_jobs)
    if few_ways(len(at), free):
        sure[at] = best_division(cells.prices()[at], cells.d[at], free)
        return cells.refill(sure)
    part, mine = cells.part(open_jobs, free)
    per_gpu = max(cells.bonus, 1.0 + float((np.abs(part.cost) / part.d[part.jobs]).max(initial=0.0)))
    gap = close / (per_gpu * max(int(part.Y.sum()), 1))  # the objective is about per_gpu times the GPUs
    outcome = solve(part.program(whole=True), Limit(nodes=nodes), gap=gap)
    if not isinstance(outcome, Optimal | TimeLimit) or outcome.x is None:
        return None
    x = np.zeros(len(cells.cost))
    x[mine] = outcome.x
    return cells.refill(cells.grant(sure, x))
