"""Hare's orders: what they know, what they are, and what comparative advantage does."""

from __future__ import annotations

import numpy as np
from hypothesis import given as over
from hypothesis import strategies as st
from task_instances import instances, total

from fairlead.model.tasks import Instance, completions_s, instance
from fairlead.numerics.task_bounds import pooled
from fairlead.policies.gpu_choice import comparative, priced
from fairlead.policies.hare import ADVANTAGE, bounded, candidates, faithful, fluid_midpoints, weighted_srpt
from fairlead.sim.tasks.schedules import best_of, run_rule


def first(given: Instance, jobs: int) -> Instance:
    known = given.known
    return instance(
        arrival_s=known.arrival_s[:jobs],
        rounds=given.rounds[:jobs],
        scale=known.scale[:jobs],
        task_s=known.task_s[:jobs],
        gpus=known.gpus,
        weight=known.weight[:jobs],
        sync_s=known.sync_s[:jobs],
        switch_s=known.switch_s[:jobs],
    )


@over(instances(), st.integers(1, 11))
def test_the_rule_without_a_future_decides_the_same_whoever_comes_later(given: Instance, jobs: int) -> None:
    if jobs >= given.jobs:
        return
    later_s = given.known.arrival_s[jobs]
    some = first(given, jobs)
    one, other = (run_rule(case, weighted_srpt(case, advantage=ADVANTAGE)) for case in (given, some))
    for column in ("job", "round", "task", "gpu", "start_s", "end_s"):
        np.testing.assert_array_equal(
            getattr(one, column)[one.start_s < later_s], getattr(other, column)[other.start_s < later_s]
        )


@over(instances())
def test_a_list_names_every_round_once(given: Instance) -> None:
    middle = pooled(given)
    for order in (faithful(given, middle), bounded(given, middle)):
        np.testing.assert_array_equal(np.bincount(order, minlength=given.jobs), given.rounds)


@over(instances())
def test_mid_points_of_a_job_ascend_and_come_after_its_arrival(given: Instance) -> None:
    for by_round in (fluid_midpoints(given), pooled(given).by_round):
        edges = np.cumsum(given.rounds)[:-1]
        for n, middle in enumerate(np.split(by_round, edges)):
            assert (np.diff(middle) > 0).all()
            assert middle[0] >= given.known.arrival_s[n]


@over(instances())
def test_the_portfolio_is_no_worse_than_any_of_its_members(given: Instance) -> None:
    members = list(candidates(given))
    _, best = best_of(given, members)
    for member in members:
        assert total(given, best) <= total(given, best_of(given, [member])[1])


# Two types, one GPU each. The first job gains seven times from type 0, the second next to nothing.
UNEQUAL = instance(
    arrival_s=np.zeros(2),
    rounds=np.array([4, 4]),
    scale=np.array([1, 1]),
    task_s=np.array([[1.0, 7.0], [1.0, 1.1]]),
    gpus=np.array([1, 1]),
)


def test_who_gains_little_from_the_fast_type_leaves_it_to_others() -> None:
    cost_s = comparative(UNEQUAL.known, 0.5)
    assert cost_s.argmin(axis=1).tolist() == [0, 1]
    schedule = run_rule(UNEQUAL, weighted_srpt(UNEQUAL, advantage=0.5))
    np.testing.assert_allclose(completions_s(UNEQUAL, schedule), [4.0, 4.4])


def test_fluid_prices_leave_who_uses_both_types_indifferent() -> None:
    cost_s = priced(UNEQUAL.known, UNEQUAL.tasks)
    assert cost_s[0].argmin() == 0
    np.testing.assert_allclose(cost_s[1, 0], cost_s[1, 1])


@over(instances(equal_gpus=True))
def test_on_equal_gpus_there_is_no_advantage(given: Instance) -> None:
    np.testing.assert_allclose(comparative(given.known, 1.0), given.known.task_s)


def test_without_strength_the_cost_is_the_task_time() -> None:
    assert comparative(UNEQUAL.known, 0.0) is UNEQUAL.known.task_s
