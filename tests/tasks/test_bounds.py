"""Bounds: below every schedule and below the optimum, and the promise of the bounded list."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given as over
from hypothesis import settings
from task_instances import instances, optimum, total, toy

from fairlead.model.tasks import Instance, instance, weighted_completion_s
from fairlead.numerics.task_bounds import best_bound, critical_path, mean_busy_time, pooled
from fairlead.policies.hare import bounded, candidates
from fairlead.sim.tasks.schedules import best_of, run_list

ROUNDING = 1 + 1e-6


@over(instances(switching=False))
@settings(max_examples=60)
def test_the_bounded_list_is_within_three_alpha_of_the_pooled_program(given: Instance) -> None:
    middle = pooled(given)
    assert middle.exact
    for earliest_finish in (True, False):
        found = total(given, run_list(given, bounded(given, middle), earliest_finish=earliest_finish))
        assert found <= 3 * given.alpha * middle.bound * ROUNDING


@over(instances())
def test_no_schedule_is_below_a_bound(given: Instance) -> None:
    _, schedule = best_of(given, candidates(given))
    found = total(given, schedule) * ROUNDING
    assert critical_path(given) <= found
    assert pooled(given).bound <= found
    assert mean_busy_time(given) <= found
    assert mean_busy_time(given, until_s=float(schedule.end_s.max()), intervals=7) <= found


@over(instances(jobs=40))
@settings(max_examples=10)
def test_taking_rounds_together_keeps_the_pooled_program_a_bound(given: Instance) -> None:
    exact, coarse = pooled(given), pooled(given, most_blocks=1)
    assert coarse.bound <= exact.bound * ROUNDING
    assert len(coarse.by_round) == len(exact.by_round) == given.rounds.sum()


@pytest.mark.parametrize("seed", range(12))
def test_on_tiny_instances_the_bounds_are_below_the_optimum(seed: int) -> None:
    random = np.random.default_rng(seed)
    given = instance(
        arrival_s=random.uniform(0.0, 2.0, 3),
        rounds=random.integers(1, 3, 3),
        scale=random.integers(1, 3, 3),
        task_s=random.uniform(0.5, 3.0, (3, 2)),
        gpus=np.array([1, 1]),
        weight=random.uniform(1.0, 5.0, 3),
        sync_s=random.uniform(0.0, 0.5, (3, 2)),
    )
    best = optimum(given)
    assert best_bound(given) <= best * ROUNDING
    _, schedule = best_of(given, candidates(given))
    assert best <= total(given, schedule) * ROUNDING
    assert weighted_completion_s(given, schedule) <= 1.35 * best


@pytest.mark.parametrize(("in_a_row", "best"), [(True, 8.0), (False, 7.5)])
def test_figure_1_is_bounded_from_below(in_a_row: bool, best: float) -> None:
    assert 0.6 * best <= best_bound(toy(j2_in_a_row=in_a_row)) <= best


@pytest.mark.parametrize("seed", range(6))
def test_cuts_on_prefixes_are_cuts_on_every_set_of_rounds(seed: int) -> None:
    random = np.random.default_rng(seed)
    given = instance(
        arrival_s=random.uniform(0.0, 1.0, 4),
        rounds=np.array([1, 2, 3, 2]),
        scale=random.integers(1, 5, 4),
        task_s=random.uniform(0.5, 3.0, (4, 2)),
        gpus=np.array([1, 1]),
    )
    middle = pooled(given)
    work = np.repeat(given.known.scale * given.known.fastest_s, given.rounds)
    for chosen in product((False, True), repeat=len(work)):
        rows = np.array(chosen)
        assert work[rows] @ middle.by_round[rows] * ROUNDING >= work[rows].sum() ** 2 / 4


def test_a_synchronisation_that_some_type_has_for_nothing_leaves_no_bound() -> None:
    given = toy(j2_in_a_row=True)
    assert given.alpha == 4.0
    sync_s = np.zeros((3, 3))
    sync_s[0, 0] = 1.0
    assert replace(given, known=replace(given.known, sync_s=sync_s)).alpha == np.inf
