"""Worked examples that can be checked by hand: W = (1,2), (1,3), (1,4) on one slow and one fast GPU, and others."""

from __future__ import annotations

import numpy as np
import pytest

from fairlead.model.arrays import FloatArray
from fairlead.numerics.fairness import audit
from fairlead.numerics.solve import LinearProgram, Optimal, columns_from_entries, solve
from fairlead.policies.gandiva_fair import gandiva_fair
from fairlead.policies.oef import cooperative, non_cooperative
from fairlead.policies.tenants import split_weights

W = np.array([[1.0, 2.0], [1.0, 3.0], [1.0, 4.0]])
ONE_EACH = np.ones(2)
EQUAL = np.ones(3)

PARETO_W = np.array([[1.0, 3.0, 5.0], [1.0, 3.0, 4.5], [1.0, 1.5, 1.5]])
PARETO_M = np.array([2.0, 3.0, 1.0])


def equal_split(speedup: FloatArray, capacity: FloatArray, weight: FloatArray) -> FloatArray:
    return np.outer(weight / weight.sum(), capacity)


def gavel(speedup: FloatArray, capacity: FloatArray, weight: FloatArray) -> FloatArray:
    """max t s.t. W_l.x_l >= t w_l / sum(w) W_l.m, sum_l x_lj <= m_j: a tenant may hold many GPUs."""
    n, k = speedup.shape
    x, t = np.arange(n * k), n * k
    start, index, value = columns_from_entries(
        row=np.concatenate([np.repeat(np.arange(n), k), np.arange(n), n + np.tile(np.arange(k), n)]),
        column=np.concatenate([x, np.full(n, t), x]),
        value=np.concatenate([speedup.ravel(), -(speedup @ capacity) * weight / weight.sum(), np.ones(n * k)]),
        columns=t + 1,
    )
    outcome = solve(
        LinearProgram(
            cost=np.append(np.zeros(n * k), -1.0),
            low=np.zeros(t + 1),
            high=np.full(t + 1, np.inf),
            row_low=np.append(np.zeros(n), np.full(k, -np.inf)),
            row_high=np.append(np.full(n, np.inf), capacity),
            start=start,
            index=index,
            value=value,
        )
    )
    assert isinstance(outcome, Optimal)
    return outcome.x[:t].reshape(n, k)


def coop(speedup: FloatArray, capacity: FloatArray, weight: FloatArray) -> FloatArray:
    return cooperative(speedup, capacity, weight).shares


def non_coop(speedup: FloatArray, capacity: FloatArray, weight: FloatArray) -> FloatArray:
    return non_cooperative(speedup, capacity, weight).shares


@pytest.mark.parametrize(
    ("policy", "total", "max_envy", "incentive"),
    [
        (equal_split, 4.0, 0.0, 1.0),
        (gandiva_fair, 4.333, 0.0, 1.0),
        (gavel, 4.408, 0.0667, 1.1020),
        (non_coop, 4.154, 0.3333, 0.8308),
        (coop, 4.5, 0.0, 1.0),
    ],
)
def test_five_policies_reach_their_totals_and_audits(
    policy: object, total: float, max_envy: float, incentive: float
) -> None:
    assert callable(policy)
    shares = policy(W, ONE_EACH, EQUAL)
    report = audit(W, shares, ONE_EACH, EQUAL)
    assert np.sum(W * shares) == pytest.approx(total, abs=5e-4)
    assert report.max_envy == pytest.approx(max_envy, abs=5e-5)
    assert report.min_sharing_incentive == pytest.approx(incentive, abs=5e-5)
    if policy is not equal_split:
        assert report.pareto_gap == pytest.approx(0, abs=1e-6)


def test_cooperation_gives_the_slow_gpu_to_the_flattest_tenant() -> None:
    split = cooperative(W, ONE_EACH, EQUAL)
    assert split.shares == pytest.approx(np.array([[1, 0], [0, 0.5], [0, 0.5]]))
    assert split.level == pytest.approx([1, 1.5, 2])
    assert split.price @ ONE_EACH == pytest.approx(4.5)
    assert split.status == "optimal"


def test_without_cooperation_all_levels_are_equal() -> None:
    split = non_cooperative(W, ONE_EACH, EQUAL)
    assert split.level == pytest.approx([18 / 13] * 3)
    assert split.price @ ONE_EACH == pytest.approx(54 / 13)


def test_under_reporting_pays_in_the_non_cooperative_mode() -> None:
    truth = np.array([[1.0, 2.0], [1.0, 2.0]])
    reported = np.array([[1.0, 1.2], [1.0, 2.0]])
    honest = non_cooperative(truth, ONE_EACH, np.ones(2)).shares
    lying = non_cooperative(reported, ONE_EACH, np.ones(2)).shares
    assert np.sum(truth * honest, axis=1) == pytest.approx([1.5, 1.5])
    assert np.sum(truth * lying, axis=1) == pytest.approx([1.625, 1.375])


