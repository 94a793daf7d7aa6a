"""Weights of jobs count inside their tenant; between tenants only the operator's weights of the tenants count."""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tenant_totals import by_tenant

from building import ROUND_POLICIES, Scene, job, setup
from fairlead.model.events import TenantSet
from fairlead.model.jobs import JobSpec
from fairlead.model.view import View
from fairlead.numerics.entitled import entitled_weights
from fairlead.policies import find_round_policy
from fairlead.policies.gavel import gavel
from fairlead.policies.policy import Policy
from fairlead.rounds.look import look
from fairlead.studies.runs.simulate import simulate

BY_WEIGHT = ("equal-share", "gavel", "gavel-waterfill", "gavel-hierarchical")  # jobs get shares by their weights


def two_tenants(greedy: float, tenant_weight: dict[str, float] | None = None) -> View:
    """Two jobs of a, one of them with weight `greedy`, and two of b, on two GPUs, where they could use four."""
    jobs = [job("a1", tenant="a", weight=greedy), job("a2", tenant="a"), job("b1", tenant="b"), job("b2", tenant="b")]
    return Scene(jobs, "v100:2", tenant_weight=tenant_weight or {}).view()


def test_a_member_that_gives_its_job_a_huge_weight_takes_no_more_than_its_tenants_half() -> None:
    """Two GPUs, four jobs: a's jobs together get one GPU, of which the heavy job takes all."""
    view = two_tenants(1e9)
    shares, _ = gavel(view, None)

    assert shares.gpus.sum(axis=1) == pytest.approx([1.0, 0.0, 0.5, 0.5], abs=1e-6)


@pytest.mark.parametrize("name", BY_WEIGHT)
def test_the_operators_weight_decides_between_tenants(name: str) -> None:
    """Weights 3 and 1, the same jobs: three times as much for a, whatever a's jobs weigh."""
    policy = find_round_policy(name)
    jobs = [job(f"{u}{i}", tenant=u, weight=50.0 if u == "a" else 1.0) for u in "ab" for i in range(4)]
    view = Scene(jobs, "v100:4", tenant_weight={"a": 3.0}).view()
    shares, _ = policy.allocate(view, None)

    assert by_tenant(view, shares) == pytest.approx([3.0, 1.0], abs=1e-6)


def test_a_weight_of_a_tenant_that_is_set_while_jobs_run_reaches_the_weights_of_its_jobs() -> None:
    state = Scene([job("a", tenant="a"), job("b", tenant="b")]).state()
    policy = find_round_policy("gavel")
    before = look(state, policy, 360.0).weight
    state.fold(TenantSet(state.now_s, "b", 4.0, ()))

    assert before.tolist() == [1.0, 1.0]
    assert look(state, policy, 360.0).weight.tolist() == [1.0, 4.0]


def test_jobs_of_one_tenant_keep_their_weights() -> None:
    weight = np.array([0.5, 2.0, 1e9])

    assert entitled_weights(weight, np.zeros(3, dtype=np.int64), np.array([7.0, 1.0])) is weight


@given(
    weight=st.lists(st.floats(1e-3, 1e9), min_size=2, max_size=12),
    owners=st.data(),
    tenant_weight=st.lists(st.floats(0.1, 10.0), min_size=3, max_size=3),
)
def test_a_tenants_jobs_weigh_its_own_weight_on_average_and_keep_their_proportions(
    weight: list[float], owners: st.DataObject, tenant_weight: list[float]
) -> None:
    tenant = np.array(owners.draw(st.lists(st.integers(0, 2), min_size=len(weight), max_size=len(weight))))
    tenant[:2] = (0, 1)
    entitled = entitled_weights(np.array(weight), tenant, np.array(tenant_weight))

    for u in set(tenant.tolist()):
        own = tenant == u
        assert entitled[own].mean() == pytest.approx(tenant_weight[u])
        assert entitled[own] / entitled[own][0] == pytest.approx(np.array(weight)[own] / np.array(weight)[own][0])


@pytest.mark.parametrize("policy", ROUND_POLICIES, ids=attrgetter("name"))
@settings(max_examples=8)
@given(
    jobs=st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from((1.0, 2.0, 5.0))), min_size=2, max_size=10),
    width=st.sampled_from((1, 2)),
    factor=st.sampled_from((1e-6, 1e-2, 30.0, 1e8)),
)
def test_scaling_its_own_jobs_weights_gives_a_tenant_nothing(
    policy: Policy, jobs: list[tuple[str, float]], width: int, factor: float
) -> None:
    """On one type, where tenants' totals are unique."""
    honest = [job(f"j{i}", width, tenant=u, weight=w) for i, (u, w) in enumerate([("b", 1.0), *jobs])]

    assert totals(policy, scaled(honest, factor)) == pytest.approx(totals(policy, honest), abs=1e-4)


def totals(policy: Policy, jobs: list[JobSpec]) -> list[float]:
    view = look(Scene(jobs, "v100:4").state(), policy, 360.0)
    return list(by_tenant(view, policy.allocate(view, None)[0]))


def scaled(jobs: list[JobSpec], factor: float) -> list[JobSpec]:
    return [replace(spec, weight=spec.weight * factor) if spec.tenant == "a" else spec for spec in jobs]


@pytest.mark.parametrize("policy", ROUND_POLICIES, ids=attrgetter("name"))
def test_a_whole_run_is_the_same_if_a_tenant_scales_its_weights(policy: Policy, tmp_path: Path) -> None:
    jobs = [
        job(f"j{i}", 1 + i % 2, 900.0 + 100 * i, at=40.0 * i, tenant="ab"[i % 2], weight=1.0 + i % 3) for i in range(8)
    ]

    assert ends(policy, scaled(jobs, 2.0**20), tmp_path / "1") == ends(policy, jobs, tmp_path / "0")


def ends(policy: Policy, jobs: list[JobSpec], journal: Path) -> list[float]:
    return list(simulate(setup(jobs, "v100:2,k80:1", policy), journal).state.end_s[: len(jobs)])
