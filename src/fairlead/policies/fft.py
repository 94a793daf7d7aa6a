"""FFT: every round the cheapest assignment of jobs to GPU types, with compensation for those that lag (ICS 2025)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fairlead.model.allocation import Answer, Grants
from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.model.errors import InputError
from fairlead.model.view import View
from fairlead.numerics.metrics import isolated_rate
from fairlead.numerics.solve import TOLERANCE, Limit, LinearProgram, Optimal, TimeLimit, solve

ITERATIONS = 1_000_000  # of one solve
NODES = 50  # of one whole-number solve
CLOSE = 0.003  # of the sum of |c| over what is granted: a rounded answer this close to its bound is good enough
SETTLE = 40  # jobs; more take longer and gain little (1000 GPUs of 8 types, 4000 jobs: at most 0.2 % above the bound)
ENOUGH = 2.0  # times the GPUs there are: jobs of so many are looked at first
WHOLE = 0.999  # a job that the linear program grants this much of a type is granted it
STAY = 1e-6  # rounds: of two equal choices, the type that a job holds; above the solver's tolerance of 1e-7
NO_TYPE = -1


@dataclass(frozen=True, slots=True, eq=False)
class FFTMemory:
    """What the next round needs to know of this one. Jobs are found again by their key."""

    now_s: float
    job: IntArray  # j  ascending
    rho: FloatArray  # j
    done: FloatArray  # j  units of work
    fair: FloatArray  # j  W / (tau - a), units a round
    mu: FloatArray  # j
    last_type: IntArray  # j  -1 = has not run yet
    crowd: FloatArray  # j  active jobs x rounds since the job arrived


def fft(
    view: View,
    memory: FFTMemory | None,
    *,
    kappa: float = 1.0,
    work: str = "total",
    crowd: str = "now",
    alone: str = "share",
    slower: str = "volume",
    settle: int = SETTLE,
    exact: bool = False,
    nodes: int = NODES,
    iterations: int = ITERATIONS,
) -> tuple[Grants, FFTMemory]:
    """The cheapest round, where a job is the cheaper the more it lags behind its fair progress.

        min  sum_j sum_i [ phi_ij + s_ij - kappa rho_j theta_ij ] x_ij      x_ij in {0, 1}                  (6)
             sum_i x_ij <= 1  every job j,    sum_j d_j x_ij <= Y_i  every type i,    no GPU idle while a job fits

        phi_ij     = (t - a_j) theta_ij / W_j  +  d_j W_j / theta_ij                                        (3)
        s_ij       = restart time in rounds if type i is not the one that the job last ran on, else 0
        rho_j(t+1) = max{ 0, rho_j(t) + mu_j(t) (W_j / (tau_j - a_j) - progress) },   rho_j(a_j) = 0         (5)
        mu_j(t)    = (t - a_j) / (tau_j - a_j)

    Times are in rounds. The unit of work is one round on the slowest type that the job can use, at its width d_j;
    theta_ij are units a round. tau_j is when the job would end on its isolated share: 1/|A| of every type. A type
    without the memory has rate 0 and no variable.

    `kappa` scales the compensation (1 = the paper, 0 = none). `work` is the W of phi: "total" or "remaining". `crowd`
    is the |A| of tau: "now", or "mean" over the job's life. `alone` is the private cluster: the "share" of all types, or
    "one-type", the best single one. `slower` is what a slow type costs: the "volume" of (3), or "relative" to the job's
    fastest type (see `phi_relative`), ours: (3) gives fast GPUs to the longest of the jobs that run. The linear program is rounded, and where rounding is dear `settle` jobs are decided
    anew by a whole-number program of up to `nodes` nodes; with `exact`, all jobs.

    Departs: the unit is not in the paper, which leaves the weight of rho open. Progress is what was achieved, after
    restarts and losses, and a decision inside a round counts its part of a round. Weights scale the isolated share.
    Work conservation is a bonus B d_j per grant and a refill instead of a hard row, for which whole-number solvers often
    find no point at all. Remaining work does not fall below one unit (or W_j, if less), or a job would become dear just
    before its end. A job of unknown length is taken for half done, with at least one unit to go.
    """
    _check(work, crowd, alone, slower)
    assert view.total is not None, "fft declares that it knows lengths"
    assert view.done is not None
    runs = (view.rate > 0) & (view.capacity >= view.width[:, None])  # j,i
    unit = unit_of_work(view)  # j  samples
    theta = view.rate * view.round_s / unit[:, None]  # j,i  units a round
    done = view.done / unit  # j
    total = np.maximum(np.where(np.isnan(view.total), 2.0 * view.done + unit, view.total) / unit, 1e-9)  # j  W
    age = (view.now_s - view.arrival_s) / view.round_s  # j  t - a
    now = _recall(view, memory, done, age)
    active = np.where((age > 0) & (crowd == "mean"), now.crowd / np.maximum(age, 1e-300), view.jobs)  # j  |A|
    active = active * view.weight.sum() / (view.jobs * view.weight) if view.jobs else active
    fair = fair_progress(np.where(runs, theta, 0.0), view.width, view.capacity, active, alone)  # j
    left = total if work == "total" else np.maximum(total - done, np.minimum(total, 1.0))
    moves = (now.last_type >= 0)[:, None] & (now.last_type[:, None] != np.arange(len(view.capacity)))  # j,i
    s = np.where(moves, (view.restart_s / view.round_s)[:, None], 0.0)  # j,i  rounds
    price = phi if slower == "volume" else phi_relative
    c = price(age, theta, left, view.width) + s - kappa * now.rho[:, None] * theta
    effort = Effort(settle, exact, nodes, iterations)
    type_of, how = assign(c, runs, view.width, view.capacity, view.held_type, effort)
    jobs = np.flatnonzero(type_of >= 0)
    jobs = jobs[np.argsort(c[jobs, type_of[jobs]] / view.width[jobs], kind="stable")]  # the cheapest GPUs first
    kept = FFTMemory(view.now_s, view.job, now.rho, done, fair, age * fair / total, now.last_type, now.crowd)
    return Grants(jobs, type_of[jobs], view.width[jobs], Answer(holds_until_s=view.now_s, solver=how)), kept


def unit_of_work(view: View) -> FloatArray:
    """j  samples that the job makes in one round on the slowest type that it can use."""
    slowest = np.where(view.rate > 0, view.rate, np.inf).min(axis=1, initial=np.inf)
    return np.asarray(np.where(np.isfinite(slowest), slowest, 1.0) * view.round_s)


def phi(age: FloatArray, theta: FloatArray, W: FloatArray, d: IntArray) -> FloatArray:
    """j,i  this round's part of the job's fractional completion time, and its GPU volume; 0 where it cannot run."""
    runs = theta > 0
    volume = np.divide((d * W)[:, None], theta, out=np.zeros_like(theta), where=runs)
    return np.asarray((age / W)[:, None] * theta + volume)


def phi_relative(age: FloatArray, theta: FloatArray, W: FloatArray, d: IntArray) -> FloatArray:
    """j,i  the same with d (W / best + best / theta - 1) for the volume, best = max_i theta_ij.

    Who runs is decided by the volume on the fastest type, who runs where by how many times slower the job is there. In
    (3) a type that is half as fast costs a job the more the longer it is, so that short jobs get what is left.
    """
    best = theta.max(axis=1, keepdims=True, initial=1e-300)
    slower = np.divide(best, theta, out=np.ones_like(theta), where=theta > 0) - 1.0
    return np.asarray((age / W)[:, None] * theta + d[:, None] * (W[:, None] / best + slower))


def fair_progress(theta: FloatArray, d: IntArray, Y: IntArray, active: FloatArray, alone: str) -> FloatArray:
    """j  W / (tau - a): units a round on the isolated share, sum_i f_i theta_ij, f_i = Y_i / (|A| d_j), sum_i f_i <= 1.

    "one-type" stays on the best type, as if nothing were ever moved: max_i min(1, f_i) theta_ij with f_i not scaled.
    """
    if alone == "share":
        return isolated_rate(theta, d, Y, active)
    f = Y / (active * d)[:, None]  # j,i
    return np.asarray((np.minimum(f, 1.0) * theta).max(axis=1, initial=0.0))


@dataclass(frozen=True, slots=True)
class Effort:
    """How hard a round is thought about; counted, never timed."""

    settle: int = SETTLE  # jobs
    exact: bool = False
    nodes: int = NODES
    iterations: int = ITERATIONS


def assign(
    c: FloatArray, runs: BoolArray, d: IntArray, Y: IntArray, held: IntArray, effort: Effort | None = None
) -> tuple[IntArray, str]:
    """j  type of each job or -1, and how it was found.

    The linear program has at most one fractional job per type. These jobs are let go, and the GPUs that are free then go
    out one by one where a GPU costs least: to the smallest c_ij / d_j that fits. Where that costs more than `CLOSE` above
    the linear program, the `settle` jobs that it cares about least are settled by a small whole-number program.
    """
    effort = effort or Effort()
    cells = _cells(c, runs, d, Y, held)
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
class _Cells:
    """The (job, type) pairs that may be granted."""

    jobs: IntArray  # x
    types: IntArray  # x
    cost: FloatArray  # x
    d: IntArray  # j
    Y: IntArray  # i
    bonus: float  # B

    @property
    def price(self) -> FloatArray:
        """x  c - B d: what the programs add up."""
        return np.asarray(self.cost - self.bonus * self.d[self.jobs])

    def part(self, open_jobs: BoolArray, Y: IntArray, bonus: float) -> tuple[_Cells, BoolArray]:
        """The cells of some jobs, who are then numbered from 0, on what is left; and which cells these are."""
        mine = open_jobs[self.jobs]
        row = np.cumsum(open_jobs) - 1  # of an open job
        return _Cells(row[self.jobs[mine]], self.types[mine], self.cost[mine], self.d[open_jobs], Y, bonus), mine

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
        """Until nothing fits: free GPUs to jobs without any, by increasing c / d; ties to the earlier job and type."""
        free = self.free(type_of)
        could = np.flatnonzero((type_of[self.jobs] < 0) & (self.d[self.jobs] <= free[self.types]))
        could = could[np.argsort(self.price[could] / self.d[self.jobs[could]], kind="stable")]
        jobs, room = self.jobs[could], free.tolist()
        for j, i, width in np.stack((jobs, self.types[could], self.d[jobs])).T.tolist():
            if room[i] >= width and type_of[j] < 0:
                type_of[j] = i
                room[i] -= width
        return type_of


def _cells(c: FloatArray, runs: BoolArray, d: IntArray, Y: IntArray, held: IntArray) -> _Cells:
    """Of two equal choices the type that a job holds is the cheaper one."""
    jobs, types = np.nonzero(runs)
    cost = c[jobs, types] - STAY * (held[jobs] == types)
    return _Cells(jobs, types, cost, d, Y, _bonus(cost, d[jobs]))


def _bonus(cost: FloatArray, width: IntArray) -> float:
    """B: a GPU in use is worth more than any cell costs, so that none is left idle while a job fits."""
    return 1.0 + float((np.abs(cost) / width).max(initial=0.0))


@dataclass(frozen=True, slots=True)
class _Relaxed:
    """The linear program's optimum, where a job may be granted in part."""

    x: FloatArray  # cells
    objective: float
    alone: FloatArray  # j  dual of the job's row
    price: FloatArray  # i  dual of the type's row


