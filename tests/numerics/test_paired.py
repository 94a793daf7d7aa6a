from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.numerics.paired import ALPHA, distinct_pairs, fewest_pairs, sign_flip_p


def test_differences_of_one_sign_are_as_unlikely_as_two_patterns_of_all() -> None:
    assert sign_flip_p(np.array([1.0, 2.0, 0.5, 3.0, 1.0, 1.0])) == pytest.approx(2 / 64)


def test_no_difference_is_no_evidence() -> None:
    assert sign_flip_p(np.zeros(10)) == 1.0
    assert sign_flip_p(np.array([1.0, -1.0])) == 1.0
    assert sign_flip_p(np.empty(0)) == 1.0


@given(st.lists(st.floats(-10, 10), min_size=1, max_size=8))
def test_the_exact_test_counts_patterns(values: list[float]) -> None:
    observed = abs(sum(values))
    sums = [
        abs(sum(s * v for s, v in zip(signs, values, strict=True))) for signs in product((1, -1), repeat=len(values))
    ]
    low = np.mean([total >= observed + 1e-6 for total in sums])
    high = np.mean([total >= observed - 1e-6 for total in sums])

    assert low <= sign_flip_p(np.array(values)) <= high


def test_many_pairs_are_sampled_with_nearly_the_same_result() -> None:
    difference = np.random.default_rng(1).normal(0.6, 1.0, 16)

    exact = np.mean(
        [abs(np.dot(signs, difference)) >= abs(difference.sum()) for signs in product((1.0, -1.0), repeat=16)]
    )

    assert sign_flip_p(difference) == pytest.approx(exact, abs=0.01)
    assert sign_flip_p(difference) == sign_flip_p(difference)


def test_a_repeated_pair_is_not_another_observation() -> None:
    first = np.array([1.0, 1.0, 1.0, 1.0 + 1e-15, 2.0, 1.0, 0.0, 0.0])
    second = np.array([3.0, 3.0, 4.0, 3.0, 4.0, 3.0, 1.0, 1.0])  # a difference of 2 twice, from distinct pairs

    assert distinct_pairs(first, second).tolist() == [0, 2, 4, 6]
    assert distinct_pairs(np.empty(0), np.empty(0)).tolist() == []


def test_the_fewest_pairs_are_just_enough() -> None:
    n = fewest_pairs()

    assert sign_flip_p(np.ones(n)) < ALPHA <= sign_flip_p(np.ones(n - 1))
