"""The audit's definitions, its corner cases, and the search for lies."""

from __future__ import annotations

import numpy as np
import pytest

from fairlead.model.arrays import FloatArray
from fairlead.numerics.fairness import audit, gain_by_lying, normalise, pareto_gap
from fairlead.policies.oef import cooperative, non_cooperative

# Users 1 and 2 could swap 0.5 of type 3 for 0.8 of type 2 and both gain, but user 3 would then envy user 2.
PARETO_W = np.array([[1.0, 3.0, 5.0], [1.0, 3.0, 4.5], [1.0, 1.5, 1.5]])
PARETO_M = np.array([2.0, 3.0, 1.0])
PARETO_X = np.array([[0, 23 / 18, 0.5], [0, 23 / 18, 0.5], [2, 4 / 9, 0]])


def coop(speedup: FloatArray, capacity: FloatArray, weight: FloatArray) -> FloatArray:
    return cooperative(speedup, capacity, weight).shares


def non_coop(speedup: FloatArray, capacity: FloatArray, weight: FloatArray) -> FloatArray:
    return non_cooperative(speedup, capacity, weight).shares


def test_vectors_are_in_units_of_the_slowest_usable_type() -> None:
    speedup = np.array([[2.0, 4.0], [0.0, 5.0], [0.0, 0.0], [6.0, 3.0]])
    assert normalise(speedup).tolist() == [[1, 2], [0, 1], [0, 0], [2, 1]]
    assert normalise(np.empty((0, 2))).shape == (0, 2)


def test_envy_is_relative_and_names_both_tenants() -> None:
    report = audit(np.ones((3, 1)), np.array([[1.0], [2.0], [3.0]]), np.array([6.0]), np.ones(3))
    assert report.max_envy == pytest.approx(2.0)
    assert report.envious == (0, 2)
    assert report.min_sharing_incentive == pytest.approx(0.5)
    assert report.worst_off == 0
    assert report.pareto_gap == 0


def test_weights_scale_what_is_due() -> None:
    report = audit(np.ones((2, 1)), np.array([[1.0], [3.0]]), np.array([4.0]), np.array([1.0, 3.0]))
    assert report.max_envy == 0
    assert report.envious is None
    assert report.min_sharing_incentive == pytest.approx(1.0)
    report = audit(np.ones((2, 1)), np.array([[2.0], [2.0]]), np.array([4.0]), np.array([1.0, 3.0]))
    assert report.max_envy == pytest.approx(2.0)
    assert report.envious == (1, 0)
    assert report.min_sharing_incentive == pytest.approx(2 / 3)


def test_the_scale_of_a_tenants_rates_does_not_matter() -> None:
    report = audit(PARETO_W, PARETO_X, PARETO_M, np.ones(3))
    scaled = audit(PARETO_W * [[3.0], [0.1], [7.0]], PARETO_X, PARETO_M, np.ones(3))
    assert scaled.max_envy == pytest.approx(report.max_envy, abs=1e-9)
    assert scaled.min_sharing_incentive == pytest.approx(report.min_sharing_incentive)
    assert scaled.pareto_gap == pytest.approx(report.pareto_gap)


def test_a_single_tenant_has_no_one_to_envy() -> None:
    report = audit(np.array([[1.0, 2.0]]), np.array([[0.0, 0.0]]), np.ones(2), np.ones(1))
    assert report.max_envy == 0
    assert report.min_sharing_incentive == 0


def test_envy_from_nothing_towards_nothing_is_none_and_towards_something_is_unbounded() -> None:
    speedup, capacity = np.ones((2, 1)), np.ones(1)
    assert audit(speedup, np.zeros((2, 1)), capacity, np.ones(2)).max_envy == 0
    report = audit(speedup, np.array([[0.0], [1.0]]), capacity, np.ones(2))
    assert report.max_envy is None
    assert report.envious == (0, 1)
    useless = audit(np.array([[0.0], [1.0]]), np.array([[0.0], [1.0]]), capacity, np.ones(2))
    assert useless.max_envy == 0
    assert useless.min_sharing_incentive == pytest.approx(2.0)
    assert useless.worst_off == 1