def _relax(cells: _Cells, iterations: int) -> _Relaxed | None:
    """First among the jobs that are cheap per GPU, twice as many as fit; then with those that the prices call for.

    A job left out has a slack row, so it belongs in only where c - B d is below the price of its GPUs: when there is no
    such job, the optimum of the part is the optimum of all.
    """
    at_best = np.full(len(cells.d), np.inf)
    np.minimum.at(at_best, cells.jobs, cells.price / cells.d[cells.jobs])
    first = np.argsort(at_best, kind="stable")
    inside = np.zeros(len(cells.d), dtype=np.bool_)
    inside[first[: np.searchsorted(np.cumsum(cells.d[first]), ENOUGH * cells.Y.sum()) + 1]] = True
    while True:
        part, mine = cells.part(inside, cells.Y, cells.bonus)
        found = solve(part.program(), Limit(iterations=iterations))
        if not isinstance(found, Optimal):
            return None
        alone = np.zeros(len(cells.d))
        alone[inside] = found.row_dual[: len(part.d)]
        price = found.row_dual[len(part.d) :]
        wanted = cells.jobs[~mine & (cells.price < price[cells.types] * cells.d[cells.jobs] - TOLERANCE)]
        if not wanted.size:
            x = np.zeros(len(cells.cost))
            x[mine] = found.x
            return _Relaxed(x, found.objective, alone, price)
        inside[wanted] = True