def test_cooperation_is_not_pareto_efficient_among_all_shares() -> None:
    split = cooperative(PARETO_W, PARETO_M, EQUAL)
    assert split.level == pytest.approx([19 / 3, 73 / 12, 8 / 3])
    report = audit(PARETO_W, split.shares, PARETO_M, EQUAL)
    assert report.max_envy == pytest.approx(0, abs=1e-6)
    assert report.pareto_gap == pytest.approx(0.016575, abs=1e-6)


def test_zero_speedups_do_not_idle_gpus() -> None:
    split = non_cooperative(np.eye(2), np.array([1.0, 10.0]), np.ones(2))
    assert split.shares == pytest.approx(np.diag([1.0, 10.0]))


def test_water_fills_in_stages_where_some_tenants_are_confined() -> None:
    # Two tenants can use only type 0; the third can use both, stays on type 1 and does better.
    speedup = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 1.0]])
    split = non_cooperative(speedup, np.array([4.0, 6.0]), EQUAL)
    assert split.level == pytest.approx([2, 2, 6])
    assert split.price @ [4.0, 6.0] == pytest.approx(10)


def test_a_tenant_that_can_use_nothing_gets_nothing_and_harms_no_other() -> None:
    speedup = np.vstack([W, np.zeros(2)])
    for policy in (coop, non_coop, gandiva_fair):
        shares = policy(speedup, ONE_EACH, np.ones(4))
        assert shares[3] == pytest.approx([0, 0])
        assert shares[:3] == pytest.approx(policy(W, ONE_EACH, EQUAL))


def test_no_tenants_get_no_shares() -> None:
    for policy in (coop, non_coop, gandiva_fair):
        assert policy(np.empty((0, 2)), ONE_EACH, np.empty(0)).shape == (0, 2)


def test_a_type_without_gpus_is_left_out() -> None:
    speedup = np.array([[1.0, 2.0, 9.0], [1.0, 3.0, 9.0], [1.0, 4.0, 9.0]])
    for mode in (cooperative, non_cooperative):
        split = mode(speedup, np.array([1.0, 1.0, 0.0]), EQUAL)
        plain = mode(W, ONE_EACH, EQUAL)
        assert split.shares[:, :2] == pytest.approx(plain.shares)
        assert split.shares[:, 2] == pytest.approx([0, 0, 0])
        assert np.isnan(split.price[2])


def test_types_that_are_alike_for_all_are_shared_in_proportion() -> None:
    speedup = np.array([[1.0, 2.0, 2.0], [1.0, 3.0, 3.0], [1.0, 4.0, 4.0]])
    split = cooperative(speedup, np.array([1.0, 0.75, 0.25]), EQUAL)
    assert split.shares == pytest.approx(np.array([[1, 0, 0], [0, 0.375, 0.125], [0, 0.375, 0.125]]))


def test_a_tenant_with_two_job_types_is_two_virtual_users() -> None:
    tenant = np.array([0, 0, 1])
    weight = np.array([1.0, 3.0])
    assert split_weights(tenant, weight) == pytest.approx([0.5, 0.5, 3.0])
    assert split_weights(tenant, weight, work=np.array([30.0, 10.0, 5.0])) == pytest.approx([0.75, 0.25, 3.0])
    assert split_weights(tenant, weight, work=np.zeros(3)) == pytest.approx([0.5, 0.5, 3.0])


def test_gandiva_sells_fast_gpus_at_the_second_highest_ratio() -> None:
    """Ratios 1.25 and 5, each tenant at first 4 slow and 2 fast GPUs. The price is 1.25 slow for a fast one: the second tenant
    buys both fast GPUs of the first for 2.5 slow ones. The first has 6.5, as before; the second 21.5 instead of 14.
    """
    speedup = np.array([[1.0, 1.25], [1.0, 5.0]])

    shares = gandiva_fair(speedup, np.array([8.0, 4.0]), np.ones(2))

    assert shares == pytest.approx(np.array([[6.5, 0.0], [1.5, 4.0]]))
    assert (speedup * shares).sum(axis=1) == pytest.approx([6.5, 21.5])


def test_gandiva_trades_leave_no_tenant_worse_off() -> None:
    rng = np.random.default_rng(5)
    for _ in range(50):
        n, k = int(rng.integers(2, 9)), int(rng.integers(2, 6))
        speedup = rng.uniform(1, 5, (n, k)) * (rng.random((n, k)) > 0.2)
        capacity, weight = rng.integers(1, 9, k).astype(float), rng.uniform(0.5, 2, n)
        shares = gandiva_fair(speedup, capacity, weight)
        report = audit(speedup, shares, capacity, weight, pareto=False)
        assert report.min_sharing_incentive is None or report.min_sharing_incentive >= 1 - 1e-9
        assert shares.min() >= -1e-12
        if speedup.any(axis=1).any():
            assert shares.sum(axis=0) == pytest.approx(capacity)


def test_gandiva_handles_tenants_that_cannot_use_the_slow_type() -> None:
    speedup = np.array([[0.0, 1.0], [0.0, 1.0], [1.0, 2.0]])
    shares = gandiva_fair(speedup, np.array([3.0, 3.0]), EQUAL)
    # Both tenants that cannot use the slow type buy at the third one's own ratio, 2: half a fast GPU for its slow one.
    assert shares == pytest.approx(np.array([[0, 1.5], [0, 1.5], [3, 0]]))
