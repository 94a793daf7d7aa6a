"""A broken promise has a cause: worlds with one cause each, and parts that add up in any run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from building import job, possible, profile, setup, setups, speed
from fairlead.model.allocation import Spot
from fairlead.model.cluster import parse_short_form
from fairlead.model.decision import Cause, Decision
from fairlead.model.events import Arrived, Event, Started, Stopped, TenantSet
from fairlead.model.jobs import JobSpec
from fairlead.model.quotas import Quota
from fairlead.rates.estimator import TableEstimator
from fairlead.rates.profile import Profile
from fairlead.rounds.loop import Journal
from fairlead.rounds.state import State
from fairlead.studies.fairness.journal_audit import Auditor, RunAudit
from fairlead.studies.fairness.lack_causes import LackCause
from fairlead.studies.fairness.promise_verdicts import PromiseVerdict, Standing
from fairlead.studies.runs.simulate import Setup, simulate

ROUND_S = 360.0
LONG_S = 1000 * ROUND_S
EVEN = profile({"even": {"v100": 1.0, "k80": 1.0}, "v": {"v100": 1.0}, "steep": {"v100": 4.0, "k80": 1.0}})


class World:
    """Jobs and holdings that a test decides by hand, under a policy that promises no envy and the sharing incentive."""

    def __init__(self, cluster: str, jobs: Sequence[JobSpec], speeds: Profile = EVEN) -> None:
        made = parse_short_form(cluster)
        self.auditor = Auditor(State(made, TableEstimator(speeds, made)), "oef-coop", ROUND_S)
        for spec in jobs:
            self.auditor.fold(Arrived(0.0, spec))

    def decide(
        self,
        time_s: float,
        start: Mapping[str, Spot],
        stop: Sequence[str] = (),
        *,
        slower: Mapping[str, float] | None = None,
        resume_s: float = 0.0,
    ) -> None:
        state = self.auditor.state
        started = np.array([state.position[id_] for id_ in start], dtype=np.int64)
        stopped = np.array([state.position[id_] for id_ in stop], dtype=np.int64)
        order = np.argsort(started)
        spots = tuple(list(start.values())[place] for place in order)
        self.auditor.fold(Decision(time_s, Cause.ROUND, np.sort(stopped), started[order], spots, math.inf, ""))
        rate = np.array([self._rate(id_) * (slower or {}).get(id_, 1.0) for id_ in start])
        if len(started):
            self.auditor.fold(Started(time_s, started[order], rate[order], np.full(len(rate), time_s + resume_s)))

    def _rate(self, id_: str) -> float:
        state = self.auditor.state
        j = state.position[id_]
        return float(state.best_rate[j, state.held_type[j]])

    def until(self, time_s: float) -> RunAudit:
        self.decide(time_s, {})
        return self.auditor.audit()


def broken(audit: RunAudit) -> PromiseVerdict:
    verdict = audit.promises[0]
    assert verdict.promise == "sharing incentive"
    assert verdict.standing is Standing.BROKEN
    assert verdict.tenants == ("a",)
    assert sum(verdict.causes.values()) == pytest.approx(1.0)
    return verdict


def single(tenant: str, count: int, model: str = "even") -> list[JobSpec]:
    return [job(f"{tenant}{i}", tenant=tenant, model=model) for i in range(count)]


def test_a_slice_that_is_no_whole_number_of_gangs_is_short_by_whole_gangs() -> None:
    """Of six GPUs three are its own, and its gangs are two wide."""
    pairs = [job(f"a{i}", 2, tenant="a") for i in range(3)]
    world = World("v100:6x6", [*pairs, *single("b", 6)])
    world.decide(0.0, {"a0": ((0, 2),), **{f"b{i}": ((0, 1),) for i in range(4)}})

    verdict = broken(world.until(LONG_S))

    assert verdict.value == pytest.approx(2 / 3)
    assert verdict.causes[LackCause.WHOLE_GANGS] >= 0.95


def test_a_slice_of_types_that_its_waiting_jobs_cannot_use_is_short_by_types() -> None:
    """It holds its four V100s and could use K80s with these jobs; what waits runs on V100s only."""
    jobs = [*single("a", 4), *[job(f"v{i}", tenant="a", model="v") for i in range(24)], *single("b", 24)]
    world = World("v100:8x8,k80:40x40", jobs)
    held: dict[str, Spot] = {f"a{i}": ((0, 1),) for i in range(4)}
    world.decide(0.0, {**held, **{f"b{i}": ((0 if i < 4 else 1, 1),) for i in range(24)}})

    assert broken(world.until(LONG_S)).causes[LackCause.UNUSABLE_TYPES] >= 0.95


def test_a_tenant_that_may_not_hold_its_slice_is_short_by_quotas() -> None:
    world = World("v100:8x8", [*single("a", 8), *single("b", 8)])
    world.auditor.fold(TenantSet(0.0, "a", 1.0, (Quota("v100", 1, borrowing_limit=1),)))
    world.decide(0.0, {**{f"a{i}": ((0, 1),) for i in range(2)}, **{f"b{i}": ((0, 1),) for i in range(6)}})

    verdict = broken(world.until(LONG_S))

    assert verdict.value == pytest.approx(0.5)
    assert verdict.causes[LackCause.QUOTAS] >= 0.95


def test_a_tenant_with_few_jobs_is_short_by_these() -> None:
    """Its slice is forty GPUs; one single job waits and two run."""
    world = World("v100:80x80", [*single("a", 3), *single("b", 78)])
    world.decide(0.0, {**{f"a{i}": ((0, 1),) for i in range(2)}, **{f"b{i}": ((0, 1),) for i in range(78)}})

    assert broken(world.until(LONG_S)).causes[LackCause.FEW_JOBS] >= 0.95


def test_a_tenant_that_restarts_all_the_time_is_short_by_restarts() -> None:
    """It holds its slice, and restores a checkpoint for a third of every round."""
    world = World("v100:4", [*single("a", 3), *single("b", 3)])
    world.decide(0.0, {"a0": ((0, 1),), "a1": ((0, 1),), "b0": ((0, 1),), "b1": ((0, 1),)})
    state = world.auditor.state
    for number in range(1, 100):
        for id_ in ("a0", "a1"):
            move(world, id_, number * ROUND_S, resume_s=120.0)
        assert state.restarts[state.position["a0"]] == number

    verdict = broken(world.until(100 * ROUND_S))

    assert verdict.causes[LackCause.RESTARTS] >= 0.95
    tenant = world.auditor.audit().tenants["a"]
    assert tenant.restarts == 2 * 99
    assert tenant.restart_gpu_hours == pytest.approx(2 * 99 * 120.0 / 3600)


def move(world: World, id_: str, time_s: float, resume_s: float) -> None:
    """The job stops and starts on the same GPU, and the engine confirms both."""
    state = world.auditor.state
    jobs = np.array([state.position[id_]])
    world.auditor.fold(Decision(time_s, Cause.ROUND, jobs, jobs, (((0, 1),),), math.inf, ""))
    world.auditor.fold(Stopped(time_s, jobs, np.array([0.0])))
    world.auditor.fold(Started(time_s, jobs, np.array([1.0]), np.array([time_s + resume_s])))


def test_a_tenant_that_waited_for_one_turn_of_a_short_stay_is_short_by_time() -> None:
    world = World("v100:4", [*single("a", 4), *single("b", 4)])
    world.decide(0.0, {f"b{i}": ((0, 1),) for i in range(4)})

    audit = world.until(ROUND_S)

    assert broken(audit).causes[LackCause.SHORT_TIME] >= 0.95
    assert audit.max_envy is None  # unbounded: it held nothing


def test_a_tenant_that_is_never_served_is_short_by_the_policys_division() -> None:
    world = World("v100:4", [*single("a", 4), *single("b", 4)])
    world.decide(0.0, {f"b{i}": ((0, 1),) for i in range(4)})

    assert broken(world.until(LONG_S)).causes[LackCause.DIVISION] >= 0.95


def test_a_tenant_whose_fast_gpus_are_slower_than_declared_is_short_by_wrong_speeds() -> None:
    """By what is declared its three V100s are worth twelve K80s, as much as half of everything; they are worth three."""
    world = World("v100:4x4,k80:8x8", [*single("a", 8, "steep"), *single("b", 12)])
    slow = {f"a{i}": 0.25 for i in range(3)}
    world.decide(
        0.0,
        {**{f"a{i}": ((0, 1),) for i in range(3)}, "b0": ((0, 1),), **{f"b{i}": ((1, 1),) for i in range(1, 9)}},
        slower=slow,
    )

    verdict = broken(world.until(LONG_S))

    assert verdict.value == pytest.approx(3 / 6)
    assert verdict.causes[LackCause.WRONG_SPEEDS] >= 0.95


def test_a_tenant_whose_gang_is_spread_over_nodes_is_short_by_that() -> None:
    """It holds its half of the GPUs, one on each node, where its gang has half the speed that it has on one."""
    whole = (speed("whole", "v100", 1.0), replace(speed("whole", "v100", 0.5), gpus=2, nodes=2))
    speeds = Profile("made up", (*whole, speed("even", "v100", 1.0)))
    gangs = [job(f"a{i}", 2, tenant="a", model="whole") for i in range(2)]
    world = World("v100:4x2", [*gangs, *single("b", 4)], speeds)
    world.decide(0.0, {"a0": ((0, 1), (1, 1)), "b0": ((0, 1),), "b1": ((1, 1),)}, slower={"a0": 0.5})

    verdict = broken(world.until(LONG_S))

    assert verdict.value == pytest.approx(0.5)
    assert verdict.causes[LackCause.SPREAD] >= 0.95


def test_envy_of_a_tenant_that_has_its_slice_is_that_the_other_one_has_more() -> None:
    """Each of four tenants has a slice of two GPUs. Two of them have a single job, and lend the rest to one of the others."""
    world = World("v100:8x8", [*single("a", 3), *single("b", 8), job("c0", tenant="c"), job("d0", tenant="d")])
    held: dict[str, Spot] = {f"a{i}": ((0, 1),) for i in range(2)}
    world.decide(0.0, {**held, **{f"b{i}": ((0, 1),) for i in range(4)}, "c0": ((0, 1),), "d0": ((0, 1),)})

    envy = next(one for one in world.until(LONG_S).promises if one.promise == "no envy")

    assert (envy.standing, envy.tenants) == (Standing.BROKEN, ("a", "b"))
    assert envy.value == pytest.approx(1.0)
    assert envy.causes[LackCause.OTHERS_MORE] >= 0.95


def test_what_is_lent_and_borrowed_adds_up() -> None:
    """One job does not want the other half of the cluster, and the other tenant does."""
    world = World("v100:4", [*single("a", 1), *single("b", 4)])
    world.decide(0.0, {"a0": ((0, 1),), **{f"b{i}": ((0, 1),) for i in range(3)}})

    audit = world.until(3600.0)

    a, b = audit.tenants["a"], audit.tenants["b"]
    assert a.sharing_incentive is None
    assert a.entitled_gpu_hours == pytest.approx(2.0)
    assert a.lent_gpu_hours == b.borrowed_gpu_hours == pytest.approx(1.0)
    assert a.borrowed_gpu_hours == b.lent_gpu_hours == 0.0
    assert [verdict.standing for verdict in audit.promises] == ["kept", "kept", "not promised", "not promised"]


class Audited(Journal):
    """Audits a run while it is simulated."""

    def __init__(self, made: Setup) -> None:
        state = State(made.cluster, made.estimator(), made.tenant_weight)
        self.auditor = Auditor(state, made.policy.name, made.settings.round_s)

    def event(self, event: Event) -> None:
        self.auditor.fold(event)

    def decision(self, decision: Decision) -> None:
        self.auditor.fold(decision)


@pytest.mark.parametrize("policy", ["oef-coop", "gavel", "fifo"])
@settings(max_examples=15)
@given(data=st.data())
def test_causes_add_up_to_what_is_missing_in_any_run(policy: str, data: st.DataObject) -> None:
    made = possible(data.draw(setups(policy)))
    watch = Audited(made)

    simulate(made, watch=watch)

    audit = watch.auditor.audit()
    for tenant in audit.tenants.values():
        if tenant.sharing_incentive is not None:
            lacked = sum(tenant.missing.values())
            assert math.isfinite(lacked)
            assert (lacked > 1e-9) <= (tenant.sharing_incentive < 1.0)
    for verdict in audit.promises:
        assert not verdict.causes or sum(verdict.causes.values()) == pytest.approx(1.0)


def test_an_audit_that_was_stored_continues_as_if_it_had_not_been() -> None:
    made = setup([*single("a", 3), *single("b", 3)], "v100:2", "oef-coop", EVEN, restart_s=30.0)
    whole, records = Audited(made), Kept()
    simulate(made, watch=records)
    half = len(records.records) // 2
    first, second = Audited(made).auditor, Audited(made).auditor
    for record in records.records[:half]:
        first.fold(record)
        second.fold(record)
    second.restore(first.to_json())

    for record in records.records:
        whole.auditor.fold(record)
    for record in records.records[half:]:
        second.fold(record)

    assert second.audit() == whole.auditor.audit()


class Kept(Journal):
    def __init__(self) -> None:
        self.records: list[Event | Decision] = []

    def event(self, event: Event) -> None:
        self.records.append(event)

    def decision(self, decision: Decision) -> None:
        self.records.append(decision)
