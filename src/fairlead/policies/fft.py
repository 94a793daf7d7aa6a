"""FFT: in every round the cheapest assignment of jobs to GPU types, with compensation for late jobs (ICS 2025)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fairlead.model.allocation import Answer, Grants, Level
from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.model.outcomes import Terms
from fairlead.model.view import View
from fairlead.numerics.conserving import GAP, assign_conserving
from fairlead.numerics.conserving import NODES as CONSERVING_NODES
from fairlead.numerics.division import NO_TYPE
from fairlead.numerics.gangs import ITERATIONS, NODES, SETTLE, Effort, assign
from fairlead.numerics.metrics import isolated_rate
from fairlead.policies.policy import Knows, RoundPolicy
from fairlead.policies.ranges import FLAG, Number, Ranges, Whole, Word

CROWDS = ("now", "mean")  # the |A| of tau
TRIAL_S = 60.0  # to measure a new model on a type; the paper measures before it schedules, and says only what it costs
PRIVATE_CLUSTERS = ("share", "one-type")


@dataclass(frozen=True, slots=True, eq=False)
class FFTMemory:
    """What the next round needs to know about this one. Jobs are identified by their key."""

    now_s: float
    job: IntArray  # j  ascending
    unit: FloatArray  # j  samples
    rho: FloatArray  # j
    done: FloatArray  # j  units of work
    fair: FloatArray  # j  W / (tau - a), units per round
    mu: FloatArray  # j
    last_type: IntArray  # j  -1: it has not run yet
    crowd: FloatArray  # j  active jobs x rounds since the job arrived


def fft(
    view: View,
    memory: FFTMemory | None,
    *,
    kappa: float = 1.0,
    work: str = "total",
    crowd: str = "now",
    alone: str = "share",
    gap: float = GAP,
    nodes: int = CONSERVING_NODES,
    iterations: int = ITERATIONS,
) -> tuple[Grants, FFTMemory]:
    """The cheapest round, in which a job is cheaper the further it lags behind its fair progress.

        min  sum_j sum_i [ phi_ij + s_ij - kappa rho_j theta_ij ] x_ij      x_ij in {0, 1}                  (6)
             sum_i x_ij <= 1  every job j,    sum_j d_j x_ij <= Y_i  every type i                       (1a, 1b)
             sum_ij d_j x_ij >= K,  the most GPUs that any such x uses                                        (7)

        phi_ij     = (t - a_j) theta_ij / W_j  +  d_j W_j / theta_ij                                        (3)
        s_ij       = restart time in rounds if type i is not the one that the job last ran on, else 0
        rho_j(t+1) = max{ 0, rho_j(t) + mu_j(t) (W_j / (tau_j - a_j) - progress) },   rho_j(a_j) = 0         (5)
        mu_j(t)    = (t - a_j) / (tau_j - a_j)

    Times are in rounds. The unit of work is one round on the slowest type that the job can use, at its width d_j;
    theta_ij are units per round. tau_j is when the job would end on its isolated share: 1/|A| of every type. A type
    without enough memory has rate 0 and no variable. `kappa` scales the compensation (1: as in the paper, 0: none). `work`
    is the W of (3): "total" as printed, or "remaining", of which the text speaks. `crowd` is the |A| of tau: "now" as
    printed, or "mean" over the job's life. `alone` is the private cluster, which the paper leaves open: the "share" of all
    types, or "one-type", the best single one. A round costs at most `gap` times the sum of |c| over its grants more than the
    cheapest one (0: nothing), unless a program needs more than `nodes` nodes.

    Departs: the unit is not in the paper, which does not specify the weight of rho. Progress is what was achieved, after
    restarts and losses, and a decision inside a round counts as its part of a round. Weights scale the isolated share.
    Remaining work does not fall below one unit (or W_j, if less), because
    otherwise a job would become expensive just before its end. A job of unknown length is assumed to be half done, with at
    least one unit to go.
    """
    now = _look(view, memory, crowd, alone)
    left = now.total if work == "total" else np.maximum(now.total - now.done, np.minimum(now.total, 1.0))
    c = phi(now.age, now.theta, left, view.width) + now.s - kappa * now.rho[:, None] * now.theta
    chosen = assign_conserving(c, now.runs, view.width, view.capacity, view.held_type, gap, nodes, iterations)
    return _granted(view, now, c, *chosen)


def fft_ranked(
    view: View,
    memory: FFTMemory | None,
    *,
    kappa: float = 1.0,
    idle: float = 0.3,
    crowd: str = "mean",
    alone: str = "share",
    settle: int = SETTLE,
    exact: bool = False,
    nodes: int = NODES,
    iterations: int = ITERATIONS,
) -> tuple[Grants, FFTMemory]:
    """FFT's program with costs of our own (`ranked_costs`), which go beyond the paper.

    The printed (3) gives fast GPUs to the longest running jobs, and (5) compensates jobs that will meet their fair time
    anyway; decisions/0021 has the measurements. `idle` is what an idle GPU costs, in rounds of the first job, instead of (7);
    no GPU stays idle that a job fits on. The linear program is rounded; if rounding is expensive, `settle` jobs are decided
    again by a program of up to `nodes` nodes; with `exact`, all jobs. The other parameters are those of `fft`.
    """
    now = _look(view, memory, crowd, alone)
    theta = np.where(now.runs, now.theta, 0.0)
    c = ranked_costs(now.age, theta, now.total, now.done, view.width, now.fair, now.s, kappa)
    effort = Effort(settle, exact, nodes, iterations)
    return _granted(view, now, c, *assign(c, now.runs, view.width, view.capacity, view.held_type, idle, effort))


@dataclass(frozen=True, slots=True)
class _FFTRound:
    """What both kinds of costs are computed from. Times are in rounds, work in units."""

    runs: BoolArray  # j,i  whether the job can run there
    unit: FloatArray  # j  samples
    theta: FloatArray  # j,i  units per round
    total: FloatArray  # j  W
    done: FloatArray  # j
    age: FloatArray  # j  t - a
    fair: FloatArray  # j  W / (tau - a), units per round
    s: FloatArray  # j,i  cost of a move
    rho: FloatArray  # j
    last_type: IntArray  # j
    crowd: FloatArray  # j


def _look(view: View, memory: FFTMemory | None, crowd: str, alone: str) -> _FFTRound:
    assert view.total is not None, "fft declares that it knows lengths"
    assert view.done is not None
    runs = (view.rate > 0) & (view.capacity >= view.width[:, None])  # j,i
    unit = unit_of_work(view)  # j  samples
    theta = view.rate * view.round_s / unit[:, None]  # j,i  units per round
    done = view.done / unit  # j
    total = np.maximum(np.where(np.isnan(view.total), 2.0 * view.done + unit, view.total) / unit, 1e-9)  # j  W
    age = (view.now_s - view.arrival_s) / view.round_s  # j  t - a
    past = _recall(view, memory, unit, done, age)
    active = np.where((age > 0) & (crowd == "mean"), past.crowd / np.maximum(age, 1e-300), view.jobs)  # j  |A|
    active = active * view.weight.sum() / (view.jobs * view.weight) if view.jobs else active
    ideal = np.where(runs, view.ideal_rate * view.round_s / unit[:, None], 0.0)  # j,i  units per round
    fair = fair_progress(ideal, view.width, view.capacity, active, alone)  # j
    moves = (past.last_type >= 0)[:, None] & (past.last_type[:, None] != np.arange(len(view.capacity)))  # j,i
    s = np.where(moves, (view.restart_s / view.round_s)[:, None], 0.0)  # j,i  rounds
    return _FFTRound(runs, unit, theta, total, done, age, fair, s, past.rho, past.last_type, past.crowd)


def _granted(view: View, now: _FFTRound, c: FloatArray, type_of: IntArray, how: str) -> tuple[Grants, FFTMemory]:
    """The grants of a round with costs c (j,i), and the memory for the next round."""
    jobs = np.flatnonzero(type_of >= 0)
    jobs = jobs[np.argsort(c[jobs, type_of[jobs]] / view.width[jobs], kind="stable")]  # the cheapest GPUs first
    mu = now.age * now.fair / now.total  # j
    kept = FFTMemory(view.now_s, view.job, now.unit, now.rho, now.done, now.fair, mu, now.last_type, now.crowd)
    cheapest = np.where(now.runs, c, np.inf).min(axis=1, initial=np.inf)  # j
    terms = Terms(("cost", "compensation"), np.column_stack((cheapest, now.rho)))
    answer = Answer(holds_until_s=view.now_s, solver=how, terms=terms)
    return Grants(jobs, type_of[jobs], view.width[jobs], answer), kept


def unit_of_work(view: View) -> FloatArray:
    """j  samples that the job processes in one round on the slowest type that it can use."""
    slowest = np.where(view.ideal_rate > 0, view.ideal_rate, np.inf).min(axis=1, initial=np.inf)
    return np.asarray(np.where(np.isfinite(slowest), slowest, 1.0) * view.round_s)


def phi(age: FloatArray, theta: FloatArray, W: FloatArray, d: IntArray) -> FloatArray:
    """j,i  this round's part of the job's fractional completion time, plus its GPU volume; 0 where it cannot run."""
    runs = theta > 0
    volume = np.divide((d * W)[:, None], theta, out=np.zeros_like(theta), where=runs)
    return np.asarray((age / W)[:, None] * theta + volume)


def ranked_costs(
    age: FloatArray,
    theta: FloatArray,
    W: FloatArray,
    done: FloatArray,
    d: IntArray,
    fair: FloatArray,
    s: FloatArray,
    kappa: float,
) -> FloatArray:
    """j,i  the negative worth of a round's progress: short jobs first, and jobs that are late.

        c_ij = - d_j ( ((n - k_j) / n)^2  +  kappa max{0, u_j - 1} ) (theta_ij / best_j - s_ij)
        r_j  = (W_j - done_j) / best_j          remaining rounds on the fastest type, best_j = max_i theta_ij
        k_j  = place of the job by its remaining volume d_j r_j, from 0
        u_j  = (t - a_j + r_j) / (tau_j - a_j)   the least finish-time fairness ratio that it can still reach

    In the form of (6): phi_ij = - d_j ((n - k_j) / n)^2 theta_ij / best_j, rho_j = d_j max{0, u_j - 1} / best_j, and a
    move costs the progress that it takes. A round on a fast type is worth most to the shortest job, because all others
    wait for it. There is no compensation while a job can still end within its fair time; leaving out a job that waits
    longer becomes more and more expensive, so that no job starves.
    """
    n = len(age)
    best = np.maximum(theta.max(axis=1, initial=0.0), 1e-300)  # j
    r = np.maximum(W - done, 0.0) / best  # j  rounds
    rank = np.empty(n)  # j  n - k
    rank[np.argsort(d * r, kind="stable")] = np.arange(n, 0, -1)
    late = np.maximum((age + r) * fair / W - 1.0, 0.0)  # j  u - 1
    worth = d * ((rank / max(n, 1)) ** 2 + kappa * late)  # j
    return np.asarray(-worth[:, None] * (theta / best[:, None] - s))


def fair_progress(theta: FloatArray, d: IntArray, Y: IntArray, active: FloatArray, alone: str) -> FloatArray:
    """j  W / (tau - a): units per round on the isolated share, sum_i f_i theta_ij, f_i = Y_i / (|A| d_j), sum_i f_i <= 1.

    "one-type" stays on the best type, as if no job ever moved: max_i min(1, f_i) theta_ij with f_i not scaled.
    """
    if alone == "share":
        return isolated_rate(theta, d, Y, active)
    f = Y / (active * d)[:, None]  # j,i
    return np.asarray((np.minimum(f, 1.0) * theta).max(axis=1, initial=0.0))


@dataclass(frozen=True, slots=True)
class _Recalled:
    rho: FloatArray  # j
    last_type: IntArray  # j
    crowd: FloatArray  # j


def _recall(view: View, memory: FFTMemory | None, unit: FloatArray, done: FloatArray, age: FloatArray) -> _Recalled:
    """The memory of the jobs in this view, with rho updated to now; a new job starts from zero.

    Measured rates may have changed the unit of work since; what is remembered is converted to the new unit.
    """
    rho, crowd = np.zeros(view.jobs), age * view.jobs
    last_type = np.maximum(view.held_type, NO_TYPE)
    if memory is None or not memory.job.size or not view.jobs:
        return _Recalled(rho, last_type, crowd)
    at = np.minimum(np.searchsorted(memory.job, view.job), len(memory.job) - 1)
    known = memory.job[at] == view.job
    at = at[known]
    passed = (view.now_s - memory.now_s) / view.round_s
    new = memory.unit[at] / unit[known]  # new units in an old one
    lag = memory.fair[at] * new * passed - (done[known] - memory.done[at] * new)  # units
    rho[known] = np.maximum(0.0, memory.rho[at] * new + memory.mu[at] * lag)
    last_type[known] = np.where(last_type[known] >= 0, last_type[known], memory.last_type[at])
    crowd[known] = memory.crowd[at] + len(memory.job) * passed
    return _Recalled(rho, last_type, crowd)


_RANGES: Ranges = {  # of both
    "kappa": Number(0.0, 1e6),
    "crowd": Word(*CROWDS),
    "alone": Word(*PRIVATE_CLUSTERS),
    "nodes": Whole(1, 10**6),
    "iterations": Whole(1, 10**9),
}


POLICIES = (
    RoundPolicy(
        name="fft",
        summary="In every round the cheapest assignment of jobs to types; a job behind its fair progress gets cheaper.",
        paper="FFT (ICS 2025)",
        level=Level.GRANTS,
        allocate=fft,
        remembers=(FFTMemory,),
        ranges={"work": Word("total", "remaining"), "gap": Number(0.0, 1.0), **_RANGES},
        knows=frozenset({Knows.LENGTHS}),
        trial_s=TRIAL_S,
    ),
    RoundPolicy(
        name="fft-ranked",
        summary="FFT's program with other costs: a round is worth most to short jobs and to jobs that will be late.",
        paper="ours, going beyond FFT (ICS 2025)",
        level=Level.GRANTS,
        allocate=fft_ranked,
        remembers=(FFTMemory,),
        ranges={"idle": Number(0.0, 1e6), "settle": Whole(0, 10_000), "exact": FLAG, **_RANGES},
        knows=frozenset({Knows.LENGTHS}),
        trial_s=TRIAL_S,
    ),
)
