"""Reports of running jobs change the rates that every policy sees."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from building import THREE, job, profile
from fairlead.model.cluster import parse_short_form
from fairlead.model.decision import Cause, Decision
from fairlead.model.events import Arrived, Cancelled, Finished, NodeAdded, Progress, Started
from fairlead.model.jobs import JobSpec
from fairlead.model.view import View
from fairlead.policies import find_round_policy
from fairlead.rates.three_layer import Sensing, build_estimator
from fairlead.rounds.copying import copied
from fairlead.rounds.look import look
from fairlead.rounds.measured import BAND, MOST_GROUPS, STEP, MeasuredRates
from fairlead.rounds.snapshot import dump, load
from fairlead.rounds.state import State

CLUSTER = parse_short_form("v100:4,k80:4")
V100, K80 = 0, 1
NONE = np.array([], dtype=np.int64)
ALL_KNOWING = find_round_policy("srtf")


def state_with(*jobs: JobSpec, sensing: Sensing = Sensing.THREE_LAYER) -> State:
    state = State(CLUSTER, build_estimator(THREE, CLUSTER, None, sensing, unmeasured=True))
    for spec in jobs:
        state.fold(Arrived(spec.arrival_s, spec))
    return state


def run_on(state: State, id_: str, node: int) -> None:
    jobs = np.array([state.position[id_]])
    state.fold(Decision(state.now_s, Cause.ROUND, NONE, jobs, (((node, int(state.width[jobs[0]])),),), math.inf, ""))
    state.fold(Started(state.now_s, jobs, np.array([1.0]), np.array([state.now_s]), measured=False))


def report(state: State, id_: str, rate: float, times: int = 10) -> None:
    jobs = np.array([state.position[id_]])
    for _ in range(times):
        state.fold(Progress(state.now_s + 1.0, jobs, np.array([1.0]), np.array([rate])))


def pass_rounds(state: State, rounds: int) -> None:
    for _ in range(rounds):
        state.fold(Decision(state.now_s + 1.0, Cause.ROUND, NONE, NONE, (), math.inf, ""))


def view_of(state: State) -> View:
    return look(state, ALL_KNOWING, 60.0)


def rates(state: State) -> list[list[float]]:
    return [[float(rate) for rate in row] for row in view_of(state).ideal_rate]


def test_reports_reach_the_rates_that_policies_see() -> None:
    """The table has 4 on a v100; reports of 2 halve it, within four rounds of at most 25 % each."""
    state = state_with(job("a", model="fast", tenant="x"))
    run_on(state, "a", 0)
    report(state, "a", 2.0, times=30)
    pass_rounds(state, 4)

    view = view_of(state)
    assert view.ideal_rate[0] == pytest.approx([2.0, 1.0], rel=1e-3)
    assert view.rate[0] == pytest.approx([2.0, 1.0], rel=1e-3)
    assert view.rate_at(0, V100, 1, 1) == pytest.approx(2.0, rel=1e-3)
    assert view.rate_on(0, ((0, 1),)) == pytest.approx(2.0, rel=1e-3)


def test_what_hops_multiplies_stays_the_learnt_rate() -> None:
    state = state_with(job("a", model="fast", tenant="x"))
    run_on(state, "a", 0)
    report(state, "a", 2.0)
    pass_rounds(state, 4)

    view = view_of(state)
    assert view.relative is not None
    assert view.rate_at(0, V100, 1, 1) * view.relative[0, 0] == pytest.approx(state.learnt_rate(0, ((0, 1),)))


def test_rates_change_by_at_most_a_quarter_from_round_to_round() -> None:
    state = state_with(job("a", model="fast", tenant="x"))
    run_on(state, "a", 0)
    seen = []
    for _ in range(8):
        report(state, "a", 1.0, times=5)
        seen.append(rates(state)[0][V100])
        pass_rounds(state, 1)

    steps = np.abs(np.diff(np.log([4.0, *seen])))
    assert np.all(steps <= STEP + 1e-9)
    assert seen[-1] == pytest.approx(1.0, rel=BAND)


def test_small_differences_change_nothing_and_call_for_no_decision() -> None:
    state = state_with(job("a", model="fast", tenant="x"))
    run_on(state, "a", 0)
    for rate in (4.1, 3.9, 4.05, 3.95):
        report(state, "a", rate)
    pass_rounds(state, 2)

    assert rates(state)[0] == [4.0, 1.0]
    assert state.measured.version == 0
    assert not state.measured.moves


def test_other_jobs_of_the_tenant_and_model_share_what_was_measured_and_no_one_else() -> None:
    state = state_with(
        job("a", model="fast", tenant="x"),
        job("same", model="fast", tenant="x", gpus=2),
        job("other tenant", model="fast", tenant="y"),
        job("other model", model="even", tenant="x"),
    )
    run_on(state, "a", 0)
    report(state, "a", 2.0, times=30)
    pass_rounds(state, 4)

    assert np.array(rates(state)) == pytest.approx(np.array([[2, 1], [4, 2], [4, 1], [1, 1]]), rel=1e-3)


def test_the_next_job_of_the_model_starts_from_what_the_last_one_taught() -> None:
    state = state_with(job("a", model="fast", tenant="x"))
    run_on(state, "a", 0)
    report(state, "a", 2.0, times=30)
    pass_rounds(state, 4)
    state.fold(Finished(state.now_s + 1.0, np.array([0]), np.array([1000.0])))
    state.fold(Arrived(state.now_s + 1.0, replace(job("b", model="fast", tenant="x"), arrival_s=state.now_s + 1.0)))
    pass_rounds(state, 4)

    assert rates(state)[0] == pytest.approx([2.0, 1.0], rel=1e-3)


def test_new_reports_outweigh_jobs_that_are_over() -> None:
    state = state_with(job("a", model="fast", tenant="x"), job("b", model="fast", tenant="x"))
    run_on(state, "a", 0)
    report(state, "a", 2.0, times=30)
    state.fold(Cancelled(state.now_s, np.array([0])))
    run_on(state, "b", 0)
    report(state, "b", 4.0, times=30)
    pass_rounds(state, 4)

    assert rates(state)[0][V100] == pytest.approx(4.0, rel=BAND)


def test_the_first_reports_of_a_model_without_a_profile_set_its_scale_but_not_its_ratios() -> None:
    state = state_with(job("a", model="unknown", tenant="x"))
    ratio = rates(state)[0][V100] / rates(state)[0][K80]
    run_on(state, "a", 0)
    report(state, "a", 85.0)

    assert rates(state)[0][V100] == pytest.approx(85.0, rel=1e-3)
    assert rates(state)[0][V100] / rates(state)[0][K80] == pytest.approx(ratio)


def test_the_ratios_of_a_model_without_a_profile_follow_once_both_types_have_reported() -> None:
    state = state_with(job("a", model="unknown", tenant="x"), job("b", model="unknown", tenant="x"))
    run_on(state, "a", 0)
    run_on(state, "b", 1)
    report(state, "a", 30.0, times=20)
    report(state, "b", 20.0, times=20)
    pass_rounds(state, 10)

    assert rates(state)[0] == pytest.approx([30.0, 20.0], rel=0.02)


def test_jobs_with_different_measured_rates_are_not_alike() -> None:
    state = state_with(job("a", model="fast", tenant="x"), job("b", model="fast", tenant="y"))
    assert len(set(view_of(state).alike.tolist())) == 1
    run_on(state, "a", 0)
    report(state, "a", 2.0)

    view = view_of(state)
    assert len(set(view.alike.tolist())) == 2
    assert len(set(view.measured_group.tolist())) == 2


def test_without_sensing_reports_change_no_rate() -> None:
    state = state_with(job("a", model="fast", tenant="x"), sensing=Sensing.TABLE)
    run_on(state, "a", 0)
    report(state, "a", 1.0)
    pass_rounds(state, 4)

    assert rates(state)[0] == [4.0, 1.0]


def halfway() -> State:
    """Measured rates that are still moving, in two groups, one of which has a job that is over."""
    state = state_with(
        job("a", model="fast", tenant="x"), job("b", model="unknown", tenant="y"), job("c", model="fast", tenant="x")
    )
    run_on(state, "a", 0)
    run_on(state, "b", 1)
    report(state, "a", 1.0, times=3)
    report(state, "b", 7.0, times=3)
    state.fold(Finished(state.now_s, np.array([0]), np.array([9.0])))
    pass_rounds(state, 1)
    return state


def test_a_snapshot_and_a_copy_continue_exactly_like_the_state() -> None:
    state = halfway()
    loaded = load(dump(state), CLUSTER, build_estimator(THREE, CLUSTER, None, Sensing.THREE_LAYER, unmeasured=True))
    copy = copied(state)
    assert state.measured.moves

    for one in (state, loaded, copy):
        run_on(one, "c", 0)
        report(one, "c", 1.3)
        pass_rounds(one, 2)

    assert rates(loaded) == rates(state) == rates(copy)
    assert dump(loaded) == dump(state) == dump(copy)


def test_rates_that_came_back_to_the_table_are_the_same_after_a_snapshot() -> None:
    """A learner treats jobs that it has not observed in another way once any factor was published."""
    measured, group = MeasuredRates(2), (0, 0)
    for factor in (2.0, 1.0):
        measured.report(group, 0, np.array([factor, 1.0]), np.array([0.5, 0.0]), scaled=True)
        for _ in range(10):
            measured.next_round()
    assert measured.factor(group) is None
    again = MeasuredRates(2)
    again.restore(json.loads(json.dumps(measured.to_json())))

    for one in (measured, again):
        factors = one.of_pairs(np.array([0]), np.array([0]))
        assert factors is not None
        assert factors[0].tolist() == [[1.0, 1.0]]


def test_a_copy_does_not_share_what_is_measured_later() -> None:
    state = halfway()
    before, copy = rates(state), copied(state)
    pass_rounds(copy, 3)

    assert rates(copy) != before
    assert rates(state) == before


def test_a_new_type_begins_with_the_table() -> None:
    state = state_with(job("a", model="fast", tenant="x"))
    run_on(state, "a", 0)
    report(state, "a", 2.0, times=30)
    pass_rounds(state, 4)
    state.fold(NodeAdded(state.now_s, "new-0", "p100", 4, 16.0))

    assert sorted(rates(state)[0]) == pytest.approx([1.0, 2.0, 2.0], rel=1e-3)


def test_groups_without_jobs_are_forgotten_when_there_are_too_many() -> None:
    measured = MeasuredRates(1)
    sure, half = np.array([0.9]), np.array([0.5])
    for model in range(MOST_GROUPS + 50):
        measured.report((0, model), model, half, sure, scaled=True)
        measured.end((0, model), model)

    kept = json.loads(json.dumps(measured.to_json()))["groups"]
    assert len(kept) == MOST_GROUPS
    assert kept[-1][1] == MOST_GROUPS + 49


def test_speeds_of_the_table_are_shared_by_tenants_but_measured_ones_are_not_in_oef() -> None:
    """Both tenants start with equal shares; then x turns out to be no faster on a v100 than on a k80."""
    speeds = profile({"m": {"v100": 3.0, "k80": 1.0}})
    state = State(CLUSTER, build_estimator(speeds, CLUSTER, None, Sensing.THREE_LAYER))
    for name in ("x", "y"):
        for n in range(8):
            state.fold(Arrived(0.0, job(f"{name}{n}", model="m", tenant=name)))
    policy = find_round_policy("oef-coop")
    before, _ = policy.allocate(look(state, policy, 60.0), None)
    run_on(state, "x0", 0)
    report(state, "x0", 1.0, times=30)
    pass_rounds(state, 6)
    after, _ = policy.allocate(look(state, policy, 60.0), None)

    assert before.gpus[:, V100] == pytest.approx([2.0, 2.0])  # type: ignore[union-attr]
    assert after.gpus[:, V100] == pytest.approx([0.0, 4.0], abs=1e-6)  # type: ignore[union-attr]
