"""The task-level simulator: the paper's toy example, and feasible schedules for every instance."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from task_instances import drawn, instances, optimum, total, toy

from fairlead.model.errors import InputError
from fairlead.model.tasks import Choice, Instance, Rule, completions_s, instance
from fairlead.numerics.random import stream
from fairlead.numerics.task_bounds import pooled
from fairlead.policies.hare import bounded, by_midpoints, candidates, faithful, fluid_midpoints, weighted_srpt
from fairlead.sim.tasks.check import violations
from fairlead.sim.tasks.schedules import best_of, run_list, run_rule


def in_turn(case: Instance, choice: Choice = Choice.FASTEST_IDLE) -> Rule:
    return Rule(np.zeros(case.jobs), np.zeros(case.jobs), choice=choice)


# ---- figure 1: its three schedules, reconstructed from their totals and from the text.

OBLIVIOUS = [
    *((0, 0, 0, 0, 0.0), (0, 0, 1, 2, 0.0)),  # J1 on GPU1 and GPU3 although all are free
    *((1, 0, 0, 0, 1.5), (1, 1, 0, 0, 2.5), (1, 2, 0, 0, 3.5)),
    *((2, 0, 0, 1, 1.5), (2, 0, 1, 2, 1.5), (2, 1, 0, 1, 3.0), (2, 1, 1, 2, 3.0)),
]
ONE_GPU_PER_JOB = [
    *((0, 0, 0, 1, 0.0), (0, 0, 1, 1, 2.0)),
    *((1, 0, 0, 0, 0.0), (1, 1, 0, 0, 1.0), (1, 2, 0, 0, 2.0)),
    *((2, 0, 0, 2, 0.0), (2, 0, 1, 2, 0.5), (2, 1, 0, 2, 1.0), (2, 1, 1, 2, 1.5)),
]
INTRA_JOB = [
    *((0, 0, 0, 2, 0.5), (0, 0, 1, 2, 1.5)),
    *((1, 0, 0, 0, 0.0), (1, 1, 0, 0, 1.0), (1, 2, 0, 0, 2.0)),
    *((2, 0, 0, 1, 0.0), (2, 0, 1, 2, 0.0), (2, 1, 0, 1, 1.5), (2, 1, 1, 2, 2.5)),
]


@pytest.mark.parametrize(
    ("rows", "printed", "makespan"), [(OBLIVIOUS, 10.5, 4.5), (ONE_GPU_PER_JOB, 9.0, 4.0), (INTRA_JOB, 8.5, 3.0)]
)
def test_the_drawn_schedules_of_figure_1_have_their_printed_totals(
    rows: list[tuple[int, int, int, int, float]], printed: float, makespan: float
) -> None:
    schedule = drawn(toy(j2_in_a_row=True), rows)
    assert total(toy(j2_in_a_row=True), schedule) == printed
    assert schedule.end_s.max() == makespan


@pytest.mark.parametrize(("in_a_row", "best"), [(True, 8.0), (False, 7.5)])
def test_on_figure_1_the_portfolio_is_between_the_optimum_and_the_drawn_schedule(in_a_row: bool, best: float) -> None:
    case = toy(j2_in_a_row=in_a_row)
    assert optimum(case) == best
    _, schedule = best_of(case, candidates(case))
    assert best <= total(case, schedule) <= 8.5


# ---- every schedule is feasible


@given(instances(), st.sampled_from(Choice), st.sampled_from((1.0, 1.3)))
def test_every_rule_makes_a_feasible_schedule(case: Instance, choice: Choice, sigma: float) -> None:
    for rule in (
        in_turn(case),
        weighted_srpt(case),
        by_midpoints(case, fluid_midpoints(case)),
        replace(in_turn(case), slope=np.ones(case.jobs), unit=np.full(case.jobs, 3.0), promote=2.0),
    ):
        assert violations(case, run_rule(case, replace(rule, choice=choice, sigma=sigma))) == []


@given(instances())
def test_every_list_makes_a_feasible_schedule(case: Instance) -> None:
    middle = pooled(case)
    for order in (faithful(case, middle), bounded(case, middle)):
        for earliest_finish in (False, True):
            assert violations(case, run_list(case, order, earliest_finish=earliest_finish)) == []


@given(instances(equal_gpus=True, switching=False))
def test_on_equal_gpus_it_does_not_matter_how_the_gpu_is_chosen(case: Instance) -> None:
    by_choice = [completions_s(case, run_rule(case, replace(weighted_srpt(case), choice=choice))) for choice in Choice]
    np.testing.assert_allclose(by_choice[0], by_choice[1])
    np.testing.assert_allclose(by_choice[0], by_choice[2])
    order = bounded(case, pooled(case))
    lists = [completions_s(case, run_list(case, order, earliest_finish=ends)) for ends in (False, True)]
    np.testing.assert_allclose(lists[0], lists[1])


def test_the_same_input_gives_the_same_schedule() -> None:
    case = toy(j2_in_a_row=True)
    one, other = run_rule(case, weighted_srpt(case)), run_rule(case, weighted_srpt(case))
    for column in ("job", "round", "task", "gpu", "start_s", "end_s"):
        np.testing.assert_array_equal(getattr(one, column), getattr(other, column))


# ---- single behaviours


def test_synchronisation_overlaps_the_next_task_of_the_gpu() -> None:
    case = instance(
        arrival_s=np.zeros(2),
        rounds=np.array([2, 1]),
        scale=np.array([1, 1]),
        task_s=np.array([[2.0], [1.0]]),
        sync_s=np.array([[1.0], [0.0]]),
        gpus=np.array([1]),
    )
    # Job 0 computes 0-2 and synchronises 2-3; job 1 computes meanwhile.
    assert completions_s(case, run_rule(case, in_turn(case))).tolist() == [6.0, 3.0]


def test_a_gpu_pays_for_a_switch_only_when_it_runs_another_job() -> None:
    case = instance(
        arrival_s=np.array([0.0, 3.0]),
        rounds=np.array([3, 1]),
        scale=np.array([1, 1]),
        task_s=np.array([[1.0], [1.0]]),
        gpus=np.array([1]),
        switch_s=np.array([5.0, 0.5]),
    )
    assert completions_s(case, run_rule(case, in_turn(case))).tolist() == [3.0, 4.5]


def test_a_task_waits_for_the_fast_gpu_if_it_ends_earlier_there() -> None:
    case = instance(
        arrival_s=np.zeros(1),
        rounds=np.array([1]),
        scale=np.array([2]),
        task_s=np.array([[1.0, 5.0]]),
        gpus=np.array([1, 1]),
    )
    earliest = run_rule(case, in_turn(case, Choice.EARLIEST_FINISH))
    assert earliest.gpu.tolist() == [0, 0]
    assert completions_s(case, earliest).tolist() == [2.0]
    assert completions_s(case, run_rule(case, in_turn(case))).tolist() == [5.0]


ONE = np.array([1])


def test_jobs_out_of_order_of_arrival_are_sorted() -> None:
    case = instance(
        arrival_s=np.array([5.0, 1.0]),
        rounds=np.array([7, 9]),
        scale=np.array([1, 1]),
        task_s=np.ones((2, 1)),
        gpus=ONE,
    )
    assert case.rounds.tolist() == [9, 7]


def test_a_task_time_of_zero_is_refused() -> None:
    with pytest.raises(InputError, match="task_s holds 0"):
        instance(arrival_s=np.zeros(1), rounds=ONE, scale=ONE, task_s=np.zeros((1, 1)), gpus=ONE)


# ---- the checker reports each kind of mistake


@pytest.mark.parametrize(
    ("column", "row", "value", "complaint"),
    [
        ("start_s", 0, -1.0, "before its job arrives"),
        ("gpu", 2, 1, "overlap"),
        ("end_s", 2, 0.5, "shorter than"),
        ("start_s", 8, 0.75, "before all gradients"),
        ("round", 8, 0, "each of its k tasks once"),
        ("job", 8, 1, "too many or too few"),
        ("gpu", 8, 3, "outside 0..2"),
    ],
)
def test_the_checker_reports_a_mistake(column: str, row: int, value: float, complaint: str) -> None:
    case = toy(j2_in_a_row=True)
    good = drawn(case, ONE_GPU_PER_JOB)
    changed = getattr(good, column).copy()
    changed[row] = value
    assert any(complaint in mistake for mistake in violations(case, replace(good, **{column: changed})))


def test_the_checker_counts_every_switch() -> None:
    case = toy(j2_in_a_row=True)
    costly = replace(case, known=replace(case.known, switch_s=np.ones(3)))
    assert violations(costly, drawn(case, OBLIVIOUS)) == ["a task is shorter than its switch and its computation"]


# ---- at scale (benchmarks/hare.py measures how fast)


def test_eighteen_thousand_tasks_are_all_run_without_a_violation() -> None:
    random = stream(0, "crowd of tasks")
    jobs, longest = 200, 44
    fastest_s = random.uniform(0.3, 4.4, (jobs, 1))
    crowd = instance(
        arrival_s=np.cumsum(random.exponential(3.0, jobs)),
        rounds=random.integers(longest // 10, longest, jobs),
        scale=random.choice([1, 2, 4, 8], jobs),
        task_s=fastest_s * random.uniform(1.0, 7.0, (jobs, 4)),
        gpus=np.full(4, 16),
        sync_s=np.repeat(0.15 * fastest_s, 4, axis=1),
        switch_s=0.03 * fastest_s[:, 0],
    )

    schedule = run_rule(crowd, weighted_srpt(crowd))

    assert len(schedule) == crowd.tasks.sum() > 17_000
    assert not violations(crowd, schedule)
