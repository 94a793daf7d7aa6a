"""One round as a program with work conservation: the cheapest of the rounds that use as many GPUs as any round can."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.numerics.branching import branch
from fairlead.numerics.division import NO_TYPE, best_division, few_ways
from fairlead.numerics.one_choice import ChoiceProgram, choose
from fairlead.numerics.packing import Packing, counted_program, most_gpus, whole_vertex
from fairlead.numerics.solve import Infeasible, Limit, LinearProgram, Optimal, TimeLimit, solve

ITERATIONS = 1_000_000  # of one solve
NODES = 50  # of one whole-number solve
BRANCHES = 30  # linear programs of one exact solve; the programs of a cluster with 100 GPUs need at most 7
OPEN = 12  # jobs per type that are decided again at first
GAP = 3e-4  # of the sum of |c| over all grants: a round this close to the cheapest is good enough
EXACT = 1e-9  # of the same: costs this close are equal
WHOLE = 1e-6  # GPUs: a linear program that is off by less uses exactly K
STAY = 1e-6  # rounds: the preference for the type that a job holds; above the solver's tolerance of 1e-7


def assign_conserving(
    c: FloatArray,
    runs: BoolArray,
    d: IntArray,
    Y: IntArray,
    held: IntArray,
    gap: float = GAP,
    nodes: int = NODES,
    iterations: int = ITERATIONS,
) -> tuple[IntArray, str]:
    """j  type of each job or -1, and the name of the method that decided it.

        min  sum_j sum_i c_ij x_ij     s.t.  sum_i x_ij <= 1,   sum_j d_j x_ij <= Y_i,   x_ij in {0, 1}
                                             sum_j sum_i d_j x_ij >= K,  the most that any such x uses

    Let v be the optimum of the linear program, and the regret of a job how much more its second-best choice costs than its
    best at the program's prices. A round in which a job does not get its best choice costs at least v + its regret. So the
    jobs with the smallest regret are decided again on what the best choices of the others leave; if the result costs at
    most v + the regret of all those others, no round is cheaper. If not, more jobs are decided again. A result that is
    proven to cost at most `gap` times the sum of |c| more than the cheapest round is good enough. K holds in any case.
    The method is "optimal" if no round is cheaper, "close" if one may be cheaper within the gap, "limited" if the solver
    ran out of `nodes`, and "packed" for a round that only uses all K GPUs, because the linear program was stopped.
    """
    packing = most_gpus(runs, d, Y)
    jobs, types = np.nonzero(runs)
    cost = c[jobs, types] - STAY * (held[jobs] == types)
    cells = _PricedCells(jobs, types, cost, d, np.asarray(packing.reach), packing.gpus)
    relaxed = _relax(cells, iterations)
    if relaxed is None:
        return _packed(cells, packing), "packed"
    return _decided(cells, packing, relaxed, gap, nodes)


@dataclass(frozen=True, slots=True, eq=False)
class _PricedCells:
    """The (job, type) pairs that may be granted, and the rows of the program."""

    jobs: IntArray  # x
    types: IntArray  # x
    cost: FloatArray  # x
    d: IntArray  # j
    Y: IntArray  # i
    K: int

    def program(self, bonus: float) -> ChoiceProgram:
        """With c - bonus d as costs. Shared rows: the types and, without a bonus, K."""
        cells, width, shared = len(self.jobs), self.d[self.jobs].astype(np.float64), 1 if bonus else 2
        rows = [self.types] if bonus else [self.types, np.full(cells, len(self.Y))]
        return ChoiceProgram(
            job=self.jobs,
            cost=self.cost - bonus * width,
            start=np.arange(0, shared * cells + 1, shared),
            row=np.column_stack(rows).ravel(),
            amount=np.repeat(width, shared),
            low=np.full(len(self.Y), -np.inf) if bonus else np.append(np.full(len(self.Y), -np.inf), self.K),
            high=self.Y.astype(np.float64) if bonus else np.append(self.Y, np.inf),
        )

    def table(self) -> FloatArray:
        """j,i  costs, infinite where a job cannot run."""
        costs = np.full((len(self.d), len(self.Y)), np.inf)
        costs[self.jobs, self.types] = self.cost
        return costs

    def total(self, type_of: IntArray) -> float:
        return float(self.cost @ (type_of[self.jobs] == self.types))

    def free(self, type_of: IntArray) -> IntArray:
        """i  GPUs."""
        ran = type_of >= 0
        return self.Y - np.bincount(type_of[ran], self.d[ran], len(self.Y)).astype(np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class _Prices:
    """The optimum of the linear program, and how much more each choice of a job costs than its best, at its prices."""

    value: float
    above: FloatArray  # j,i+1  the last: no GPUs; infinite where a job cannot run


def _relax(cells: _PricedCells, iterations: int) -> _Prices | None:
    """The linear program, in which K is a row; None if it was stopped.

    A bonus above any cost of a GPU usually fills K GPUs too, is solved faster, and then has the same optima.
    """
    above_all = 1.0 + float((np.abs(cells.cost) / cells.d[cells.jobs]).max(initial=0.0))
    prices, used = _solved(cells, above_all, iterations)
    if prices is None or abs(used - cells.K) <= WHOLE:
        return prices
    return _solved(cells, 0.0, iterations)[0]


def _solved(cells: _PricedCells, bonus: float, iterations: int) -> tuple[_Prices | None, float]:
    """The optimum with a bonus, or without one and with K as a row; and how many GPUs it uses."""
    chosen = choose(cells.program(bonus), Limit(iterations=iterations))
    if chosen is None:
        return None, 0.0
    width, types = cells.d[cells.jobs], len(cells.Y)
    price = chosen.price[:types] + (bonus or chosen.price[types])  # i  of a GPU
    above = np.full((len(cells.d), types + 1), np.inf)
    above[cells.jobs, cells.types] = cells.cost - price[cells.types] * width
    above[:, -1] = 0.0
    above -= above.min(axis=1, keepdims=True)
    return _Prices(float(cells.cost @ chosen.x), above), float(chosen.x @ width)


def _decided(cells: _PricedCells, packing: Packing, prices: _Prices, gap: float, nodes: int) -> tuple[IntArray, str]:
    """The cheapest round, by deciding again as many jobs as it takes."""
    regret = np.sort(prices.above, axis=1)[:, 1] if len(cells.Y) else np.full(len(cells.d), np.inf)  # j
    choice = np.argmin(prices.above, axis=1)
    sure = np.where(choice < len(cells.Y), choice, NO_TYPE)
    size = float(np.abs(cells.cost) @ (sure[cells.jobs] == cells.types))  # about the sum of |c| over all grants
    order, many = np.sort(regret), OPEN * len(cells.Y)
    while True:
        limit = float(order[many - 1]) if many < len(order) else np.inf
        open_jobs = regret <= limit
        best = _again(
            cells, np.where(open_jobs, NO_TYPE, sure), open_jobs, prices.above <= limit, gap * size / 2, nodes
        )
        if best is None:
            if np.isinf(limit):
                return _packed(cells, packing), "packed"
            many *= 2
            continue
        beyond = cells.total(best.type_of) - prices.value
        if beyond <= limit + EXACT * size and best.within <= gap * size:
            return best.type_of, "close" if best.within else "optimal"
        if beyond <= gap * size:
            return best.type_of, "close"
        if np.isinf(best.within):
            return best.type_of, "limited"
        many = min(max(int(np.searchsorted(order, beyond, side="right")), many + 1), 2 * many)


@dataclass(frozen=True, slots=True, eq=False)
class _Again:
    type_of: IntArray  # j
    within: float  # it costs at most this much more than the best that the open jobs permit


def _again(
    cells: _PricedCells, sure: IntArray, open_jobs: BoolArray, choices: BoolArray, close: float, nodes: int
) -> _Again | None:
    """`sure` with the best types of the open jobs on what is free; None if they cannot bring the round to K GPUs.

    A program may stop when its solution is `close` to its bound.
    """
    free = cells.free(sure)
    if (free < 0).any():
        return None
    at = np.flatnonzero(open_jobs)
    need = cells.K - int((cells.Y - free).sum())
    price, d = np.where(choices[at, :-1], cells.table()[at], np.inf), cells.d[at]
    if few_ways(len(at), free):
        decided: _Again | None = _listed(price, d, free)
    else:
        decided = _programmed(price, d, free, need, close, nodes)
    if decided is None or int(d[decided.type_of >= 0].sum()) < need:
        return None
    type_of = sure.copy()
    type_of[at] = decided.type_of
    return _Again(type_of, decided.within)


def _listed(price: FloatArray, d: IntArray, free: IntArray) -> _Again:
    """By enumeration, with a bonus per GPU above what the costs of two rounds can differ by: GPUs first, then costs."""
    known = np.where(np.isfinite(price), price, 0.0)
    span = known.max(axis=1, initial=0.0) - known.min(axis=1, initial=0.0)  # j  leaving a job out costs 0
    bonus = 1.0 + float(span.sum())
    return _Again(best_division(price - bonus * d[:, None], d, free), within=0.0)


def _programmed(price: FloatArray, d: IntArray, free: IntArray, need: int, close: float, nodes: int) -> _Again | None:
    """By a whole-number program, in which only the numbers of jobs by width and type have to be whole.

    Its widest jobs come last and settle the others, so it is branched on first; a general search follows if that takes long.
    """
    jobs, types = np.nonzero(np.isfinite(price))
    cost = price[jobs, types]
    program = counted_program(jobs, types, cost, d, np.ones(len(d), dtype=np.int64), free, need)
    exact = branch(program, BRANCHES)
    if isinstance(exact, Optimal):
        return _Again(_granted(program, exact.x, jobs, types, len(d)), within=0.0)
    if isinstance(exact, Infeasible):
        return None
    most = float(np.abs(np.where(np.isfinite(price), price, 0.0)).max(axis=1, initial=0.0).sum())  # of |objective|
    outcome = solve(program, Limit(nodes=nodes), gap=close / max(most, 1e-300))
    if not isinstance(outcome, Optimal | TimeLimit) or outcome.x is None:
        return None
    within = close if isinstance(outcome, Optimal) else np.inf
    return _Again(_granted(program, outcome.x, jobs, types, len(d)), within)


def _granted(program: LinearProgram, x: FloatArray, jobs: IntArray, types: IntArray, many: int) -> IntArray:
    """j  the types of a solution, whose first columns are the pairs of `jobs` and `types`."""
    granted = whole_vertex(program, x)[: len(jobs)] > 0.5
    type_of = np.full(many, NO_TYPE)
    type_of[jobs[granted]] = types[granted]
    return type_of


def _packed(cells: _PricedCells, packing: Packing) -> IntArray:
    """The packing of K itself: of every kind the jobs that are cheapest on a type, type by type."""
    costs, type_of = cells.table(), np.full(len(cells.d), NO_TYPE)
    for k, i in zip(*np.nonzero(packing.count), strict=True):
        waiting = np.flatnonzero((packing.kind == k) & (type_of < 0))
        cheapest = waiting[np.argsort(costs[waiting, i], kind="stable")]
        type_of[cheapest[: packing.count[k, i]]] = i
    return type_of