def _regret(cells: _Cells, relaxed: _Relaxed) -> FloatArray:
    """j  how much the job's second best choice costs more than its best, at the prices of the program."""
    choice = np.full((len(cells.d), len(cells.Y) + 1), np.inf)  # j,i+1  the last: no GPUs
    choice[:, -1] = -relaxed.alone
    width = cells.d[cells.jobs]
    choice[cells.jobs, cells.types] = cells.price - relaxed.alone[cells.jobs] - relaxed.price[cells.types] * width
    choice.partition(1, axis=1)
    return np.asarray(choice[:, 1] - choice[:, 0])


def _settled(cells: _Cells, sure: IntArray, open_jobs: BoolArray, nodes: int, close: float) -> IntArray | None:
    """The best types of the open jobs on what the others leave, then a refill; None if none was found in time.

    The solver may stop when its answer is `close` to its bound.
    """
    mine = open_jobs[cells.jobs]
    # A bonus of their own: that of all jobs can be so large that the solver takes the costs for noise.
    bonus = _bonus(cells.cost[mine], cells.d[cells.jobs[mine]])
    part, mine = cells.part(open_jobs, cells.free(sure), bonus)
    gap = close / (bonus * max(int(part.Y.sum()), 1))  # the objective is about B times the GPUs
    found = solve(part.program(whole=True), Limit(nodes=nodes), gap=gap)
    if not isinstance(found, Optimal | TimeLimit) or found.x is None:
        return None
    x = np.zeros(len(cells.cost))
    x[mine] = found.x
    return cells.refill(cells.grant(sure, x))


