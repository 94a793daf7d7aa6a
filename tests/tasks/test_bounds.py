"""Bounds: below every schedule and below the optimum, and the guarantee of the bounded list."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from task_instances import instances, optimum, total, toy

from fairlead.model.tasks import Instance, instance, weighted_completion_s
from fairlead.numerics.task_bounds import best_bound, critical_path, mean_busy_time, pooled
from fairlead.policies.hare import bounded, candidates
from fairlead.sim.tasks.schedules import best_of, run_list

ROUNDING = 1 + 1e-6


@given(instances(switching=False))
@settings(max_examples=60)
def test_the_bounded_list_is_within_three_alpha_of_the_pooled_program(case: Instance) -> None:
    middle = pooled(case)
    assert middle.exact
    for earliest_finish in (True, False):
        total_s = total(case, run_list(case, bounded(case, middle), earliest_finish=earliest_finish))
        assert total_s <= 3 * case.alpha * middle.bound * ROUNDING


@given(instances())
def test_no_schedule_is_below_a_bound(case: Instance) -> None:
    _, schedule = best_of(case, candidates(case))
    total_s = total(case, schedule) * ROUNDING
    assert critical_path(case) <= total_s
    assert pooled(case).bound <= total_s
    assert mean_busy_time(case) <= total_s
    assert mean_busy_time(case, until_s=float(schedule.end_s.max()), intervals=7) <= total_s


@given(instances(jobs=40))
@settings(max_examples=10)
def test_combining_rounds_keeps_the_pooled_program_a_bound(case: Instance) -> None:
    exact, coarse = pooled(case), pooled(case, most_blocks=1)
    assert coarse.bound <= exact.bound * ROUNDING
    assert len(coarse.by_round) == len(exact.by_round) == case.rounds.sum()


@pytest.mark.parametrize("seed", range(12))
def test_on_tiny_instances_the_bounds_are_below_the_optimum(seed: int) -> None:
    random = np.random.default_rng(seed)
    case = instance(
        arrival_s=random.uniform(0.0, 2.0, 3),
        rounds=random.integers(1, 3, 3),
        scale=random.integers(1, 3, 3),
        task_s=random.uniform(0.5, 3.0, (3, 2)),
        gpus=np.array([1, 1]),
        weight=random.uniform(1.0, 5.0, 3),
        sync_s=random.uniform(0.0, 0.5, (3, 2)),
    )
    best = optimum(case)
    assert best_bound(case) <= best * ROUNDING
    _, schedule = best_of(case, candidates(case))
    assert best <= total(case, schedule) * ROUNDING
    assert weighted_completion_s(case, schedule) <= 1.35 * best


@pytest.mark.parametrize(("in_a_row", "best"), [(True, 8.0), (False, 7.5)])
def test_figure_1_is_bounded_from_below(in_a_row: bool, best: float) -> None:
    assert 0.6 * best <= best_bound(toy(j2_in_a_row=in_a_row)) <= best


@pytest.mark.parametrize("seed", range(6))
def test_cuts_on_prefixes_are_cuts_on_every_set_of_rounds(seed: int) -> None:
    random = np.random.default_rng(seed)
    case = instance(
        arrival_s=random.uniform(0.0, 1.0, 4),
        rounds=np.array([1, 2, 3, 2]),
        scale=random.integers(1, 5, 4),
        task_s=random.uniform(0.5, 3.0, (4, 2)),
        gpus=np.array([1, 1]),
    )
    middle = pooled(case)
    work = np.repeat(case.known.scale * case.known.fastest_s, case.rounds)
    for chosen in product((False, True), repeat=len(work)):
        rows = np.array(chosen)
        assert work[rows] @ middle.by_round[rows] * ROUNDING >= work[rows].sum() ** 2 / 4


def test_a_synchronisation_time_of_zero_leaves_no_bound() -> None:
    case = toy(j2_in_a_row=True)
    assert case.alpha == 4.0
    sync_s = np.zeros((3, 3))
    sync_s[0, 0] = 1.0
    assert replace(case, known=replace(case.known, sync_s=sync_s)).alpha == np.inf
