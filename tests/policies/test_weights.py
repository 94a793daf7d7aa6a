"""A weight that is set while jobs run counts from the next round on, whatever is in a policy's memory."""

from __future__ import annotations

from operator import attrgetter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tenant_totals import by_tenant

from building import ROUND_POLICIES, Scene, job
from fairlead.model.events import TenantSet
from fairlead.policies.policy import Policy
from fairlead.rounds.look import look

CLOSE = 1e-4


@pytest.mark.parametrize("policy", ROUND_POLICIES, ids=attrgetter("name"))
@settings(max_examples=20)
@given(
    owners=st.lists(st.sampled_from("abc"), min_size=2, max_size=12),
    width=st.sampled_from((1, 2)),
    weight=st.sampled_from((0.25, 3.0, 10.0)),
)
def test_a_new_weight_gives_the_same_shares_with_and_without_memory(
    policy: Policy, owners: list[str], width: int, weight: float
) -> None:
    """On one type, where tenants' totals are unique."""
    state = Scene([job(f"j{i}", width, tenant=u) for i, u in enumerate(owners)], "v100:4").state()
    _, memory = policy.allocate(look(state, policy, 360.0), None)
    state.fold(TenantSet(state.now_s, owners[0], weight, ()))
    view = look(state, policy, 360.0)

    warm, _ = policy.allocate(view, memory)
    cold, _ = policy.allocate(view, None)

    assert by_tenant(view, warm) == pytest.approx(by_tenant(view, cold), abs=CLOSE)
