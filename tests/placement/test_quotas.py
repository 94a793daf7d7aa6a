"""Quotas hold under every policy, and other tenants may use what is left."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from operator import attrgetter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from building import ROUND_POLICIES, Scene, job, speed
from fairlead.model.allocation import NOWHERE, Answer, Level, Placement, Shares, Spot
from fairlead.model.decision import Cause
from fairlead.model.errors import InputError
from fairlead.model.events import TenantSet
from fairlead.model.jobs import JobSpec
from fairlead.model.quotas import Quota
from fairlead.model.view import View
from fairlead.policies import find_round_policy
from fairlead.policies.policy import Policy
from fairlead.rates.profile import Profile
from fairlead.rounds.decide import Memory, decide
from fairlead.rounds.look import look
from fairlead.rounds.state import State

FIFO = find_round_policy("fifo")

every_round_policy = pytest.mark.parametrize("policy", ROUND_POLICIES, ids=attrgetter("name"))


def decided(scene: Scene, quotas: Mapping[str, tuple[Quota, ...]], policy: Policy = FIFO) -> Counter[str]:
    """GPUs by tenant and type after one decision."""
    return held(after(scene, quotas, policy))


def after(
    scene: Scene, quotas: Mapping[str, tuple[Quota, ...]], policy: Policy = FIFO, cause: Cause = Cause.ROUND
) -> State:
    state = scene.state()
    for tenant, limits in quotas.items():
        state.fold(TenantSet(state.now_s, tenant, 1.0, limits))
    decision, _ = decide(look(state, policy, 360.0), policy, Memory(), cause)
    state.fold(decision)
    return state


def who_runs(state: State) -> set[str]:
    return {spec.id for spec, spot in zip(state.specs, state.spots, strict=True) if spot}


def held(state: State) -> Counter[str]:
    count: Counter[str] = Counter()
    for spec, spot in zip(state.specs, state.spots, strict=True):
        for node, gpus in spot:
            count[f"{spec.tenant} {state.cluster.types[state.cluster.node_type[node]]}"] += gpus
    return count


def jobs(tenant: str, count: int, gpus: int = 1) -> list[JobSpec]:
    return [job(f"{tenant}{i}", gpus, tenant=tenant) for i in range(count)]


def test_a_tenant_holds_no_more_than_its_own_and_what_it_may_borrow() -> None:
    scene = Scene([*jobs("a", 8), *jobs("b", 8)], "v100:8")

    assert decided(scene, {"a": (Quota("v100", 2, borrowing_limit=1),)}) == {"a v100": 3, "b v100": 5}


def test_what_a_tenant_does_not_lend_stays_free_for_it() -> None:
    scene = Scene(jobs("b", 8), "v100:8")

    assert decided(scene, {"a": (Quota("v100", 4, lending_limit=1),)}) == {"b v100": 5}


def test_a_tenant_at_its_limit_of_one_type_takes_another() -> None:
    scene = Scene(jobs("a", 4), "v100:4,k80:4")

    assert decided(scene, {"a": (Quota("v100", 1, borrowing_limit=0),)}) == {"a v100": 1, "a k80": 3}


def test_a_lowered_quota_takes_gpus_back_at_the_next_round() -> None:
    scene = Scene(jobs("a", 4), "v100:4", held={f"a{i}": ((0, 1),) for i in range(4)}, now_s=360.0)

    assert decided(scene, {"a": (Quota("v100", 2, borrowing_limit=0),)}) == {"a v100": 2}


ALL_LENT = Scene(
    [*jobs("b", 8), *jobs("a", 6)], "v100:8", held={f"b{i}": ((i // 4, 1),) for i in range(8)}, now_s=360.0
)


def test_what_is_lent_comes_back_at_a_round_from_the_newest_borrowers() -> None:
    state = after(ALL_LENT, {"a": (Quota("v100", 4),)})

    assert who_runs(state) == {"b0", "b1", "b2", "b3", "a0", "a1", "a2", "a3"}


def test_a_tenant_that_borrows_nothing_is_not_displaced() -> None:
    assert decided(ALL_LENT, {"a": (Quota("v100", 4),), "b": (Quota("v100", 6),)}) == {"a v100": 2, "b v100": 6}


def test_inside_a_round_no_job_is_displaced() -> None:
    state = after(ALL_LENT, {"a": (Quota("v100", 4),)}, cause=Cause.EVENT)

    assert held(state) == {"b v100": 8}


def test_pinned_borrowers_are_not_displaced() -> None:
    fresh = replace(ALL_LENT, restart_s=1000.0, since={"b7": 300.0, "b6": 300.0})
    old = replace(fresh, now_s=2300.0, since={"b7": 2200.0, "b6": 2200.0})

    assert held(after(fresh, {"a": (Quota("v100", 4),)})) == {"b v100": 8}
    assert who_runs(after(old, {"a": (Quota("v100", 4),)})) == {"b0", "b1", "b6", "b7", "a0", "a1", "a2", "a3"}


def test_a_borrower_whose_gpus_are_not_needed_stays_on_its_spot() -> None:
    """b9 alone makes no room for a; with b8 gone it need not go, and it does not change places with b1, which waits."""
    scene = Scene(
        [job(id_, gpus, tenant=id_[0]) for id_, gpus in (("b0", 3), ("b1", 1), ("b8", 4), ("b9", 1), ("a", 2))],
        "v100:8",
        held={"b0": ((0, 3),), "b8": ((1, 4),), "b9": ((0, 1),)},
        now_s=360.0,
    )
    stay = Policy("stay", "", "", Level.PLACEMENT, lambda view, memory: (Placement(_stay(view)), None))

    state = after(scene, {"a": (Quota("v100", 2),)}, stay)

    assert who_runs(state) == {"a", "b0", "b1", "b9"}
    assert state.spots[state.position["b9"]] == ((0, 1),)


def _stay(view: View) -> tuple[Spot, ...]:
    return tuple(view.spots.get(j, NOWHERE) for j in range(view.jobs))


def test_a_displaced_gang_leaves_its_tenant_its_own_quota() -> None:
    scene = Scene(
        [job("wide", 8, tenant="b"), *jobs("b", 6), *jobs("a", 2)],
        "v100:8",
        held={"wide": ((0, 4), (1, 4))},
        now_s=360.0,
    )

    assert decided(scene, {"a": (Quota("v100", 2),), "b": (Quota("v100", 4),)}) == {"a v100": 2, "b v100": 6}


@pytest.mark.parametrize("name", ["gavel", "gavel-waterfill", "oef-coop", "equal-share"])
def test_what_limits_take_from_a_share_stays_owed(name: str) -> None:
    """Deficits are what shares promised minus what was granted, without what a limit then denied."""
    policy = find_round_policy(name)
    state = Scene([*jobs("a", 4), *jobs("b", 4)], "v100:4").state()
    state.fold(TenantSet(state.now_s, "a", 1.0, (Quota("v100", 1, borrowing_limit=0),)))
    view = look(state, policy, 360.0)
    shares, _ = policy.allocate(view, None)
    assert isinstance(shares, Shares)

    decision, memory = decide(view, policy, Memory())

    state.fold(decision)
    gpus = np.array([sum(count for _, count in spot) for spot in state.spots])
    given_to = np.zeros(len(shares.gpus))
    np.add.at(given_to, shares.owner_of, gpus)
    assert held(state) == {"a v100": 1, "b v100": 3}
    assert memory.owed.gpus[:, 0] == pytest.approx(shares.gpus[:, 0] - given_to, abs=1e-5)


def test_what_a_limit_takes_from_a_running_job_is_owed_and_the_answer_holds_no_longer() -> None:
    state = Scene(jobs("a", 1), "v100:1", held={"a0": ((0, 1),)}, now_s=360.0).state()
    state.fold(TenantSet(state.now_s, "a", 1.0, (Quota("v100", 0, borrowing_limit=0),)))
    for_ever = Shares(np.array([[1.0]]), np.arange(1), np.arange(1), Answer(holds_until_s=math.inf))
    policy = Policy("for-ever", "", "", Level.SHARES, lambda view, memory: (for_ever, None))

    decision, memory = decide(look(state, policy, 360.0), policy, Memory())

    assert decision.stop.tolist() == [0]
    assert memory.owed.gpus.tolist() == [[1.0]]
    assert decision.holds_until_s == 360.0


def test_a_quota_that_lends_more_than_it_has_is_refused() -> None:
    with pytest.raises(InputError, match="cannot exceed the nominal 2"):
        Quota("v100", 2, lending_limit=3)


limits = st.builds(
    Quota,
    st.sampled_from(["v100", "k80"]),
    st.integers(3, 6),
    st.none() | st.integers(0, 3),
    st.none() | st.integers(0, 3),
)


@every_round_policy
@given(
    first=st.lists(limits, max_size=2, unique_by=lambda quota: quota.type),
    second=st.lists(limits, max_size=2, unique_by=lambda quota: quota.type),
    widths=st.lists(st.sampled_from([1, 1, 2, 4]), min_size=1, max_size=10),
)
def test_no_policy_leads_a_tenant_past_its_limits(
    policy: Policy, first: list[Quota], second: list[Quota], widths: list[int]
) -> None:
    scene = Scene([job(f"j{i}", w, tenant="ab"[i % 2]) for i, w in enumerate(widths)], "v100:8,k80:4")
    quotas = {"a": tuple(first), "b": tuple(second)}

    state = after(scene, quotas, policy)

    count = held(state)

    for tenant, other in (("a", "b"), ("b", "a")):
        for quota in quotas[tenant]:
            if quota.borrowing_limit is not None:
                assert count[f"{tenant} {quota.type}"] <= quota.nominal + quota.borrowing_limit
            if quota.lending_limit is not None:
                capacity = {"v100": 8, "k80": 4}[quota.type]
                kept = min(quota.nominal - quota.lending_limit, capacity)
                assert count[f"{other} {quota.type}"] <= max(capacity - kept, 0)
    waiting = {spec.tenant for spec in state.specs if spec.gpus == 1 and spec.id not in who_runs(state)}
    for tenant, other in (("a", "b"), ("b", "a")):
        for type_, capacity in (("v100", 8), ("k80", 4)):
            mine, theirs = (next((q for q in quotas[u] if q.type == type_), Quota(type_, 0)) for u in (tenant, other))
            room = capacity - count[f"{tenant} {type_}"] - max(count[f"{other} {type_}"], _kept(theirs))
            if mine.borrowing_limit is not None:
                room = min(room, mine.nominal + mine.borrowing_limit - count[f"{tenant} {type_}"])
            assert room <= 0 or tenant not in waiting or not (first or second)  # what may be used is used


def _kept(quota: Quota) -> int:
    return 0 if quota.lending_limit is None else quota.nominal - quota.lending_limit


@every_round_policy
@given(data=st.data())
def test_under_every_policy_a_tenant_that_wants_its_own_has_it_after_a_round(
    policy: Policy, data: st.DataObject
) -> None:
    """Jobs of one GPU with any holdings before; the tenants' own quotas fit the cluster."""
    own = {"a": data.draw(st.integers(0, 4)), "b": data.draw(st.integers(0, 4)), "c": 0}
    lends = {u: data.draw(st.none() | st.integers(0, own[u])) for u in "ab"}
    owners = data.draw(st.lists(st.sampled_from("abc"), min_size=1, max_size=16))
    running = data.draw(st.lists(st.sampled_from(range(len(owners))), max_size=8, unique=True))
    scene = Scene(
        [job(f"j{i:02}", tenant=u) for i, u in enumerate(owners)],
        "v100:8",
        held={f"j{i:02}": ((at // 4, 1),) for at, i in enumerate(running)},
        now_s=360.0,
    )
    quotas = {u: (Quota("v100", own[u], lending_limit=lends[u]),) for u in "ab"}

    count = decided(scene, quotas, policy)

    for u in "abc":
        assert count[f"{u} v100"] >= min(own[u], owners.count(u))


def test_a_job_that_does_not_run_spread_is_not_spread_by_the_refill() -> None:
    """Each node has one GPU left. The quota of a tenant without jobs is enough for the refill to look."""
    whole = replace(speed("whole", "v100", 0.0), gpus=2, nodes=2)
    speeds = Profile("made up", (speed("whole", "v100", 1.0), whole, speed("even", "v100", 1.0)))
    waiting = [job("a", 3), job("b", 3), job("c", 2, model="whole")]
    scene = Scene(waiting, "v100:8", speeds, held={"a": ((0, 3),), "b": ((1, 3),)})

    assert who_runs(after(scene, {"other": (Quota("v100", 0),)})) == {"a", "b"}
