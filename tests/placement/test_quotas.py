"""Tenants keep to their quotas whatever the policy says, and what they leave others use."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from building import Scene, job
from fairlead.model.allocation import Level
from fairlead.model.errors import InputError
from fairlead.model.events import TenantSet
from fairlead.model.jobs import JobSpec
from fairlead.model.quotas import Quota
from fairlead.policies import REGISTRY
from fairlead.policies.policy import Policy
from fairlead.rounds.decide import Memory, decide
from fairlead.rounds.look import look
from fairlead.rounds.state import State


def decided(scene: Scene, quotas: dict[str, tuple[Quota, ...]], policy: Policy = REGISTRY["fifo"]) -> Counter[str]:
    """GPUs by tenant and type after one decision."""
    state = scene.state()
    for tenant, limits in quotas.items():
        state.fold(TenantSet(state.now_s, tenant, 1.0, limits))
    decision, _ = decide(look(state, policy, 360.0), policy, Memory())
    state.fold(decision)
    return held(state)


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


@pytest.mark.parametrize("name", [policy.name for policy in REGISTRY.values() if policy.level is not Level.TASKS])
@given(
    first=st.lists(limits, max_size=2, unique_by=lambda quota: quota.type),
    second=st.lists(limits, max_size=2, unique_by=lambda quota: quota.type),
    widths=st.lists(st.sampled_from([1, 1, 2, 4]), min_size=1, max_size=10),
)
def test_no_policy_leads_a_tenant_past_its_limits(
    name: str, first: list[Quota], second: list[Quota], widths: list[int]
) -> None:
    scene = Scene([job(f"j{i}", w, tenant="ab"[i % 2]) for i, w in enumerate(widths)], "v100:8,k80:4")
    quotas = {"a": tuple(first), "b": tuple(second)}

    count = decided(scene, quotas, REGISTRY[name])

    for tenant, other in (("a", "b"), ("b", "a")):
        for quota in quotas[tenant]:
            if quota.borrowing_limit is not None:
                assert count[f"{tenant} {quota.type}"] <= quota.nominal + quota.borrowing_limit
            if quota.lending_limit is not None:
                capacity = {"v100": 8, "k80": 4}[quota.type]
                kept = min(quota.nominal - quota.lending_limit, capacity)
                assert count[f"{other} {quota.type}"] <= max(capacity - kept, 0)
    assert np.all(list(count.values()))
