"""What Hare is compared with: feasible as well, right on cases small enough to see, and a matching that is optimal."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given as over
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
    given = toy(j2_in_a_row=in_a_row)
    assert total(given, run_single(given, match_jobs)) == 9.0


def fits(given: Instance) -> bool:
    return bool(given.known.scale.max() <= given.known.gpus.sum())


@over(instances().filter(fits), st.sampled_from(GangPlace), st.booleans())
def test_gangs_make_schedules_that_can_be_carried_out(given: Instance, place: GangPlace, preempt: bool) -> None:
    for key in (fifo(given.known), srtf(given), two_dimensional_las(given.known)):
        assert violations(given, run_gangs(given, key, place, preempt=preempt, start_s=0.5)) == []


@over(instances())
def test_single_gpus_and_blind_tasks_make_schedules_that_can_be_carried_out(given: Instance) -> None:
    assert violations(given, run_single(given, match_jobs)) == []
    assert violations(given, run_rule(given, homogeneous(given))) == []


@pytest.mark.parametrize("seed", range(10))
def test_the_matching_is_the_cheapest(seed: int) -> None:
    cost = np.random.default_rng(seed).uniform(0.0, 1.0, (4, 6))
    found = match(cost)
    assert len(set(found.tolist())) == 4
    best = min(cost[np.arange(4), list(columns)].sum() for columns in permutations(range(6), 4))
    assert cost[np.arange(4), found].sum() == pytest.approx(best)


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
    given = two([3], [2], [0.0])
    schedule = run_gangs(given, fifo(given.known), GangPlace.FASTEST, preempt=False, start_s=0.0)
    assert completions_s(given, schedule).tolist() == [6.0]


def test_a_gang_that_prefers_one_type_leaves_the_fast_gpus_that_are_too_few() -> None:
    given = two([1, 2], [9, 1], [0.0, 0.0])
    pure = run_gangs(given, fifo(given.known), GangPlace.PURE, preempt=False, start_s=0.0)
    mixed = run_gangs(given, fifo(given.known), GangPlace.FASTEST, preempt=False, start_s=0.0)
    assert set(pure.gpu[pure.job == 1].tolist()) == {2, 3}
    assert set(mixed.gpu[mixed.job == 1].tolist()) == {1, 2}


def test_without_preemption_gangs_wait_strictly_in_their_order() -> None:
    given = two([3, 4, 1], [2, 1, 1], [0.0, 1.0, 2.0])
    schedule = run_gangs(given, fifo(given.known), GangPlace.FASTEST, preempt=False, start_s=0.0)
    assert completions_s(given, schedule).tolist() == [6.0, 9.0, 10.0]


def test_the_shorter_job_takes_over_at_the_end_of_a_round() -> None:
    given = two([4, 4], [9, 1], [0.0, 1.0])
    schedule = run_gangs(given, srtf(given), GangPlace.FASTEST, preempt=True, start_s=0.5)
    # 3.5 until the first round ends, then 0.5 + 3 for the short one, then a restart and eight more rounds.
    assert completions_s(given, schedule).tolist() == [31.5, 7.0]
