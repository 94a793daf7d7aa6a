"""Gavel's objectives at 2,048 jobs on 3 types: CPU seconds of one thread, beside Gavel's own and the plain program.

`python -m benchmarks.baselines` prints the table. Arrays of rates go in, shares come out; nothing is kept from one solve to
the next, except in the row that says so.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy starts: a pool of threads would spin

import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import numpy as np

from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.numerics.isolated import isolated_shares
from fairlead.numerics.levels import Gangs, fill_water, raise_in_step, raise_in_step_then_total
from fairlead.numerics.maxmin import MaxMinSolver
from fairlead.numerics.solve import LinearProgram, Optimal, solve
from fairlead.policies.gavel_ftf import finish_time_shares

JOBS, TYPES, REPEAT = 2048, 3, 5
SEEDS = range(5)
TENANTS = 20
T = TypeVar("T")


def run() -> None:
    """Every row is printed as it is measured, the best of five; level and total together for the worst of five seeds."""
    print(f"{'':48} {'cpu_s':>8} {'target':>7} {'Gavel':>7}")
    rate, width, capacity = instance(JOBS, capacity=(256, 256, 256))
    gangs = Gangs.of(rate, width, np.ones(JOBS), capacity)
    _cpu(lambda: MaxMinSolver(TYPES).solve(*grouped(rate[:20], width[:20], capacity)), repeat=1)  # import of the solver
    for gpus in (256, 512, 768, 2048):
        _max_min_rows(rate, width, gpus, plain=gpus == 256)
    of = np.random.default_rng(1).integers(0, 60, JOBS)
    few = grouped(rate[of], width[of], capacity)
    _, grouped_s = _cpu(lambda: MaxMinSolver(TYPES).solve(*few))
    _row(f"max-min, {len(few[0])} kinds of jobs, cold", grouped_s)
    solver = MaxMinSolver(TYPES)
    solver.solve(*few)
    less = (*few[:3], few[3] - (np.arange(len(few[3])) == 0), few[4])
    _, warm_s = _cpu(lambda: solver.solve(*less), repeat=1)
    _row("  warm, one job leaves", warm_s)
    rng = np.random.default_rng(2)
    to_go_s, since_s = rng.lognormal(9.0, 1.5, JOBS), rng.uniform(0.0, 2e4, JOBS)
    alone = isolated_speed(gangs, width, capacity)
    none_s = np.zeros(JOBS)
    _, fresh_s = _cpu(lambda: finish_time_shares(gangs, to_go_s, none_s, none_s, alone))
    _row("finish-time fairness, all just arrived", fresh_s, 0.3, 11.0)
    _, later_s = _cpu(lambda: finish_time_shares(gangs, to_go_s, since_s, none_s, alone))
    _row("finish-time fairness, up to 5.6 h since arrival", later_s, 0.3, 11.0)
    _, bound_s = _cpu(lambda: finish_time_shares(gangs, to_go_s, since_s, 0.5 * since_s, alone))
    _row("  the same, half of that done", bound_s, 0.3, 11.0)
    _row("makespan", _cpu(lambda: makespan(gangs, to_go_s))[1])
    unit = np.asarray(gangs.capacity @ gangs.rate / gangs.width)
    _row("water filling", _cpu(lambda: fill_water(gangs, unit, lambda stopped: np.full(JOBS, 1.0 / JOBS)))[1])
    for gpus in (256, 768):
        many = Gangs.of(rate, width, np.ones(JOBS), np.full(TYPES, gpus))
        _row(f"over {TENANTS} tenants and their jobs, {TYPES} x {gpus} GPUs", _cpu(partial(hierarchical, many))[1])


def _max_min_rows(rate: FloatArray, width: IntArray, gpus: int, *, plain: bool) -> None:
    """All rates different. On few GPUs every job is held down; on more some could have more than the level."""
    ones, capacity = np.ones(JOBS, dtype=np.int64), np.full(TYPES, gpus)
    scale, gangs = value_scale(rate, width, capacity), Gangs.of(rate, width, ones, capacity)
    full = rate.max(axis=1) * scale * width
    print(f"max-min, all rates different, {TYPES} x {gpus} GPUs, cold")
    raised, level_s = _cpu(lambda: raise_in_step(gangs, 1.0 / full))
    _row("  the level, as Gavel does", level_s, 0.03, 0.068)
    _row("  the level, then the total", max(_total_s(gpus, seed) for seed in SEEDS), 0.03)
    if plain and raised is not None:
        level, plain_s = _cpu(lambda: plain_max_min(gangs, rate, scale), repeat=1)
        _row("  the level as a plain program in HiGHS", plain_s)
        print(f"    levels {raised.level:.9f} and {level:.9f}")


def _total_s(gpus: int, seed: int) -> float:
    rate, width, capacity = instance(JOBS, (gpus,) * TYPES, seed)
    scale, ones = value_scale(rate, width, capacity), np.ones(JOBS, dtype=np.int64)
    return _cpu(lambda: MaxMinSolver(TYPES).solve(rate, scale, width, ones, capacity))[1]


def instance(jobs: int, capacity: tuple[int, ...], seed: int = 0) -> tuple[FloatArray, IntArray, IntArray]:
    """Rates j,t without two equal rows, widths as in Gavel's traces, and GPUs."""
    rng = np.random.default_rng(seed)
    rate = rng.uniform(1.0, 10.0, (jobs, len(capacity)))
    return rate, rng.choice([1, 2, 4, 8], jobs, p=[0.7, 0.1, 0.15, 0.05]), np.array(capacity)


