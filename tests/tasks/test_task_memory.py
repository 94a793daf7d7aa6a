"""Which models stay on a GPU, and the resulting cost of a switch."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from task_instances import instances

from fairlead.model.tasks import Instance, Schedule, instance
from fairlead.policies.hare import weighted_srpt
from fairlead.sim.tasks.memory import Keep, residency, with_switch_costs
from fairlead.sim.tasks.schedules import run_rule


def sequence(jobs: list[int]) -> tuple[Instance, Schedule]:
    """One GPU that runs one-second tasks of these jobs in this order."""
    rounds = np.bincount(jobs)
    case = instance(
        arrival_s=np.zeros(len(rounds)),
        rounds=rounds,
        scale=np.ones(len(rounds), dtype=np.int64),
        task_s=np.ones((len(rounds), 1)),
        gpus=np.array([1]),
    )
    start_s = np.arange(len(jobs), dtype=np.float64)
    round_ = np.array([jobs[:i].count(n) for i, n in enumerate(jobs)])
    zero = np.zeros(len(jobs), dtype=np.int64)
    return case, Schedule(np.array(jobs), round_, zero, zero, start_s, start_s + 1.0)


def hits(jobs: list[int], room_gib: float, keep: Keep) -> list[int]:
    case, schedule = sequence(jobs)
    turns, resident = residency(case, schedule, np.ones(case.jobs), np.array([room_gib]), keep)
    assert turns.sum() == sum(a != b for a, b in pairwise(jobs))
    return np.flatnonzero(resident).tolist()


def test_a_model_that_stays_is_resident_at_the_next_switch() -> None:
    assert hits([0, 1, 0, 1], 2.0, Keep.SPECULATIVE) == [2, 3]
    assert hits([0, 1, 0, 1], 2.0, Keep.LAST_USED) == [2, 3]


def test_if_nothing_is_kept_nothing_is_resident() -> None:
    assert hits([0, 1, 0, 1], 9.0, Keep.NOTHING) == []


def test_the_next_model_is_kept_even_if_others_ran_more_recently() -> None:
    # There is room for one more model: after job 1, the last used is 1, and the next is 0.
    assert hits([0, 1, 0, 2, 0], 1.0, Keep.LAST_USED) == []
    assert hits([0, 1, 0, 2, 0], 1.0, Keep.SPECULATIVE) == [2, 4]


def test_a_job_without_later_tasks_makes_room() -> None:
    assert hits([0, 1, 2, 0], 2.0, Keep.LAST_USED) == []
    assert hits([0, 1, 2, 0], 2.0, Keep.SPECULATIVE) == [3]


def test_a_switch_costs_the_mean_over_hits_and_misses() -> None:
    case, schedule = sequence([0, 1, 0, 1])
    turns, resident = residency(case, schedule, np.ones(2), np.array([2.0]), Keep.SPECULATIVE)
    priced = with_switch_costs(case, schedule, turns, resident, np.zeros(2), np.ones(2))
    assert priced.known.switch_s.tolist() == [0.0, 0.5]


@given(instances())
def test_looking_ahead_has_no_hit_without_a_switch_and_most_hits_in_endless_memory(
    case: Instance,
) -> None:
    schedule = run_rule(case, weighted_srpt(case))
    gib, little = np.ones(case.jobs), np.full(len(case.known.gpus), 2.0)
    turns, resident = residency(case, schedule, gib, little, Keep.SPECULATIVE)
    assert not (resident & ~turns).any()
    _, all_resident = residency(case, schedule, gib, np.full(len(case.known.gpus), np.inf), Keep.SPECULATIVE)
    assert resident.sum() <= all_resident.sum()
