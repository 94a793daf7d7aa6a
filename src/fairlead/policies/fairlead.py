"""Our own policy: short jobs first, with guards for late jobs and a first claim for tenants that are owed GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from fairlead.model.allocation import Answer, Grants, Level
from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.model.outcomes import Terms
from fairlead.model.view import View
from fairlead.numerics.division import NO_TYPE
from fairlead.numerics.fairness import normalise
from fairlead.numerics.gittins import gittins_time
from fairlead.numerics.metrics import expected_run_s, isolated_rate
from fairlead.placement.moves import held_by, joined
from fairlead.policies.fairlead_claims import TenantClaims, assign_with_claims, next_credit
from fairlead.policies.policy import Knows, RoundPolicy
from fairlead.policies.ranges import Number, Ranges

ENDED = 128  # jobs whose lengths are remembered
ENOUGH = 8  # ended jobs of a model; with fewer, all models count
TRIAL_S = 60.0  # to measure a new model on a type


@dataclass(frozen=True, slots=True, eq=False)
class FairleadMemory:
    """What the next round needs to know about this one. Jobs are identified by their key, tenants by their number."""

    now_s: float
    job: IntArray  # j  ascending
    model: IntArray  # j
    tenant: IntArray  # j
    type_of: IntArray  # j  type that it was granted, -1: none
    gpus: IntArray  # j  GPUs that it was granted
    relative: FloatArray  # j  speed there / on its fastest type
    attained_gpu_s: FloatArray  # j
    progress_s: FloatArray  # j  what it has done, in seconds on its fastest type
    crowd_s: FloatArray  # j  active jobs x seconds since it arrived
    available: FloatArray  # t  A
    wants: BoolArray  # u,t
    credit: FloatArray  # u,t  c
    ended_model: IntArray  # e  of jobs that have ended, the oldest first
    ended_s: FloatArray  # e  their lengths, in seconds on their fastest types


def fairlead(
    view: View,
    memory: FairleadMemory | None,
    *,
    balance: float = 0.5,
    kappa: float = 2.0,
    guard: float = 0.95,
    lr: float = 1.0,
    over: float = 3.0,
    tail: float = 1.0,
    stay: float = 0.05,
    idle: float = 0.3,
) -> tuple[Grants, FairleadMemory]:
    """A round is worth most to jobs that end soon and to jobs that are about to be late; tenants have first claims.

        max  sum_jt  worth_j (1 - w_jt - m_jt) x_jt    s.t.  sum_t x_jt <= 1,   sum_j d_j x_jt <= m_t,   x_jt in {0, 1},
             every claim of a tenant on a type is served, as far as its gangs fit (`fairlead_claims`)

        worth_j = d_j (k_j / n + kappa g_j + tail c_j)
        k_j     = place of the job by its remaining volume d_j r_j, n for the smallest; d_j is its width
        r_j     = remaining seconds on its fastest type; for a job of unknown length its 1 / G (`numerics/gittins.py`)
        g_j     = max{ u_j,  L_j / limit,  guard } - guard, relative to 1 - guard: how urgent it is
        u_j     = (age + r_j + a round) / (time alone on 1 / n' of every type): the least finish-time ratio that it can
                  reach if it loses this round
        L_j     = (wait + a round if it does not run) / expected run time,    limit = max{lr, over x mean L}
        c_j     = max{0, r_j / max{V, max_i r_i / 2} - 1}, where V is the time in which the whole cluster would do all
                  that is left: a job of which more remains decides when everything ends
        w_jt    = min{1 - v_jt, (1 / v_jt - 1) r_j / round}: by how many rounds the job ends later if it spends this one
                  on type t and not on its fastest type, v_jt = speed on the type / on the fastest
        m_jt    = restart / round + `stay` if it moves there

    A round that the job in place k gains lets k jobs end earlier, so k_j / n is what it adds to the mean completion
    time. n' is the mean number of active jobs over the job's life if the crowd stays. `balance` is the one knob:
    tenants may lag by h = 1 + 2 (1 - balance) / balance rounds of their slices before they claim, so that they lag
    least at 1 and never claim at 0. `idle` is the worth of a GPU in use.

    No job starves: a job that waits has u_j >= age_j / T_j, where T_j is its time alone among n' jobs, so its worth
    per GPU of its fastest type is at least kappa (age_j / T_j - guard) / (1 - guard), which grows without end, while
    that of a job that has just arrived or runs at its fair speed is bounded. While jobs that arrive have u <= U and
    L <= U limit, it has the most worth per GPU there once

        age_j > T_j (guard + (1 - guard) ((1 + tail) / kappa + (U - guard)^+ / (1 - guard))).
    """
    now = _look(view, memory)
    worth = _worth(view, now, kappa, guard, lr, over, tail)
    cost, runs = _costs(view, now, worth, stay), _runs(view)
    pinned = np.zeros(view.jobs, dtype=np.bool_) if view.pinned is None else view.pinned
    kept = held_by(view, np.flatnonzero(pinned))
    free = view.capacity - np.bincount(kept.types, kept.gpus, len(view.capacity)).astype(np.int64)
    claims = _claims(view, now, balance)
    held = np.zeros(claims.amount.shape)
    np.add.at(held, (view.tenant[kept.jobs], kept.types), kept.gpus)
    chosen = assign_with_claims(
        cost, runs & ~pinned[:, None], view.width, free, view.held_type, claims.less(held), idle
    )
    type_of = chosen.type_of
    order = np.flatnonzero(type_of >= 0)
    order = order[np.lexsort((cost[order, type_of[order]] / view.width[order], chosen.first[order] < 0))]
    grants = joined(kept, Grants(order, type_of[order], view.width[order]))  # after pins, claims are first
    terms = Terms(("remaining", "urgency"), np.column_stack((now.left_s, now.urgency)))
    answer = Answer(holds_until_s=view.now_s, solver=chosen.solver, terms=terms)
    available = chosen.available(claims, held, view.width, view.capacity)
    return Grants(grants.jobs, grants.types, grants.gpus, answer), _remember(view, now, grants, available)


@dataclass(slots=True)
class _FairleadRound:
    """What the costs of a round are computed from."""

    best: FloatArray  # j  samples/s on the fastest type
    progress_s: FloatArray  # j
    left_s: FloatArray  # j  r
    total_s: FloatArray  # j  length on the fastest type, or the best guess at it
    crowd_s: FloatArray  # j
    slices: FloatArray  # u,t  s
    credit: FloatArray  # u,t  c
    ended_model: IntArray  # e
    ended_s: FloatArray  # e
    urgency: FloatArray  # j


def _look(view: View, memory: FairleadMemory | None) -> _FairleadRound:
    """The jobs, their remaining times and the ledger, brought up to now."""
    best = np.where(view.capacity > 0, view.ideal_rate, 0.0).max(axis=1, initial=0.0)
    best = np.where(best > 0, best, np.maximum(view.ideal_rate.max(axis=1, initial=0.0), 1e-300))  # j
    age_s = view.now_s - view.arrival_s
    progress_s, crowd_s = np.zeros(view.jobs), age_s * view.jobs
    ended_model, ended_s = np.empty(0, dtype=np.int64), np.empty(0)
    if memory is not None:
        ended_model, ended_s = _endings(view, memory)
        known, at = _places(view.job, memory.job)
        passed_s = view.now_s - memory.now_s
        worked_s = np.maximum(view.attained_gpu_s[known] - memory.attained_gpu_s[at], 0.0) / view.width[known]
        progress_s[known] = memory.progress_s[at] + worked_s * memory.relative[at]
        crowd_s[known] = memory.crowd_s[at] + len(memory.job) * passed_s
    if view.done is not None:
        progress_s = view.done / best
    guess_s = _guesses(view, progress_s, ended_model, ended_s)
    left_s = guess_s
    if view.total is not None:
        left_s = np.where(np.isnan(view.total), guess_s, np.maximum(view.total / best - progress_s, 1.0))
    slices = _slices(view)
    credit = _credits(view, memory, slices)
    return _FairleadRound(
        best, progress_s, left_s, progress_s + left_s, crowd_s, slices, credit, ended_model, ended_s, np.zeros(0)
    )


def _guesses(view: View, progress_s: FloatArray, ended_model: IntArray, ended_s: FloatArray) -> FloatArray:
    """j  1 / G of every job whose length nobody declared; zeros if all are declared."""
    guess_s = np.zeros(view.jobs)
    unknown = np.ones(view.jobs, dtype=np.bool_) if view.total is None else np.isnan(view.total)
    if not unknown.any():
        return guess_s
    for model in np.unique(view.model[unknown]).tolist():
        rows = np.flatnonzero(unknown & (view.model == model))
        own = ended_s[ended_model == model]
        guess_s[rows] = gittins_time(progress_s[rows], own if len(own) >= ENOUGH else ended_s)
    return guess_s


def _worth(
    view: View, now: _FairleadRound, kappa: float, guard: float, lr: float, over: float, tail: float
) -> FloatArray:
    """j  What a round at the reference width on the fastest type is worth; see `fairlead`."""
    n = view.jobs
    if not n:
        now.urgency = np.zeros(0)
        return np.zeros(0)
    at = np.maximum(_finish_ratio(view, now), _latency(view, now, lr, over))
    now.urgency = (np.maximum(at, guard) - guard) / (1.0 - guard)
    place = np.empty(n)
    place[np.argsort(view.width * now.left_s, kind="stable")] = np.arange(n, 0, -1)
    whole = (view.ideal_rate * view.capacity).sum(axis=1)  # j  samples/s on all GPUs of the cluster
    work = now.left_s * now.best * view.width
    V = float(np.divide(work, whole, out=np.zeros(n), where=whole > 0).sum())
    last = np.maximum(now.left_s / max(V, 0.5 * float(now.left_s.max()), 1e-9) - 1.0, 0.0)  # j  c
    return np.asarray(view.width * (place / n + kappa * now.urgency + tail * last))


def _costs(view: View, now: _FairleadRound, worth: FloatArray, stay: float) -> FloatArray:
    """j,t  The negative worth of a round; see `fairlead`."""
    moves = (view.held_type >= 0)[:, None] & (view.held_type[:, None] != np.arange(len(view.capacity)))
    lost = np.where(moves, (view.restart_s / view.round_s)[:, None] + stay, 0.0)
    return np.asarray(-worth[:, None] * (1.0 - _delay(view, now) - lost))


def _finish_ratio(view: View, now: _FairleadRound) -> FloatArray:
    """j  u"""
    age_s = view.now_s - view.arrival_s
    crowd = (now.crowd_s + view.jobs * now.left_s) / np.maximum(age_s + now.left_s, 1e-9)  # j  n'
    crowd = crowd * view.weight.sum() / (view.jobs * view.weight)
    alone = isolated_rate(view.ideal_rate, view.width, view.capacity, crowd)  # j  samples/s
    alone_s = now.total_s * now.best / np.maximum(alone, 1e-300)
    return np.asarray((age_s + now.left_s + view.round_s) / np.maximum(alone_s, 1e-9))


def _latency(view: View, now: _FairleadRound, lr: float, over: float) -> FloatArray:
    """j  L / limit"""
    run_s = np.maximum(expected_run_s(now.total_s * now.best, view.ideal_rate, view.cluster.capacity), 1e-9)
    late = (view.wait_s + np.where(view.held_gpus > 0, 0.0, view.round_s)) / run_s
    return np.asarray(late / max(lr, over * float(late.mean())))


def _delay(view: View, now: _FairleadRound) -> FloatArray:
    """j,t  w; 1 where the job cannot run."""
    v = view.rate / now.best[:, None]
    rest = np.divide(1.0, v, out=np.full_like(v, np.inf), where=v > 0) - 1.0
    return np.asarray(np.minimum(1.0 - v, rest * (now.left_s / view.round_s)[:, None]))


def _runs(view: View) -> BoolArray:
    """j,t  Whether a job could run on a type that had no other job."""
    return np.asarray((view.rate > 0) & (view.capacity >= view.width[:, None]))


def _slices(view: View) -> FloatArray:
    """u,t  GPUs of a tenant's private slice; 0 for tenants without active jobs."""
    users = max(len(view.tenant_weight), int(view.tenant.max(initial=-1)) + 1)
    weight = np.ones(users)
    weight[: len(view.tenant_weight)] = view.tenant_weight
    weight[np.bincount(view.tenant, minlength=users) == 0] = 0.0
    return np.asarray(weight[:, None] / max(float(weight.sum()), 1e-300) * view.capacity)


def _claims(view: View, now: _FairleadRound, balance: float) -> TenantClaims:
    if balance <= 0 or np.count_nonzero(now.slices.sum(axis=1)) < 2:
        return TenantClaims(view.tenant, np.zeros(now.slices.shape), np.zeros(now.slices.shape))
    return TenantClaims.of(now.credit, now.slices, 1.0 + 2.0 * (1.0 - balance) / balance, view.tenant)


def _credits(view: View, memory: FairleadMemory | None, slices: FloatArray) -> FloatArray:
    """u,t  The ledger, brought up to now: see `fairlead_claims`."""
    credit = np.zeros(slices.shape)
    if memory is None or memory.credit.shape[1] != slices.shape[1]:
        return credit
    users = len(memory.credit)
    credit[:users] = memory.credit
    wants = np.zeros(slices.shape, dtype=np.bool_)
    wants[: len(memory.wants)] = memory.wants
    worth = np.zeros(slices.shape)
    np.add.at(worth, view.tenant, normalise(view.ideal_rate / view.width[:, None]))
    widest = np.where(view.rate > 0, view.width[:, None], 0).max(axis=0, initial=0)  # t  d
    rounds = (view.now_s - memory.now_s) / view.round_s
    held = _held(view, memory, slices.shape)
    return next_credit(credit, slices, memory.available, held, wants, rounds, worth, widest)


def _held(view: View, memory: FairleadMemory, shape: tuple[int, ...]) -> FloatArray:
    """u,t  GPU-rounds that tenants have held since the last decision; a job that has ended pays for its round."""
    held = np.zeros(shape)
    gpu_s = memory.gpus * (view.now_s - memory.now_s)  # j  of the memory
    known, at = _places(view.job, memory.job)
    gpu_s[at] = np.maximum(view.attained_gpu_s[known] - memory.attained_gpu_s[at], 0.0)
    had = memory.type_of >= 0
    np.add.at(held, (memory.tenant[had], memory.type_of[had]), gpu_s[had] / view.round_s)
    return held


def _endings(view: View, memory: FairleadMemory) -> tuple[IntArray, FloatArray]:
    """The models and lengths of the last jobs that ended; a job that ran when it was last seen ended in between."""
    gone = np.flatnonzero(~np.isin(memory.job, view.job))
    ran_s = np.where(memory.type_of[gone] >= 0, 0.5 * (view.now_s - memory.now_s) * memory.relative[gone], 0.0)
    length_s = memory.progress_s[gone] + ran_s
    models = np.concatenate((memory.ended_model, memory.model[gone][length_s > 0]))
    return models[-ENDED:], np.concatenate((memory.ended_s, length_s[length_s > 0]))[-ENDED:]


def _remember(view: View, now: _FairleadRound, grants: Grants, available: FloatArray) -> FairleadMemory:
    type_of, gpus = np.full(view.jobs, NO_TYPE), np.zeros(view.jobs, dtype=np.int64)
    type_of[grants.jobs] = grants.types
    np.add.at(gpus, grants.jobs, grants.gpus)
    wants, waits = np.zeros(now.slices.shape, dtype=np.bool_), type_of < 0
    np.logical_or.at(wants, view.tenant[waits], _runs(view)[waits])
    at = np.maximum(type_of, 0)
    relative = np.where(type_of >= 0, view.rate[np.arange(view.jobs), at] / now.best, 0.0) if view.jobs else np.zeros(0)
    return FairleadMemory(
        view.now_s,
        view.job,
        view.model,
        view.tenant,
        type_of,
        gpus,
        relative,
        view.attained_gpu_s,
        now.progress_s,
        now.crowd_s,
        available,
        wants,
        now.credit,
        now.ended_model,
        now.ended_s,
    )


def _places(job: IntArray, known: IntArray) -> tuple[IntArray, IntArray]:
    """The jobs that are in `known`, and their positions there."""
    if not known.size or not job.size:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    at = np.minimum(np.searchsorted(known, job), len(known) - 1)
    same = np.flatnonzero(known[at] == job)
    return same, at[same]


_RANGES: Ranges = {
    "balance": Number(0.0, 1.0),
    "kappa": Number(0.0, 1e6),
    "guard": Number(0.0, 0.99),
    "lr": Number(1e-3, 1e6),
    "over": Number(0.0, 1e6),
    "tail": Number(0.0, 1e6),
    "stay": Number(0.0, 1e3),
    "idle": Number(0.0, 1e6),
}
_policy = partial(
    RoundPolicy,
    paper="ours",
    level=Level.GRANTS,
    allocate=fairlead,
    remembers=(FairleadMemory,),
    ranges=_RANGES,
    trial_s=TRIAL_S,
)

POLICIES = (
    _policy(
        name="fairlead",
        summary="Short jobs first, with guards for late jobs and a first claim for tenants that are owed GPUs.",
        knows=frozenset({Knows.LENGTHS}),
    ),
    _policy(
        name="fairlead-blind",
        summary="The same without job lengths, which are learnt from jobs that have ended.",
    ),
)
