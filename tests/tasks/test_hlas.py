"""The online rule knows nothing about lengths or the future, and starves no job when promotion is on."""

from __future__ import annotations

import math
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from task_instances import instances

from fairlead.model.arrays import FloatArray
from fairlead.model.tasks import Instance, Known, Rule, Schedule, completions_s, instance
from fairlead.policies import TASK_POLICIES
from fairlead.policies.hlas import PROMOTE, hlas
from fairlead.policies.policy import TaskPolicy
from fairlead.sim.tasks.check import violations
from fairlead.sim.tasks.schedules import run_rule


def until(schedule: Schedule, time_s: float) -> list[FloatArray]:
    rows = schedule.start_s < time_s
    return [getattr(schedule, column.name)[rows] for column in fields(schedule)]


def same(one: list[FloatArray], other: list[FloatArray]) -> None:
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_input_of_the_rule_has_neither_lengths_nor_arrival_times() -> None:
    assert not {"rounds", "arrival_s"} & {column.name for column in fields(Known)}


@given(instances(), st.integers(0, 11), st.integers(1, 9), st.sampled_from((1.0, float("inf"))))
def test_decisions_do_not_change_when_lengths_change(case: Instance, which: int, rounds: int, promote: float) -> None:
    n = which % case.jobs
    changed = case.rounds.copy()
    changed[n] = rounds
    other = replace(case, rounds=changed)
    one, two = (run_rule(one_case, hlas(one_case.known, promote=promote)) for one_case in (case, other))
    assert violations(case, one) == violations(other, two) == []
    # A length can be observed when the shorter of the two ends, and not before.
    shows_s = min(completions_s(case, one)[n], completions_s(other, two)[n]) if rounds != case.rounds[n] else np.inf
    same(until(one, shows_s), until(two, shows_s))


@given(instances(), st.integers(1, 11))
def test_decisions_do_not_depend_on_jobs_that_come_later(case: Instance, jobs: int) -> None:
    if jobs >= case.jobs:
        return
    known = case.known
    first = instance(
        arrival_s=case.arrival_s[:jobs],
        rounds=case.rounds[:jobs],
        scale=known.scale[:jobs],
        task_s=known.task_s[:jobs],
        gpus=known.gpus,
        weight=known.weight[:jobs],
        sync_s=known.sync_s[:jobs],
        switch_s=known.switch_s[:jobs],
    )
    later_s = float(case.arrival_s[jobs])
    same(until(run_rule(case, hlas(known)), later_s), until(run_rule(first, hlas(first.known)), later_s))


def flooded(scale: int, gpus: list[int]) -> Instance:
    """A long job, followed by an endless sequence of short ones that together need more than all GPUs."""
    jobs = 400
    rounds = np.full(jobs + 1, 2)
    rounds[0] = 60
    gap_s = 0.9 * 2 * scale / sum(count / (1.0 + g) for g, count in enumerate(gpus))
    return instance(
        arrival_s=np.concatenate([[0.0], 0.5 + gap_s * np.arange(jobs)]),
        rounds=rounds,
        scale=np.full(jobs + 1, scale),
        task_s=np.tile(1.0 + np.arange(len(gpus)), (jobs + 1, 1)),
        gpus=np.array(gpus),
        switch_s=np.full(jobs + 1, 0.05),
    )


def longest_wait(case: Instance, schedule: Schedule, promote: float) -> float:
    """The longest time without a running task of job 0 between two of its rounds, less promote x service until then."""
    mine = schedule.job == 0
    start_s, end_s, round_ = schedule.start_s[mine], schedule.end_s[mine], schedule.round[mine]
    worst = -np.inf
    for r in range(1, int(case.rounds[0])):
        wait_s = start_s[round_ == r].min() - end_s[round_ == r - 1].max()
        service_s = r * float(case.known.fastest_s[0])
        worst = max(worst, wait_s - promote * service_s)
    return worst


@pytest.mark.parametrize(("scale", "gpus"), [(1, [1]), (4, [2, 2])])
@pytest.mark.parametrize("promote", [1.0, 4.0, PROMOTE])
def test_with_promotion_a_job_waits_at_most_a_multiple_of_its_service(
    scale: int, gpus: list[int], promote: float
) -> None:
    case = flooded(scale, gpus)
    schedule = run_rule(case, hlas(case.known, promote=promote))
    # Beyond the multiple, the job waits only for the tasks that are running then, including a switch.
    assert longest_wait(case, schedule, promote) <= 2 * (case.known.task_s.max() + 0.05)


@pytest.mark.parametrize(("scale", "gpus"), [(1, [1]), (4, [2, 2])])
def test_without_promotion_the_flood_starves_the_long_job(scale: int, gpus: list[int]) -> None:
    case = flooded(scale, gpus)
    assert longest_wait(case, run_rule(case, hlas(case.known, promote=math.inf)), PROMOTE) > 100.0


def test_the_policy_promotes_unless_it_is_switched_off() -> None:
    """With 0 as its parameter, as for Tiresias."""
    case = flooded(1, [1])

    def rule_of(policy: TaskPolicy) -> Rule:
        (_, rule) = policy.plan(case.known).candidates[0]  # type: ignore[arg-type]
        assert isinstance(rule, Rule)
        return rule

    assert rule_of(TASK_POLICIES["hlas"]).promote == PROMOTE
    assert math.isinf(rule_of(TASK_POLICIES["hlas"].with_parameters({"promote": 0.0})).promote)
    assert longest_wait(case, run_rule(case, rule_of(TASK_POLICIES["hlas"])), PROMOTE) <= 2.1


def test_an_hour_on_a_slow_gpu_counts_as_the_time_it_would_have_taken_on_a_fast_one() -> None:
    case = instance(
        arrival_s=np.zeros(1),
        rounds=np.array([9]),
        scale=np.array([1]),
        task_s=np.array([[1.0, 7.0]]),
        gpus=np.array([0, 1]),
    )
    assert hlas(case.known).slope.tolist() == [7.0]  # only the types that the cluster has count
    both = replace(case.known, gpus=np.array([1, 1]))
    assert hlas(both).slope.tolist() == [1.0]
