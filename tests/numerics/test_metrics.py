"""Formulas compared with hand-worked examples and with slow, plain versions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.numerics.isolated import isolated_shares
from fairlead.numerics.metrics import (
    expected_run_s,
    isolated_end_s,
    isolated_rate,
    jain,
    recent,
    share_at_most,
    spread_of,
)

TWO_TYPES = np.array([4, 4])


def test_statistics_of_nothing_are_none() -> None:
    assert spread_of(np.zeros(0), "mean", "p50", "p99", "max", "total") == dict.fromkeys(
        ("mean", "p50", "p99", "max", "total")
    )
    assert share_at_most(np.zeros(0), 1.0) is None


def test_statistics_by_name() -> None:
    assert spread_of(np.array([1.0, 2.0, 3.0, 6.0]), "mean", "p50", "max", "total") == {
        "mean": 3.0,
        "p50": 2.5,
        "max": 6.0,
        "total": 12.0,
    }


def test_the_share_at_most_counts_the_bound_itself() -> None:
    assert share_at_most(np.array([0.5, 1.0, 1.5, 2.0]), 1.0) == 0.5


def test_the_share_at_most_does_not_see_rounding() -> None:
    assert share_at_most(np.array([1.0 + 2e-16, 1.0 + 1e-12, 1.0 + 1e-6, 2.0]), 1.0) == 0.5


@pytest.mark.parametrize(("values", "index"), [([3.0, 3.0, 3.0], 1.0), ([1.0, 0.0, 0.0, 0.0], 0.25), ([1.0, 3.0], 0.8)])
def test_jain_by_hand(values: list[float], index: float) -> None:
    assert jain(np.array(values)) == pytest.approx(index)


@pytest.mark.parametrize("values", [[], [0.0, 0.0]])
def test_jain_of_nothing_is_none(values: list[float]) -> None:
    assert jain(np.array(values)) is None


def test_an_isolated_share_is_an_equal_part_of_every_type() -> None:
    """n = 4 jobs of one GPU: a quarter of 4 GPUs of each type is more than one GPU, so it is scaled down."""
    assert isolated_rate(np.array([[2.0, 1.0]]), np.array([1]), TWO_TYPES, np.array([4.0])).tolist() == [1.5]


def test_a_crowded_isolated_share_is_a_fraction_of_the_time() -> None:
    """n = 16: a quarter of a GPU of each type."""
    assert isolated_rate(np.array([[2.0, 1.0]]), np.array([1]), TWO_TYPES, np.array([16.0])).tolist() == [0.75]


def test_types_that_a_job_cannot_use_are_no_part_of_its_isolated_share() -> None:
    assert isolated_rate(np.array([[2.0, 0.0]]), np.array([4]), TWO_TYPES, np.array([2.0])).tolist() == [1.0]


def test_expected_run_time_weighs_types_by_their_gpus() -> None:
    """100 samples: 50 s on 3 GPUs' worth of types, 100 s on 1."""
    run_s = expected_run_s(np.array([100.0]), np.array([[2.0, 1.0]]), np.array([3, 1]))

    assert run_s.tolist() == [pytest.approx(0.75 * 50 + 0.25 * 100)]


def test_isolated_gpus_follow_weights_and_stop_at_the_gang() -> None:
    runs = np.ones((3, 1), dtype=bool)

    shares = isolated_shares(runs, np.array([4, 4, 1]), np.array([8]), np.array([1.0, 2.0, 1.0]))

    assert shares.ravel().tolist() == [2.0, 4.0, 1.0]


def test_isolated_shares_without_jobs_are_empty() -> None:
    shares = isolated_shares(np.ones((0, 2), dtype=bool), np.zeros(0, dtype=np.int64), TWO_TYPES, np.zeros(0))

    assert shares.shape == (0, 2)


def test_two_jobs_in_the_isolated_run_by_hand() -> None:
    """One GPU, 1 sample/s. Until 100 s, a is alone; then both run at half speed; a ends at 500 s, and b alone at 700 s."""
    end_s = isolated_end_s(
        np.array([0.0, 100.0]), np.array([300.0, 400.0]), np.ones((2, 1)), np.array([1, 1]), np.array([1])
    )

    assert end_s.tolist() == pytest.approx([500.0, 700.0])


def in_small_steps(
    arrival_s: FloatArray, samples: FloatArray, rate: FloatArray, width: IntArray, capacity: IntArray, step_s: float
) -> list[float]:
    """The isolated run, simulated tick by tick without clocks or a heap."""
    left, end_s, now_s = samples.copy(), [math.nan] * len(samples), 0.0
    while any(math.isnan(end) for end in end_s):
        active = [j for j in range(len(samples)) if arrival_s[j] <= now_s and math.isnan(end_s[j])]
        now_s += step_s
        for j in active:
            usable = [t for t in range(len(capacity)) if rate[j, t] > 0]
            part = {t: capacity[t] / (len(active) * width[j]) for t in usable}  # of its time
            scale = min(1.0, 1.0 / sum(part.values()))
            left[j] -= step_s * sum(scale * part[t] * rate[j, t] for t in usable)
            if left[j] <= 1e-9:
                end_s[j] = now_s
    return end_s


@settings(max_examples=40)
@given(data=st.data(), jobs=st.integers(1, 5), types=st.integers(1, 2))
def test_the_isolated_run_agrees_with_small_steps(data: st.DataObject, jobs: int, types: int) -> None:
    def column(values: st.SearchStrategy[float]) -> list[float]:
        return data.draw(st.lists(values, min_size=jobs, max_size=jobs))

    arrival_s = np.array(column(st.sampled_from((0.0, 0.0, 3.0, 10.0))))
    samples = np.array(column(st.floats(1.0, 20.0)))
    width = np.array(column(st.sampled_from((1, 2, 4))), dtype=np.int64)
    capacity = np.array(data.draw(st.lists(st.integers(1, 4), min_size=types, max_size=types)))
    rate = np.array([[data.draw(st.sampled_from((0.5, 1.0, 3.0))) for _ in range(types)] for _ in range(jobs)])
    if types > 1:
        rate[0, 0] = 0.0

    end_s = isolated_end_s(arrival_s, samples, rate, width, capacity)

    steps = in_small_steps(arrival_s, samples, rate, width, capacity, step_s=0.02)
    # Each earlier end or arrival may delay the result by one tick.
    assert end_s == pytest.approx(steps, abs=0.02 * (2 * jobs + 2), rel=0.01)


def test_the_isolated_run_of_many_equal_jobs_ends_at_one_time() -> None:
    n = 500
    end_s = isolated_end_s(np.zeros(n), np.full(n, 10.0), np.ones((n, 1)), np.ones(n, dtype=np.int64), np.array([5]))

    assert end_s == pytest.approx(np.full(n, 10.0 * n / 5))


def test_the_recent_average_looks_back_over_the_window() -> None:
    """Ends at 10, 20 and 100 s and a window of 30 s: the last mean covers one job, the second mean two."""
    means = recent(np.array([20.0, 10.0, 100.0]), np.array([4.0, 2.0, 1.0]), 30.0)

    assert means == {"last": 1.0, "max": 3.0}
    assert recent(np.array([]), np.array([]), 30.0) == {"last": None, "max": None}
