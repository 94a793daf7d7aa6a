"""Hare's orders: what they know, what they contain, and the effect of comparative advantage."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from task_instances import instances, total

from fairlead.model.tasks import Instance, completions_s, instance
from fairlead.numerics.task_bounds import pooled
from fairlead.policies.gpu_choice import comparative, priced
from fairlead.policies.hare import ADVANTAGE, bounded, candidates, faithful, fluid_midpoints, weighted_srpt
from fairlead.sim.tasks.schedules import best_of, run_rule


def first(case: Instance, jobs: int) -> Instance:
    known = case.known
    return instance(
        arrival_s=case.arrival_s[:jobs],
        rounds=case.rounds[:jobs],
        scale=known.scale[:jobs],
        task_s=known.task_s[:jobs],
        gpus=known.gpus,
        weight=known.weight[:jobs],
        sync_s=known.sync_s[:jobs],
        switch_s=known.switch_s[:jobs],
    )


@given(instances(), st.integers(1, 11))
def test_the_rule_that_knows_no_future_does_not_depend_on_later_jobs(case: Instance, jobs: int) -> None:
    if jobs >= case.jobs:
        return
    later_s = case.arrival_s[jobs]
    some = first(case, jobs)
    one, other = (run_rule(one_case, weighted_srpt(one_case, advantage=ADVANTAGE)) for one_case in (case, some))
    for column in ("job", "round", "task", "gpu", "start_s", "end_s"):
        np.testing.assert_array_equal(
            getattr(one, column)[one.start_s < later_s], getattr(other, column)[other.start_s < later_s]
        )


@given(instances())
def test_a_list_names_every_round_once(case: Instance) -> None:
    middle = pooled(case)
    for order in (faithful(case, middle), bounded(case, middle)):
        np.testing.assert_array_equal(np.bincount(order, minlength=case.jobs), case.rounds)


@given(instances())
def test_mid_points_of_a_job_ascend_and_come_after_its_arrival(case: Instance) -> None:
    for by_round in (fluid_midpoints(case), pooled(case).by_round):
        edges = np.cumsum(case.rounds)[:-1]
        for n, middle in enumerate(np.split(by_round, edges)):
            assert (np.diff(middle) > 0).all()
            assert middle[0] >= case.arrival_s[n]


@given(instances())
def test_the_portfolio_is_no_worse_than_any_of_its_members(case: Instance) -> None:
    members = list(candidates(case))
    _, best = best_of(case, members)
    for member in members:
        assert total(case, best) <= total(case, best_of(case, [member])[1])


# Two types, one GPU each. The first job is seven times as fast on type 0, the second hardly faster.
UNEQUAL = instance(
    arrival_s=np.zeros(2),
    rounds=np.array([4, 4]),
    scale=np.array([1, 1]),
    task_s=np.array([[1.0, 7.0], [1.0, 1.1]]),
    gpus=np.array([1, 1]),
)


def test_a_job_that_gains_little_from_the_fast_type_leaves_it_to_others() -> None:
    cost_s = comparative(UNEQUAL.known, 0.5)
    assert cost_s.argmin(axis=1).tolist() == [0, 1]
    schedule = run_rule(UNEQUAL, weighted_srpt(UNEQUAL, advantage=0.5))
    np.testing.assert_allclose(completions_s(UNEQUAL, schedule), [4.0, 4.4])


def test_fluid_prices_make_a_job_that_uses_both_types_indifferent() -> None:
    cost_s = priced(UNEQUAL.known, UNEQUAL.tasks)
    assert cost_s[0].argmin() == 0
    np.testing.assert_allclose(cost_s[1, 0], cost_s[1, 1])


@given(instances(equal_gpus=True))
def test_on_equal_gpus_there_is_no_advantage(case: Instance) -> None:
    np.testing.assert_allclose(comparative(case.known, 1.0), case.known.task_s)


def test_without_strength_the_cost_is_the_task_time() -> None:
    assert comparative(UNEQUAL.known, 0.0) is UNEQUAL.known.task_s
