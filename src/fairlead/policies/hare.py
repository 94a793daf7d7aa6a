"""Hare, offline: which job's tasks go first, and on which GPU (Chen, Li, Wu, Guo; HPDC 2022, IEEE TCC 2024).

Orders only; the task-level simulator runs them. Letters: p_n, s_n shortest task and synchronisation time, K_n tasks,
f_n = 1 / sum_m 1/T[n,m] (fluid time per task), w_n weight.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.tasks import Instance, Rule, TaskPlan
from fairlead.numerics.task_bounds import Midpoints, pooled
from fairlead.policies.gpu_choice import MILD_ADVANTAGE, comparative, priced
from fairlead.policies.policy import Knows, TaskPolicy

SIGMA = 1.3
STRENGTHS = (0.25, 0.5, 0.75)  # of comparative advantage
MOST_JOBS = 300  # whose mid-points are computed
ADVANTAGE = 0.5  # the one that is used where only one is run; chosen on seeds that no report uses


def plan(given: Instance, *, most_jobs: int = MOST_JOBS) -> TaskPlan:
    """Offline: all jobs, their lengths and arrivals are known. The whole portfolio, or beyond `most_jobs` its rules by
    remaining work alone: the programs behind the others grow faster than the workload.
    """
    few = given.jobs <= most_jobs
    return TaskPlan(tuple(candidates(given) if few else by_remaining_work(given)))


def replan(given: Instance, *, sigma: float = SIGMA, advantage: float = MILD_ADVANTAGE) -> TaskPlan:
    """Online: lengths are known, arrivals are not. After every event the shortest remaining work goes first."""
    return TaskPlan((("srpt", weighted_srpt(given, sigma=sigma, advantage=advantage)),))


def faithful(given: Instance, midpoints: Midpoints) -> IntArray:
    """The list of Algorithm 1 as printed: rounds by H = x^ + max_m T/2. Run it on the GPU that is free first.

    Departs: x^ = M - p/2 comes from the pooled program and not from the paper's quadratic one, whose inequality (9) is
    printed for the full set of tasks only and whose Lemma 2 needs every prefix.
    """
    known = given.known
    job = np.repeat(np.arange(given.jobs), given.rounds)
    slowest_s = known.task_s[:, known.gpus > 0].max(axis=1)
    return _listed(job, midpoints.by_round + ((slowest_s - known.fastest_s) / 2)[job])


def bounded(given: Instance, midpoints: Midpoints) -> IntArray:
    """Rounds by their mid-points M. With earliest finish, sum w C <= 3 alpha LP where the mid-points are exact.

    Departs: the printed bound is alpha (2 + alpha); ours has another proof, docs/decisions/0030-hare-bound.md.
    """
    return _listed(np.repeat(np.arange(given.jobs), given.rounds), midpoints.by_round)


def weighted_srpt(given: Instance, *, sigma: float = SIGMA, advantage: float = 0.0) -> Rule:
    """key = tasks not yet started * f_n / w_n. Knows lengths, and nothing of jobs that have not arrived."""
    per_task = given.known.fluid_s / given.known.weight
    return Rule(given.tasks * per_task, -per_task, sigma=sigma, cost_s=comparative(given.known, advantage))


def by_midpoints(given: Instance, by_round: FloatArray, *, sigma: float = SIGMA) -> Rule:
    """The same order as a list has, but event-driven: a hole is filled by whoever can use it."""
    nothing = np.zeros(given.jobs)
    return Rule(nothing, nothing, by_round=by_round, sigma=sigma)


def candidates(given: Instance, midpoints: Midpoints | None = None) -> Iterator[tuple[str, Rule | IntArray]]:
    """The portfolio: whoever runs them all and keeps the best keeps the bound of the first as well."""
    middle = pooled(given) if midpoints is None else midpoints
    fluid = fluid_midpoints(given)
    yield "pooled list", bounded(given, middle)
    yield "pooled", by_midpoints(given, middle.by_round)
    yield "fluid list", _listed(np.repeat(np.arange(given.jobs), given.rounds), fluid)
    yield "fluid", by_midpoints(given, fluid)
    yield from by_remaining_work(given)
    for strength in STRENGTHS:
        prices = priced(given.known, given.tasks, strength)
        yield f"srpt, prices {strength:g}", replace(weighted_srpt(given), cost_s=prices)
        yield f"pooled, prices {strength:g}", replace(by_midpoints(given, middle.by_round), cost_s=prices)


def by_remaining_work(given: Instance) -> Iterator[tuple[str, Rule]]:
    yield "srpt", weighted_srpt(given)
    yield "srpt, never dearer by waiting", weighted_srpt(given, sigma=1.0)
    for strength in STRENGTHS:
        yield f"srpt, advantage {strength:g}", weighted_srpt(given, advantage=strength)


def fluid_midpoints(given: Instance) -> FloatArray:
    """All rounds: when half of each is done on one pooled machine under preemptive weighted SRPT.

    A job has K_n f_n seconds of work, and its rate is at most k_n f_n / (p_n + s_n): its critical path.
    """
    known, N = given.known, given.jobs
    left = given.tasks * known.fluid_s  # n  seconds of the whole machine
    size = left.copy()
    cap = np.minimum(1.0, known.scale * known.fluid_s / (known.fastest_s + known.quickest_sync_s))
    times: list[list[float]] = [[float(a)] for a in known.arrival_s]
    done: list[list[float]] = [[0.0] for _ in range(N)]
    now_s, arrived = 0.0, 0
    active: list[int] = []
    while active or arrived < N:
        if not active:
            now_s = max(now_s, float(known.arrival_s[arrived]))
        while arrived < N and known.arrival_s[arrived] <= now_s:
            active.append(arrived)
            arrived += 1
        jobs = np.array(active)
        jobs = jobs[np.lexsort((jobs, left[jobs] / known.weight[jobs]))]
        before = np.cumsum(cap[jobs]) - cap[jobs]
        rate = np.clip(1.0 - before, 0.0, cap[jobs])
        served = rate > 0
        step_s = float((left[jobs[served]] / rate[served]).min())
        if arrived < N:
            step_s = min(step_s, float(known.arrival_s[arrived]) - now_s)
        now_s += step_s
        left[jobs] -= rate * step_s
        for n in jobs[served].tolist():
            times[n].append(now_s)
            done[n].append(float(1.0 - left[n] / size[n]))
        active = [n for n in active if left[n] > 1e-12 * size[n]]
    parts = [
        np.interp((np.arange(given.rounds[n]) + 0.5) / given.rounds[n], np.array(done[n]), np.array(times[n]))
        for n in range(N)
    ]
    return np.concatenate(parts) if parts else np.empty(0)


def _listed(job: IntArray, key: FloatArray) -> IntArray:
    """Jobs of all rounds in the order of their keys. Keys ascend within a job, so its r-th mention is round r."""
    return job[np.argsort(key, kind="stable")]


POLICIES = (
    TaskPolicy(
        name="hare",
        summary="Single tasks of training rounds on mixed GPUs; the best of a portfolio of plans, made in advance.",
        paper="Hare (HPDC 2022)",
        plan=plan,
        knows=frozenset({Knows.LENGTHS, Knows.ARRIVALS}),
    ),
    TaskPolicy(
        name="hare-online",
        summary="Single tasks on mixed GPUs; the shortest remaining work first, planned anew after every event.",
        paper="Hare (HPDC 2022), without knowledge of arrivals",
        plan=replan,
        knows=frozenset({Knows.LENGTHS}),
    ),
)
