"""Models that are in no table run everywhere, at rates in proportion to the speeds of types for other models."""

from __future__ import annotations

from building import THREE
from fairlead.model.cluster import parse_short_form
from fairlead.rates.estimator import TableEstimator
from fairlead.rates.unmeasured import WithUnmeasured

CLUSTER = parse_short_form("v100:4,k80:2,t4:1")


def test_a_measured_model_has_the_rates_of_the_table() -> None:
    table = TableEstimator(THREE, CLUSTER)

    assert WithUnmeasured(table).best("fast", 2).tolist() == table.best("fast", 2).tolist()
    assert WithUnmeasured(table).at("fast", 1, 1, 1) == 1.0


def test_an_unmeasured_model_follows_the_speed_of_types_and_fits_where_there_is_room() -> None:
    table = TableEstimator(THREE, CLUSTER)
    rates = WithUnmeasured(table).best("mine", 2)

    v100, k80, _ = table.type_speed()
    assert rates[0] / rates[1] == v100 / k80
    assert rates[2] == 0.0  # one GPU of that type is not enough for two
    assert (
        WithUnmeasured(table).best("mine", 1)[2] == rates[1] / 2
    )  # nothing is known about a t4, so it is as slow as the slowest


def test_a_step_of_an_unmeasured_model_is_one_sample_per_gpu() -> None:
    assert WithUnmeasured(TableEstimator(THREE, CLUSTER)).samples_per_step("mine", 4) == 4.0
