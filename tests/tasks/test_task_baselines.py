"""Hare's baselines: their schedules are feasible and right on small cases, and the matching is optimal."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from task_instances import instances, total, toy

from fairlead.model.tasks import Instance, completions_s, instance
from fairlead.numerics.matching import match
from fairlead.policies.task_baselines import fifo, homogeneous, match_jobs, srtf, two_dimensional_las
from fairlead.sim.tasks.check import violations
from fairlead.sim.tasks.gangs import GangPlace, run_gangs
from fairlead.sim.tasks.schedules import run_rule
from fairlead.sim.tasks.single import run_single


@pytest.mark.parametrize("in_a_row", [True, False])
def test_one_gpu_per_job_at_its_best_gives_the_toy_nine(in_a_row: bool) -> None:
    case = toy(j2_in_a_row=in_a_row)
    assert total(case, run_single(case, match_jobs)) == 9.0


def fits(case: Instance) -> bool:
    return bool(case.known.scale.max() <= case.known.gpus.sum())


@given(instances().filter(fits), st.sampled_from(GangPlace), st.booleans())
def test_gangs_make_feasible_schedules(case: Instance, place: GangPlace, preempt: bool) -> None:
    for key in (fifo(case.known), srtf(case), two_dimensional_las(case.known)):
        assert violations(case, run_gangs(case, key, place, preempt=preempt, start_s=0.5)) == []


@given(instances())
def test_single_gpus_and_blind_tasks_make_feasible_schedules(case: Instance) -> None:
    assert violations(case, run_single(case, match_jobs)) == []
    assert violations(case, run_rule(case, homogeneous(case))) == []


@pytest.mark.parametrize("seed", range(10))
def test_the_matching_is_the_cheapest(seed: int) -> None:
    cost = np.random.default_rng(seed).uniform(0.0, 1.0, (4, 6))
    column_of = match(cost)
    assert len(set(column_of.tolist())) == 4
    best = min(cost[np.arange(4), list(columns)].sum() for columns in permutations(range(6), 4))
    assert cost[np.arange(4), column_of].sum() == pytest.approx(best)


def two(scale: list[int], rounds: list[int], arrival_s: list[float]) -> Instance:
    """Two jobs on two fast and two slow GPUs."""
    return instance(
        arrival_s=np.array(arrival_s),
        rounds=np.array(rounds),
        scale=np.array(scale),
        task_s=np.tile([1.0, 3.0], (len(scale), 1)),
        gpus=np.array([2, 2]),
    )


def test_the_slowest_gpu_of_a_gang_sets_its_pace() -> None:
    case = two([3], [2], [0.0])
    schedule = run_gangs(case, fifo(case.known), GangPlace.FASTEST, preempt=False, start_s=0.0)
    assert completions_s(case, schedule).tolist() == [6.0]


def test_a_gang_that_prefers_one_type_leaves_the_fast_gpus_that_are_too_few() -> None:
    case = two([1, 2], [9, 1], [0.0, 0.0])
    pure = run_gangs(case, fifo(case.known), GangPlace.PURE, preempt=False, start_s=0.0)
    mixed = run_gangs(case, fifo(case.known), GangPlace.FASTEST, preempt=False, start_s=0.0)
    assert set(pure.gpu[pure.job == 1].tolist()) == {2, 3}
    assert set(mixed.gpu[mixed.job == 1].tolist()) == {1, 2}


def test_without_preemption_gangs_wait_strictly_in_their_order() -> None:
    case = two([3, 4, 1], [2, 1, 1], [0.0, 1.0, 2.0])
    schedule = run_gangs(case, fifo(case.known), GangPlace.FASTEST, preempt=False, start_s=0.0)
    assert completions_s(case, schedule).tolist() == [6.0, 9.0, 10.0]


def test_the_shorter_job_takes_over_at_the_end_of_a_round() -> None:
    case = two([4, 4], [9, 1], [0.0, 1.0])
    schedule = run_gangs(case, srtf(case), GangPlace.FASTEST, preempt=True, start_s=0.5)
    # 3.5 until the first round ends, then 0.5 + 3 for the short job, then a restart and eight more rounds.
    assert completions_s(case, schedule).tolist() == [31.5, 7.0]
