"""Rates of a profile at and between its measurements."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from building import speed
from fairlead.model.errors import InputError
from fairlead.rates.profile import ModelFacts, Profile, Speed

# Per GPU: 10 samples/s on one, 8 on four, 4 on sixteen.
CURVE = Profile(
    "curve", (speed("m", "v100", 10.0), speed("m", "v100", 8.0, gpus=4), speed("m", "v100", 4.0, gpus=16)), {}
)


@pytest.mark.parametrize(("gpus", "rate"), [(1, 10.0), (4, 32.0), (16, 64.0)])
def test_a_measured_width_is_as_measured(gpus: int, rate: float) -> None:
    assert CURVE.samples_per_s("m", "v100", gpus) == rate


def test_between_two_widths_the_rate_per_gpu_follows_the_logarithm() -> None:
    """On a logarithmic scale, two is half way between one and four."""
    assert CURVE.samples_per_s("m", "v100", 2) == pytest.approx(2 * math.sqrt(10.0 * 8.0))


def test_beyond_the_widest_the_rate_per_gpu_stays() -> None:
    assert CURVE.samples_per_s("m", "v100", 32) == pytest.approx(32 * 4.0)


def test_below_the_narrowest_the_rate_per_gpu_stays() -> None:
    assert Profile("x", (speed("m", "v100", 8.0, gpus=4),)).samples_per_s("m", "v100", 1) == pytest.approx(8.0)


@given(st.integers(1, 64))
def test_the_rate_per_gpu_stays_between_its_neighbours(gpus: int) -> None:
    assert 4.0 - 1e-9 <= CURVE.samples_per_s("m", "v100", gpus) / gpus <= 10.0 + 1e-9


def test_a_width_between_one_that_runs_and_one_that_does_not_does_not_run() -> None:
    profile = Profile("x", (speed("m", "v100", 1.0), speed("m", "v100", 0.0, gpus=4)))

    assert profile.samples_per_s("m", "v100", 2) == 0.0


def test_a_batch_counts_per_gpu_and_step() -> None:
    profile = Profile("x", (speed("m", "v100", 2.0, gpus=4, batch=16.0),))

    assert profile.samples_per_s("m", "v100", 4) == 2.0 * 16 * 4
    assert profile.samples_per_step("m", 4) == 64.0


def test_what_was_never_measured_does_not_run() -> None:
    assert CURVE.samples_per_s("m", "k80", 1) == 0.0
    assert CURVE.samples_per_s("other", "v100", 1) == 0.0


def test_several_nodes_use_the_rows_with_the_nearest_number_of_nodes() -> None:
    rows = [speed("m", "v100", rate, gpus=8, nodes=nodes) for nodes, rate in ((1, 10.0), (2, 8.0), (8, 2.0))]
    profile = Profile("x", tuple(rows))

    assert [profile.samples_per_s("m", "v100", 8, nodes) / 8 for nodes in (1, 2, 3, 5, 8)] == [10.0, 8.0, 8.0, 2.0, 2.0]


def test_without_a_row_several_nodes_have_the_spread_of_the_model() -> None:
    profile = Profile("x", (speed("m", "v100", 10.0),), {"m": ModelFacts(spread=0.8)})

    assert profile.samples_per_s("m", "v100", 4, 2) == pytest.approx(32.0)
    assert profile.samples_per_s("m", "v100", 4, 1) == pytest.approx(40.0)


def test_a_second_row_for_the_same_configuration_is_refused() -> None:
    with pytest.raises(InputError, match="over 1 nodes has two rows; keep one"):
        Profile("x", (speed("m", "v100", 1.0), speed("m", "v100", 2.0)))


@pytest.mark.parametrize("rate", [float("nan"), float("inf"), -1.0, 1e12])
def test_a_speed_out_of_range_is_refused(rate: float) -> None:
    with pytest.raises(InputError, match="m on 1 x v100: steps_per_s"):
        speed("m", "v100", rate)


@pytest.mark.parametrize("batch", [float("nan"), 0.0, -1.0, 1e12])
def test_a_batch_is_above_zero(batch: float) -> None:
    with pytest.raises(InputError, match="batch"):
        speed("m", "v100", 1.0, batch=batch)


@pytest.mark.parametrize("nodes", [0, 5])
def test_a_job_cannot_be_on_more_nodes_than_it_has_gpus(nodes: int) -> None:
    with pytest.raises(InputError, match="nodes"):
        speed("m", "v100", 1.0, gpus=4, nodes=nodes)


def test_a_number_has_a_source() -> None:
    with pytest.raises(InputError, match="no source"):
        Speed("m", "v100", 1, 1, 1.0, 1.0, "")


@pytest.mark.parametrize("name", ["memory_gib", "restart_s", "spread"])
@pytest.mark.parametrize("value", [float("nan"), -1.0, 1e12])
def test_facts_out_of_range_are_refused(name: str, value: float) -> None:
    with pytest.raises(InputError, match=name):
        ModelFacts(**{name: value})


def test_a_part_of_a_profile_has_the_rates_of_the_whole() -> None:
    rows = (speed("m", "a100", 9.0, batch=64.0), speed("m", "v100", 5.0, batch=8.0), speed("n", "v100", 1.0))
    whole = Profile("x", rows, {"m": ModelFacts(restart_s=9.0), "n": ModelFacts()})

    part = whole.restricted_to(["m"], ["v100"])

    assert part.samples_per_s("m", "v100", 3) == whole.samples_per_s("m", "v100", 3)
    assert part.samples_per_step("m", 3) == whole.samples_per_step("m", 3)
    assert part.facts_of("m") == whole.facts_of("m")
    assert part.models == ("m",)