def test_an_audit_without_tenants_finds_nothing_wrong() -> None:
    report = audit(np.empty((0, 2)), np.empty((0, 2)), np.ones(2), np.empty(0))
    assert report.max_envy == 0
    assert report.min_sharing_incentive is None
    assert report.pareto_gap == 0


def test_the_pareto_gap_is_the_largest_total_gain_that_harms_no_tenant() -> None:
    assert pareto_gap(PARETO_W, PARETO_X, PARETO_M) == pytest.approx(0.016575, abs=1e-6)


def test_idle_gpus_are_a_pareto_gap() -> None:
    assert pareto_gap(np.ones((2, 1)), np.array([[1.0], [1.0]]), np.array([3.0])) == pytest.approx(0.5)
    assert pareto_gap(np.ones((2, 1)), np.zeros((2, 1)), np.array([3.0])) is None
    assert pareto_gap(np.zeros((2, 1)), np.zeros((2, 1)), np.array([3.0])) == 0


def test_equal_vectors_may_hold_unequal_shares_without_a_pareto_gap() -> None:
    assert pareto_gap(np.ones((3, 2)), np.array([[1.0, 0], [0, 2.0], [0, 0]]), np.array([1.0, 2.0])) == 0


def test_the_pareto_gap_agrees_with_a_search_over_swaps() -> None:
    # Each of two tenants holds what the other prefers; the best swap gives each its favourite.
    speedup = np.array([[1.0, 4.0], [4.0, 1.0]])
    shares = np.array([[1.0, 0.0], [0.0, 1.0]])
    assert pareto_gap(speedup, shares, np.ones(2)) == pytest.approx(3.0)


def test_under_reporting_is_found_to_pay_without_cooperation() -> None:
    speedup = np.array([[1.0, 2.0], [1.0, 2.0]])
    lie = gain_by_lying(non_coop, speedup, np.ones(2), np.ones(2), 0, "under-report", np.random.default_rng(0))
    assert lie.gain is not None
    assert lie.gain >= 1.625 / 1.5 - 1  # what the report (1, 1.2) gains
    assert lie.report[0] == 1.0
    assert 1.0 <= lie.report[1] < 2.0


def test_exaggeration_is_never_found_to_pay_without_cooperation() -> None:
    rng = np.random.default_rng(2)
    for seed in range(5):
        speedup = np.random.default_rng(seed).uniform(1, 4, (4, 3))
        capacity, weight = np.array([2.0, 3.0, 1.0]), np.array([1.0, 2.0, 1.0, 1.5])
        lie = gain_by_lying(non_coop, speedup, capacity, weight, seed % 4, "exaggerate", rng)
        assert lie.gain == pytest.approx(0, abs=1e-6)


def test_exaggeration_is_found_to_pay_in_some_cooperative_instance() -> None:
    gains = [
        gain_by_lying(
            coop,
            np.random.default_rng(seed).uniform(1, 4, (4, 3)),
            np.array([2.0, 3.0, 1.0]),
            np.ones(4),
            0,
            "exaggerate",
            np.random.default_rng(seed),
            tries=10,
        ).gain
        for seed in range(5)
    ]
    assert max(gain or 0.0 for gain in gains) > 0.01


def test_the_search_for_lies_is_the_same_for_the_same_generator() -> None:
    speedup = np.random.default_rng(3).uniform(1, 4, (4, 3))
    first, second = (
        gain_by_lying(coop, speedup, np.ones(3), np.ones(4), 1, "under-report", np.random.default_rng(9), tries=5)
        for _ in range(2)
    )
    assert first.gain == second.gain
    assert first.report.tolist() == second.report.tolist()


def test_a_tenant_with_nothing_to_lie_about_gains_nothing() -> None:
    for speedup in (np.zeros((1, 2)), np.array([[0.0, 1.0]])):
        lie = gain_by_lying(coop, speedup, np.ones(2), np.ones(1), 0, "exaggerate", np.random.default_rng(0))
        assert lie.gain == 0
