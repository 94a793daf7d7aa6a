"""How rates by type are known: their sources in a profile, and the factors that observations give."""

from __future__ import annotations

import numpy as np
import pytest

from building import THREE
from fairlead.model.cluster import parse_short_form
from fairlead.rates.estimator import TableEstimator
from fairlead.rates.factors import RateSource
from fairlead.rates.profile import Profile, Speed
from fairlead.rates.three_layer import Learns, Sensing, build_estimator

CLUSTER = parse_short_form("v100:8,k80:8")
V100, K80 = 0, 1


def row(model: str, gpu: str, source: str) -> Speed:
    return Speed(model, gpu, 1, 1, 1.0, 1.0, source)


ROWS = Profile(
    "sources",
    (
        row("m", "v100", "a citation"),
        row("m", "k80", "completed: 80 % within a factor of 1.2"),
        row("n", "v100", "declared: by its owner"),
        row("n", "k80", "estimate: from a similar model"),
    ),
)


def learner() -> Learns:
    estimator = build_estimator(THREE, CLUSTER, None, Sensing.THREE_LAYER, unmeasured=True)
    assert isinstance(estimator, Learns)
    return estimator


def test_the_source_of_a_rate_is_that_of_its_row() -> None:
    table = TableEstimator(ROWS, CLUSTER)

    assert table.sources("m", 1) == (RateSource.PROFILED, RateSource.COMPLETED)
    assert table.sources("n", 1) == (RateSource.ASSUMED, RateSource.COMPLETED)


def test_a_width_without_a_row_has_the_source_of_the_other_widths() -> None:
    assert TableEstimator(ROWS, CLUSTER).sources("m", 4) == (RateSource.PROFILED, RateSource.COMPLETED)


def test_the_rates_of_a_model_without_a_profile_are_assumed() -> None:
    estimator = build_estimator(THREE, CLUSTER, None, Sensing.TABLE, unmeasured=True)

    assert set(estimator.sources("unknown", 2)) == {RateSource.ASSUMED}


def test_nothing_observed_means_the_table_without_confidence() -> None:
    factors = learner().factors(0, "fast", 1)

    assert factors.factor.tolist() == [1.0, 1.0]
    assert factors.confidence.tolist() == [0.0, 0.0]
    assert factors.source == (RateSource.PROFILED, RateSource.PROFILED)


def test_observations_on_a_type_give_its_factor_and_more_of_them_more_confidence() -> None:
    estimator, confidence = learner(), []
    for _ in range(6):
        estimator.observe(0, "fast", ((0, 1),), 2.0)  # the table has 4 on a v100
        confidence.append(float(estimator.factors(0, "fast", 1).confidence[V100]))
    factors = estimator.factors(0, "fast", 1)

    assert factors.factor[V100] == pytest.approx(0.5)
    assert factors.source == (RateSource.MEASURED, RateSource.PROFILED)
    assert factors.confidence[K80] == 0.0
    assert np.all(np.diff(confidence) >= 0)
    assert 0.9 < confidence[-1] <= 1.0


def test_a_job_over_several_nodes_of_a_type_is_observed_too() -> None:
    estimator = learner()
    for _ in range(6):
        estimator.observe(0, "fast", ((0, 4), (1, 4)), 16.0)  # the table has 32
    factors = estimator.factors(0, "fast", 8)

    assert factors.factor[V100] == pytest.approx(0.5)
    assert factors.confidence[V100] > 0.9
