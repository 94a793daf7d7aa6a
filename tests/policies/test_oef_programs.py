"""Both programs on random instances, with weights and zero speedups, compared with slow and obvious oracles."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.model.arrays import FloatArray
from fairlead.numerics.fairness import audit, normalise
from fairlead.numerics.solve import Limit, LinearProgram, Optimal, columns_from_entries, solve
from fairlead.policies.oef import Split, cooperative, non_cooperative

MANY = settings(max_examples=300, deadline=None, derandomize=True)


@dataclass(frozen=True)
class Instance:
    speedup: FloatArray  # l,j
    capacity: FloatArray  # j
    weight: FloatArray  # l


def _instance(seed: int, most_tenants: int = 8, zeros: bool = True) -> Instance:
    """Whole, rounded or arbitrary speedups (ties of every kind), equal or arbitrary weights."""
    rng = np.random.default_rng(seed)
    n, k = int(rng.integers(1, most_tenants + 1)), int(rng.integers(1, 5))
    speedup = (
        rng.integers(1, 4, (n, k)).astype(float),
        np.round(rng.uniform(0.5, 4, (n, k)), 1),
        rng.uniform(0.2, 5, (n, k)),
    )[rng.integers(3)]
    if zeros and rng.random() < 0.5:
        speedup = speedup * (rng.random((n, k)) > 0.3)
    capacity = rng.integers(0 if zeros and rng.random() < 0.2 else 1, 7, k).astype(float)
    weight = np.ones(n) if rng.random() < 0.5 else rng.uniform(0.3, 3, n)
    return Instance(speedup, capacity, weight)


instances = st.integers(0, 2**32).map(_instance)
positive_instances = st.integers(0, 2**32).map(lambda seed: _instance(seed, zeros=False))


def from_steps(steps: FloatArray) -> FloatArray:
    """Speedups from the step ratios between neighbouring types."""
    return np.hstack([np.ones((len(steps), 1)), np.exp(np.cumsum(np.log(steps), axis=1))])


def dense(cost: FloatArray, rows: FloatArray, row_low: FloatArray, row_high: FloatArray) -> float:
    """min cost.x s.t. row_low <= rows x <= row_high, x >= 0."""
    row, column = np.nonzero(rows)
    start, index, value = columns_from_entries(row, column, rows[row, column], len(cost))
    low, high = np.zeros(len(cost)), np.full(len(cost), np.inf)
    outcome = solve(LinearProgram(cost, low, high, row_low, row_high, start, index, value), tolerance=1e-9)
    assert isinstance(outcome, Optimal)
    return outcome.objective


def own_values(W: FloatArray) -> FloatArray:
    """Row l gives W_l.x_l when x is laid out tenant by tenant."""
    n, k = W.shape
    rows = np.zeros((n, n * k))
    for l, vector in enumerate(W):
        rows[l, l * k : (l + 1) * k] = vector
    return rows


def capacity_rows(n: int, k: int) -> FloatArray:
    return np.tile(np.eye(k), n)


def all_pairs_total(case: Instance) -> float:
    """The cooperative program with every envy row."""
    W, m, w = normalise(case.speedup), case.capacity, case.weight
    n, k = W.shape
    envy = [
        np.concatenate([W[a] * ((i == a) / w[a] - (i == b) / w[b]) for i in range(n)])
        for a in range(n)
        for b in range(n)
        if a != b
    ]
    rows = np.vstack([capacity_rows(n, k), *envy])
    low = np.concatenate([np.full(k, -np.inf), np.zeros(len(envy))])
    high = np.concatenate([m, np.full(len(envy), np.inf)])
    return -dense(-W.ravel(), rows, low, high)


def lexicographic_levels(case: Instance) -> FloatArray:
    """Max-min by definition: raise all tenants, fix those that cannot rise further, continue with the rest."""
    W, m, w = normalise(case.speedup), case.capacity, case.weight
    n, k = W.shape
    value = own_values(W) / w[:, None]
    held = np.full(n, np.nan)
    held[W @ m == 0] = 0.0
    while np.isnan(held).any():
        free = np.isnan(held)
        rows = np.vstack(
            [np.hstack([value, -free[:, None].astype(float)]), np.hstack([capacity_rows(n, k), np.zeros((k, 1))])]
        )
        low = np.concatenate([np.where(free, 0.0, held) - 1e-9, np.full(k, -np.inf)])
        high = np.concatenate([np.full(n, np.inf), m])
        level = -dense(np.append(np.zeros(n * k), -1.0), rows, low, high)
        floor = np.where(free, level, held) - 1e-7
        for l in np.flatnonzero(free):
            best = -dense(
                -value[l],
                np.vstack([value, capacity_rows(n, k)]),
                np.concatenate([floor, np.full(k, -np.inf)]),
                high,
            )
            if best < level + 1e-4 * max(level, 1e-3):
                held[l] = level
    return held


def total(case: Instance, split: Split) -> float:
    return float(np.sum(normalise(case.speedup) * split.shares))


def _within_capacity(case: Instance, split: Split) -> None:
    assert split.shares.min(initial=0.0) >= 0
    assert np.all(split.shares.sum(axis=0) <= case.capacity * (1 + 1e-12))


@MANY
@given(instances)
def test_cooperation_reaches_the_total_of_the_program_with_all_pairs(case: Instance) -> None:
    split = cooperative(case.speedup, case.capacity, case.weight)
    best = all_pairs_total(case)
    assert split.status == "optimal"
    assert total(case, split) == pytest.approx(best, rel=1e-6, abs=1e-9)
    assert np.nansum(split.price * case.capacity) == pytest.approx(best, rel=1e-6, abs=1e-9)
    _within_capacity(case, split)


@MANY
@given(instances)
def test_cooperation_leaves_no_tenant_envious_or_worse_off_than_alone(case: Instance) -> None:
    split = cooperative(case.speedup, case.capacity, case.weight)
    report = audit(case.speedup, split.shares, case.capacity, case.weight, pareto=False)
    assert report.max_envy is not None
    assert report.max_envy <= 1e-6
    assert report.min_sharing_incentive is None or report.min_sharing_incentive >= 1 - 1e-6


@MANY
@given(instances)
def test_no_usable_gpu_is_idle_and_none_is_held_without_use(case: Instance) -> None:
    useful = (case.speedup > 0).any(axis=0)
    shares = cooperative(case.speedup, case.capacity, case.weight).shares
    assert shares.sum(axis=0) == pytest.approx(np.where(useful, case.capacity, 0.0), abs=1e-7)
    assert np.all(shares[case.speedup == 0] == 0)


@MANY
@given(positive_instances)
def test_without_cooperation_levels_are_equal_and_as_high_as_possible(case: Instance) -> None:
    W, m, w = normalise(case.speedup), case.capacity, case.weight
    n, k = W.shape
    split = non_cooperative(case.speedup, m, w)
    rows = np.vstack([np.hstack([own_values(W), -w[:, None]]), np.hstack([capacity_rows(n, k), np.zeros((k, 1))])])
    low = np.concatenate([np.zeros(n), np.full(k, -np.inf)])
    high = np.concatenate([np.zeros(n), m])
    best = -dense(np.append(np.zeros(n * k), -1.0), rows, low, high)
    assert split.level == pytest.approx(np.full(n, best), rel=1e-6)
    assert split.price @ m == pytest.approx(best * w.sum(), rel=1e-6)
    assert audit(W, split.shares, m, w).pareto_gap == pytest.approx(0, abs=1e-6)
    _within_capacity(case, split)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(0, 2**32).map(lambda seed: _instance(seed, most_tenants=5)))
def test_without_cooperation_levels_are_the_lexicographic_max_min(case: Instance) -> None:
    split = non_cooperative(case.speedup, case.capacity, case.weight)
    assert split.status == "optimal"
    assert split.level == pytest.approx(lexicographic_levels(case), rel=1e-3, abs=1e-5)
    assert np.nansum(split.price * case.capacity) == pytest.approx(total(case, split), rel=1e-6, abs=1e-9)
    _within_capacity(case, split)


@MANY
@given(instances, st.integers(0, 2**32))
def test_exaggeration_never_pays_without_cooperation(case: Instance, seed: int) -> None:
    rng = np.random.default_rng(seed)
    truth = normalise(case.speedup)
    liar = int(rng.integers(len(truth)))
    reported = truth.copy()
    k = truth.shape[1]
    raised = rng.random(k) < 0.7
    reported[liar] = np.where(raised, reported[liar] * np.exp(rng.exponential(0.7, k)), reported[liar])
    if rng.random() < 0.3:  # claims types that it cannot use, too
        reported[liar] = np.where((reported[liar] == 0) & raised, 1 + rng.exponential(1, k), reported[liar])
    unit = np.flatnonzero(truth[liar] == 1)
    if len(unit):
        reported[liar, unit[0]] = 1.0
    honest = truth[liar] @ non_cooperative(truth, case.capacity, case.weight).shares[liar]
    lying = truth[liar] @ non_cooperative(reported, case.capacity, case.weight).shares[liar]
    assert lying <= honest * (1 + 1e-6) + 1e-9


@MANY
@given(instances, st.integers(1, 3))
def test_a_weight_counts_as_that_many_virtual_users(case: Instance, copies: int) -> None:
    n = len(case.weight)
    weight = np.where(np.arange(n) == 0, copies, 1.0)
    expanded = np.repeat(np.arange(n), weight.astype(int))
    for mode in (cooperative, non_cooperative):
        grouped = mode(case.speedup, case.capacity, weight)
        spread = mode(case.speedup[expanded], case.capacity, np.ones(len(expanded)))
        assert spread.level == pytest.approx(grouped.level[expanded], rel=1e-6, abs=1e-8)
        together = np.zeros_like(grouped.shares)
        np.add.at(together, expanded, spread.shares)
        assert together == pytest.approx(grouped.shares, rel=1e-6, abs=1e-8)


@MANY
@given(instances, st.integers(0, 2**32))
def test_neither_the_order_of_tenants_nor_the_scale_of_their_rates_matters(case: Instance, seed: int) -> None:
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(case.weight))
    scaled = case.speedup[order] * rng.uniform(0.01, 100, (len(order), 1))
    weight = case.weight[order] * rng.uniform(0.1, 10)
    for mode in (cooperative, non_cooperative):
        first = mode(case.speedup, case.capacity, case.weight)
        second = mode(scaled, case.capacity, weight)
        assert second.shares == pytest.approx(first.shares[order], rel=1e-6, abs=1e-7)


@MANY
@given(st.integers(0, 2**32))
def test_a_warm_start_gives_the_cold_answer(seed: int) -> None:
    rng = np.random.default_rng(seed)
    case = _instance(seed)
    warm = None
    present = rng.random(len(case.weight)) < 0.7
    capacity = case.capacity.copy()
    for _ in range(4):
        present ^= rng.random(len(present)) < 0.3  # some tenants arrive, some leave
        capacity[rng.integers(len(capacity))] = rng.integers(0, 7)
        args = case.speedup[present], capacity, case.weight[present]
        cold, after = cooperative(*args), cooperative(*args, warm=warm)
        assert after.status == "optimal"
        assert after.shares == pytest.approx(cold.shares, rel=1e-6, abs=1e-7)
        assert np.nansum(after.price * capacity) == pytest.approx(total(Instance(*args), after), rel=1e-6, abs=1e-9)
        warm = after.warm


@pytest.mark.parametrize("mode", [cooperative, non_cooperative])
def test_a_solve_beyond_its_limit_falls_back_to_the_equal_split(mode: object) -> None:
    assert callable(mode)
    rng = np.random.default_rng(1)
    speedup, capacity, weight = rng.uniform(1, 4, (20, 3)), np.array([4.0, 4.0, 4.0]), rng.uniform(1, 2, 20)
    split = mode(speedup, capacity, weight, limit=Limit(iterations=3))
    assert split.status.startswith("equal split")
    report = audit(speedup, split.shares, capacity, weight, pareto=False)
    assert report.max_envy == pytest.approx(0, abs=1e-9)
    assert report.min_sharing_incentive == pytest.approx(1)


@pytest.mark.parametrize(("n", "k", "seed"), [(60, 3, 1), (60, 3, 2), (40, 6, 3)])
def test_many_different_tenants_reach_the_total_of_the_program_with_all_pairs(n: int, k: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    speedup = from_steps(rng.uniform(1, 2.5, (n, k - 1)))
    case = Instance(speedup, rng.integers(8, 40, k).astype(float), rng.uniform(0.5, 2, n))
    split = cooperative(case.speedup, case.capacity, case.weight)
    assert total(case, split) == pytest.approx(all_pairs_total(case), rel=1e-6)


def test_a_thousand_different_tenants_end_envy_free_and_at_the_dual_bound() -> None:
    rng = np.random.default_rng(7)
    n, k = 1000, 2
    speedup = np.hstack([np.ones((n, 1)), rng.uniform(1, 6, (n, k - 1))])
    case = Instance(speedup, np.array([30.0, 20.0]), np.ones(n))
    split = cooperative(case.speedup, case.capacity, case.weight)
    report = audit(speedup, split.shares, case.capacity, case.weight, pareto=False)
    assert report.max_envy is not None
    assert report.max_envy <= 1e-6
    assert total(case, split) == pytest.approx(float(split.price @ case.capacity), rel=1e-7)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(0, 2**32))
def test_tenants_ordered_by_steepness_hold_adjacent_types_without_cooperation(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, k = int(rng.integers(2, 9)), int(rng.integers(3, 6))
    steps = rng.uniform(1.2, 2.5, k - 1) ** rng.uniform(0.1, 1.5, (n, 1))
    speedup = from_steps(steps)
    shares = non_cooperative(speedup, rng.integers(1, 9, k).astype(float), np.ones(n)).shares
    assert np.count_nonzero(shares > 1e-7) <= n + k - 1
    for row in shares:
        held = np.flatnonzero(row > 1e-7)
        assert held[-1] - held[0] == len(held) - 1


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.integers(0, 2**32))
def test_promises_hold_over_many_orders_of_magnitude(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, k = int(rng.integers(2, 25)), int(rng.integers(1, 7))
    speedup = np.exp(rng.uniform(0, 7, (n, k))) * (rng.random((n, k)) > rng.choice([0.0, 0.5]))
    capacity, weight = np.exp(rng.uniform(0, 8, k)).round(), np.exp(rng.uniform(-5, 5, n))
    case = Instance(speedup, capacity, weight)
    together, apart = cooperative(speedup, capacity, weight), non_cooperative(speedup, capacity, weight)
    assert (together.status, apart.status) == ("optimal", "optimal")
    report = audit(speedup, together.shares, capacity, weight, pareto=False)
    assert report.max_envy is not None
    assert report.max_envy <= 1e-6
    assert report.min_sharing_incentive is None or report.min_sharing_incentive >= 1 - 1e-6
    for split in (together, apart):
        assert np.nansum(split.price * capacity) == pytest.approx(total(case, split), rel=1e-6, abs=1e-9)
        _within_capacity(case, split)
    if (speedup > 0).all():
        assert apart.level == pytest.approx(np.full(n, apart.level[0]), rel=1e-6)