def value_scale(rate: FloatArray, width: IntArray, capacity: IntArray) -> FloatArray:
    """j  1 / rate at the isolated share."""
    return np.asarray(1.0 / (rate * isolated_shares(rate > 0, width, capacity, np.ones(len(rate)))).sum(axis=1))


def isolated_speed(gangs: Gangs, width: IntArray, capacity: IntArray) -> FloatArray:
    alone = isolated_shares(gangs.rate.T > 0, width, capacity, np.ones(len(width)))
    return np.asarray((gangs.rate.T * alone).sum(axis=1) / width)


def grouped(
    rate: FloatArray, width: IntArray, capacity: IntArray
) -> tuple[FloatArray, FloatArray, IntArray, IntArray, IntArray]:
    """Equal jobs as one group each."""
    _, first, count = np.unique(np.column_stack((rate, width)), axis=0, return_index=True, return_counts=True)
    return rate[first], value_scale(rate, width, capacity)[first], width[first], count, capacity


def makespan(gangs: Gangs, to_go_s: FloatArray) -> FloatArray | None:
    raised = raise_in_step_then_total(gangs, to_go_s, 1.0 / to_go_s)
    return None if raised is None else gangs.shares(raised[1])


def hierarchical(gangs: Gangs) -> FloatArray | None:
    """Tenants of equal weight, fair inside; whoever is at full speed leaves its part to others of its tenant."""
    tenant = np.arange(JOBS) % TENANTS

    def weigh(stopped: BoolArray) -> FloatArray:
        rising = np.maximum(np.bincount(tenant, ~stopped, TENANTS), 1.0)
        return np.where(stopped, 0.0, 1.0 / rising[tenant] / TENANTS)

    return fill_water(gangs, np.asarray(gangs.capacity @ gangs.rate / gangs.width), weigh, inherit=True)


def plain_max_min(gangs: Gangs, rate: FloatArray, scale: FloatArray) -> float:
    """max z with a row for every job's value, one for its gang and one for every type, as it stands."""
    jobs, types = rate.shape
    cells = jobs * types
    job, kind = np.divmod(np.arange(cells), types)
    z = np.arange(jobs)
    outcome = solve(
        LinearProgram(
            cost=np.append(np.zeros(cells), -1.0),
            low=np.zeros(cells + 1),
            high=np.full(cells + 1, np.inf),
            row_low=np.concatenate((np.zeros(jobs), np.full(jobs + types, -np.inf))),
            row_high=np.concatenate((np.full(jobs, np.inf), gangs.width, gangs.capacity)),
            start=np.append(np.arange(0, 3 * cells + 1, 3), 3 * cells + jobs),
            index=np.concatenate((np.column_stack((job, jobs + job, 2 * jobs + kind)).ravel(), z)),
            value=np.concatenate(
                (
                    np.column_stack(((rate * scale[:, None]).ravel(), np.ones(cells), np.ones(cells))).ravel(),
                    np.full(jobs, -1.0),
                )
            ),
        )
    )
    assert isinstance(outcome, Optimal)
    return float(outcome.x[-1])


def _cpu(work: Callable[[], T], repeat: int = REPEAT) -> tuple[T, float]:
    least_s = np.inf
    for _ in range(repeat):
        start_s = time.process_time()
        result = work()
        least_s = min(least_s, time.process_time() - start_s)
    return result, float(least_s)


def _row(name: str, cpu_s: float, target_s: float | None = None, gavel_s: float | None = None) -> None:
    met = "" if target_s is None else " met" if cpu_s <= target_s else " MISSED"
    target, gavel = ("-" if value is None else f"{value:g}" for value in (target_s, gavel_s))
    print(f"{name:48} {cpu_s:8.4f} {target:>7} {gavel:>7}{met}", flush=True)


if __name__ == "__main__":
    run()
