"""Hare, offline: which job's tasks go first, and on which GPU (Chen, Li, Wu, Guo; HPDC 2022, IEEE TCC 2024).

This file only makes orders; the task-level simulator runs them. Letters: p_n, s_n shortest task and synchronisation
time, K_n tasks, f_n = 1 / sum_m 1/T[n,m] (fluid time per task), w_n weight.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.tasks import HasLengths, Instance, Rule, Sized, TaskPlan
from fairlead.numerics.task_bounds import Midpoints, pooled
from fairlead.policies.gpu_choice import MILD_ADVANTAGE, comparative, priced
from fairlead.policies.policy import Knows, TaskPolicy
from fairlead.policies.ranges import Number, Whole

SIGMA = 1.3
STRENGTHS = (0.25, 0.5, 0.75)  # of comparative advantage
MOST_JOBS = 300  # with more jobs, mid-points are not computed
ADVANTAGE = 0.5  # the strength if only one is run; chosen on seeds that no report uses


def plan(instance: Instance, *, most_jobs: int = MOST_JOBS) -> TaskPlan:
    """The offline plan: all jobs with their lengths and arrivals are known.

    It is the whole portfolio, or with more than `most_jobs` jobs only its rules by remaining work, because the programs
    behind the others grow faster than the workload.
    """
    few = instance.jobs <= most_jobs
    return TaskPlan(tuple(candidates(instance) if few else by_remaining_work(instance)))


def replan(jobs: Sized, *, sigma: float = SIGMA, advantage: float = MILD_ADVANTAGE) -> TaskPlan:
    """The online plan: lengths are known, arrivals are not. After every event, the shortest remaining work goes first."""
    return TaskPlan((("srpt", weighted_srpt(jobs, sigma=sigma, advantage=advantage)),))


def faithful(instance: Instance, midpoints: Midpoints) -> IntArray:
    """The list of Algorithm 1 as printed: rounds by H = x^ + max_m T/2, each run on the GPU that is free first.

    Departs: x^ = M - p/2 comes from the pooled program and not from the paper's quadratic one, whose inequality (9) is
    printed only for the full set of tasks, while its Lemma 2 needs every prefix.
    """
    known = instance.known
    job = np.repeat(np.arange(instance.jobs), instance.rounds)
    slowest_s = known.task_s[:, known.gpus > 0].max(axis=1)
    return _listed(job, midpoints.by_round + ((slowest_s - known.fastest_s) / 2)[job])


def bounded(instance: Instance, midpoints: Midpoints) -> IntArray:
    """Rounds by their mid-points M. With earliest finish, sum w C <= 3 alpha LP if the mid-points are exact.

    Departs: the printed bound is alpha (2 + alpha); ours has another proof, docs/decisions/0030-hare-bound.md.
    """
    return _listed(np.repeat(np.arange(instance.jobs), instance.rounds), midpoints.by_round)


def weighted_srpt(jobs: HasLengths, *, sigma: float = SIGMA, advantage: float = 0.0) -> Rule:
    """key = tasks not yet started * f_n / w_n. It knows lengths, and nothing about jobs that have not arrived."""
    per_task = jobs.known.fluid_s / jobs.known.weight
    return Rule(jobs.tasks * per_task, -per_task, sigma=sigma, cost_s=comparative(jobs.known, advantage))


def by_midpoints(instance: Instance, by_round: FloatArray, *, sigma: float = SIGMA) -> Rule:
    """The order of a list, but event-driven: any job that can use a gap fills it."""
    nothing = np.zeros(instance.jobs)
    return Rule(nothing, nothing, by_round=by_round, sigma=sigma)


def candidates(instance: Instance, midpoints: Midpoints | None = None) -> Iterator[tuple[str, Rule | IntArray]]:
    """The portfolio. The best of all candidates also satisfies the bound of the first."""
    middle = pooled(instance) if midpoints is None else midpoints
    fluid = fluid_midpoints(instance)
    yield "pooled list", bounded(instance, middle)
    yield "pooled", by_midpoints(instance, middle.by_round)
    yield "fluid list", _listed(np.repeat(np.arange(instance.jobs), instance.rounds), fluid)
    yield "fluid", by_midpoints(instance, fluid)
    yield from by_remaining_work(instance)
    for strength in STRENGTHS:
        prices = priced(instance.known, instance.tasks, strength)
        yield f"srpt, prices {strength:g}", replace(weighted_srpt(instance), cost_s=prices)
        yield f"pooled, prices {strength:g}", replace(by_midpoints(instance, middle.by_round), cost_s=prices)


def by_remaining_work(instance: Instance) -> Iterator[tuple[str, Rule]]:
    yield "srpt", weighted_srpt(instance)
    yield "srpt, sigma 1", weighted_srpt(instance, sigma=1.0)
    for strength in STRENGTHS:
        yield f"srpt, advantage {strength:g}", weighted_srpt(instance, advantage=strength)


def fluid_midpoints(instance: Instance) -> FloatArray:
    """For all rounds: when half of the round is done on one pooled machine under preemptive weighted SRPT.

    A job has K_n f_n seconds of work, and its rate is at most k_n f_n / (p_n + s_n): its critical path.
    """
    known, N = instance.known, instance.jobs
    left = instance.tasks * known.fluid_s  # n  seconds of the whole machine
    size = left.copy()
    cap = np.minimum(1.0, known.scale * known.fluid_s / (known.fastest_s + known.quickest_sync_s))
    times: list[list[float]] = [[float(a)] for a in instance.arrival_s]
    done: list[list[float]] = [[0.0] for _ in range(N)]
    now_s, arrived = 0.0, 0
    active: list[int] = []
    while active or arrived < N:
        if not active:
            now_s = max(now_s, float(instance.arrival_s[arrived]))
        while arrived < N and instance.arrival_s[arrived] <= now_s:
            active.append(arrived)
            arrived += 1
        jobs = np.array(active)
        jobs = jobs[np.lexsort((jobs, left[jobs] / known.weight[jobs]))]
        before = np.cumsum(cap[jobs]) - cap[jobs]
        rate = np.clip(1.0 - before, 0.0, cap[jobs])
        served = rate > 0
        step_s = float((left[jobs[served]] / rate[served]).min())
        if arrived < N:
            step_s = min(step_s, float(instance.arrival_s[arrived]) - now_s)
        now_s += step_s
        left[jobs] -= rate * step_s
        for n in jobs[served].tolist():
            times[n].append(now_s)
            done[n].append(float(1.0 - left[n] / size[n]))
        active = [n for n in active if left[n] > 1e-12 * size[n]]
    parts = [
        np.interp((np.arange(instance.rounds[n]) + 0.5) / instance.rounds[n], np.array(done[n]), np.array(times[n]))
        for n in range(N)
    ]
    return np.concatenate(parts) if parts else np.empty(0)


def _listed(job: IntArray, key: FloatArray) -> IntArray:
    """The jobs of all rounds in the order of their keys. Keys ascend within a job, so its r-th occurrence is round r."""
    return job[np.argsort(key, kind="stable")]


POLICIES = (
    TaskPolicy(
        name="hare",
        summary="Single tasks of training rounds on mixed GPUs; the best of a portfolio of plans, made in advance.",
        paper="Hare (HPDC 2022), with plans of our own instead of its Algorithm 1",
        plan=plan,
        ranges={"most_jobs": Whole(0, 10**6)},
        knows=frozenset({Knows.LENGTHS, Knows.ARRIVALS}),
    ),
    TaskPolicy(
        name="hare-online",
        summary="Single tasks on mixed GPUs; the shortest remaining work first, planned again after every event.",
        paper="ours, after Hare (HPDC 2022): without knowledge of arrivals",
        plan=replan,
        ranges={"sigma": Number(0.0, 1e6), "advantage": Number(0.0, 16.0)},
        knows=frozenset({Knows.LENGTHS}),
    ),
)
