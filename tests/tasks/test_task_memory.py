"""Which models stay on a GPU, and what a switch costs then."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given as over
from task_instances import instances

from fairlead.model.tasks import Instance, Schedule, instance
from fairlead.policies.hare import weighted_srpt
from fairlead.sim.tasks.memory import Keep, residency, with_switch_costs
from fairlead.sim.tasks.schedules import run_rule


def sequence(jobs: list[int]) -> tuple[Instance, Schedule]:
    """One GPU that runs one-second tasks of these jobs in this order."""
    rounds = np.bincount(jobs)
    given = instance(
        arrival_s=np.zeros(len(rounds)),
        rounds=rounds,
        scale=np.ones(len(rounds), dtype=np.int64),
        task_s=np.ones((len(rounds), 1)),
        gpus=np.array([1]),
    )
    start_s = np.arange(len(jobs), dtype=np.float64)
    round_ = np.array([jobs[:i].count(n) for i, n in enumerate(jobs)])
    zero = np.zeros(len(jobs), dtype=np.int64)
    return given, Schedule(np.array(jobs), round_, zero, zero, start_s, start_s + 1.0)


def hits(jobs: list[int], room_gib: float, keep: Keep) -> list[int]:
    given, schedule = sequence(jobs)
    turns, found = residency(given, schedule, np.ones(given.jobs), np.array([room_gib]), keep)
    assert turns.sum() == sum(a != b for a, b in pairwise(jobs))
    return np.flatnonzero(found).tolist()


def test_a_model_that_stays_is_found_again() -> None:
    assert hits([0, 1, 0, 1], 2.0, Keep.SPECULATIVE) == [2, 3]
    assert hits([0, 1, 0, 1], 2.0, Keep.LAST_USED) == [2, 3]


def test_with_nothing_kept_nothing_is_found() -> None:
    assert hits([0, 1, 0, 1], 9.0, Keep.NOTHING) == []


def test_the_next_one_is_kept_even_if_others_ran_more_recently() -> None:
    # Room for one besides: after job 1, the last used is 1, and the next is 0.
    assert hits([0, 1, 0, 2, 0], 1.0, Keep.LAST_USED) == []
    assert hits([0, 1, 0, 2, 0], 1.0, Keep.SPECULATIVE) == [2, 4]


def test_a_job_of_which_nothing_comes_makes_room() -> None:
    assert hits([0, 1, 2, 0], 2.0, Keep.LAST_USED) == []
    assert hits([0, 1, 2, 0], 2.0, Keep.SPECULATIVE) == [3]


def test_a_switch_costs_the_mean_of_what_was_found_and_what_was_not() -> None:
    given, schedule = sequence([0, 1, 0, 1])
    turns, found = residency(given, schedule, np.ones(2), np.array([2.0]), Keep.SPECULATIVE)
    priced = with_switch_costs(given, schedule, turns, found, np.zeros(2), np.ones(2))
    assert priced.known.switch_s.tolist() == [0.0, 0.5]


@over(instances())
def test_looking_ahead_finds_at_least_as_much_as_keeping_nothing_and_all_fits_in_endless_memory(
    given: Instance,
) -> None:
    schedule = run_rule(given, weighted_srpt(given))
    gib, little = np.ones(given.jobs), np.full(len(given.known.gpus), 2.0)
    turns, found = residency(given, schedule, gib, little, Keep.SPECULATIVE)
    assert not (found & ~turns).any()
    _, all_found = residency(given, schedule, gib, np.full(len(given.known.gpus), np.inf), Keep.SPECULATIVE)
    assert found.sum() <= all_found.sum()