@dataclass(frozen=True, slots=True)
class _Recalled:
    rho: FloatArray  # j
    last_type: IntArray  # j
    crowd: FloatArray  # j


def _recall(view: View, memory: FFTMemory | None, done: FloatArray, age: FloatArray) -> _Recalled:
    """What is remembered of the jobs of this view, with rho brought up to now; a new job starts from nothing."""
    rho, crowd = np.zeros(view.jobs), age * view.jobs
    last_type = np.maximum(view.held_type, NO_TYPE)
    if memory is None or not memory.job.size or not view.jobs:
        return _Recalled(rho, last_type, crowd)
    at = np.minimum(np.searchsorted(memory.job, view.job), len(memory.job) - 1)
    known = memory.job[at] == view.job
    at = at[known]
    passed = (view.now_s - memory.now_s) / view.round_s
    lag = memory.fair[at] * passed - (done[known] - memory.done[at])  # units
    rho[known] = np.maximum(0.0, memory.rho[at] + memory.mu[at] * lag)
    last_type[known] = np.where(last_type[known] >= 0, last_type[known], memory.last_type[at])
    crowd[known] = memory.crowd[at] + len(memory.job) * passed
    return _Recalled(rho, last_type, crowd)


def _check(work: str, crowd: str, alone: str, slower: str) -> None:
    for name, value, wanted in (
        ("work", work, ("total", "remaining")),
        ("crowd", crowd, ("now", "mean")),
        ("alone", alone, ("share", "one-type")),
        ("slower", slower, ("volume", "relative")),
    ):
        if value not in wanted:
            raise InputError(f'fft: {name} is "{value}"; wanted {" or ".join(wanted)}')
