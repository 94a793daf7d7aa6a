"""Estimated rates, and where jobs may run."""

from __future__ import annotations

import numpy as np
import pytest

from building import job, profile, speed
from fairlead.model.cluster import NodeGroup, build_cluster, parse_short_form
from fairlead.rates.estimator import TableEstimator, allowed_rates, mixable_types, relative_speed, runs_somewhere
from fairlead.rates.profile import ModelFacts, Profile

V_K = profile({"m": {"v100": 4.0, "k80": 1.0}}, {"m": ModelFacts(memory_gib=14.0, spread=0.5, restart_s=30.0)})


def test_a_job_does_not_run_where_its_memory_does_not_fit() -> None:
    assert TableEstimator(V_K, parse_short_form("v100:4,k80:4")).best("m", 1).tolist() == [4.0, 0.0]


def test_a_larger_card_of_the_same_gpu_runs_what_the_small_one_cannot() -> None:
    cluster = build_cluster([NodeGroup(1, "v100", 4, 8.0), NodeGroup(1, "v100", 4, 32.0)])

    assert TableEstimator(V_K, cluster).best("m", 1).tolist() == [0.0, 4.0]


def test_the_best_rate_is_on_the_fewest_nodes_that_can_hold_the_gang() -> None:
    estimator = TableEstimator(V_K, parse_short_form("v100:8x2"))

    assert estimator.best("m", 2).tolist() == [8.0]  # one node
    assert estimator.best("m", 4).tolist() == [8.0]  # two nodes, half the speed
    assert estimator.at("m", 0, 4, 1) == 16.0


def test_the_fewest_nodes_are_counted_as_they_are_and_not_as_if_all_were_the_largest() -> None:
    """Three GPUs on 2 + 1 + 1 take two nodes, four take three, on which this model does not run."""
    rows = [speed("m", "v100", rate, gpus=4, nodes=nodes) for nodes, rate in ((1, 4.0), (2, 2.0), (3, 0.0))]
    cluster = build_cluster([NodeGroup(1, "v100", 2), NodeGroup(2, "v100", 1)])

    estimator = TableEstimator(Profile("x", tuple(rows)), cluster)

    assert (estimator.best("m", 3).tolist(), estimator.best("m", 4).tolist()) == ([6.0], [0.0])


def test_a_gang_wider_than_a_type_does_not_run_there() -> None:
    light = profile({"m": {"v100": 4.0, "k80": 1.0}})

    assert TableEstimator(light, parse_short_form("v100:2,k80:8")).best("m", 4).tolist() == [0.0, 4.0]


def test_a_restart_costs_what_the_profile_states_unless_one_cost_is_set_for_all() -> None:
    cluster = parse_short_form("v100:4")

    assert TableEstimator(V_K, cluster).restart_s("m") == 30.0
    assert TableEstimator(V_K, cluster, restart_s=0.0).restart_s("m") == 0.0


def test_the_speed_of_a_type_is_the_geometric_mean_over_models() -> None:
    two = profile({"a": {"v100": 8.0, "k80": 1.0}, "b": {"v100": 2.0, "k80": 1.0}})

    assert TableEstimator(two, parse_short_form("k80:1,v100:1")).type_speed() == pytest.approx([0.25, 1.0])


def test_a_model_does_not_count_for_a_type_on_which_it_does_not_run() -> None:
    speed_of = relative_speed(np.array([[4.0, 1.0, 0.0], [0.0, 0.0, 0.0]]))

    assert speed_of == pytest.approx([1.0, 0.25, 0.0])


def test_a_table_without_models_has_no_speeds() -> None:
    assert relative_speed(np.zeros((0, 2))).tolist() == [0.0, 0.0]


def test_rows_over_several_nodes_are_used_where_a_gang_needs_them() -> None:
    rows = (speed("m", "v100", 1.0, gpus=4), speed("m", "v100", 0.25, gpus=4, nodes=2))

    assert TableEstimator(Profile("x", rows), parse_short_form("v100:4x2")).best("m", 4).tolist() == [1.0]


@pytest.mark.parametrize(
    ("gpus", "relaxed", "types", "runs"),
    [
        (4, False, (), True),
        (6, False, (), False),
        (6, True, (), True),
        (8, True, (), True),
        (9, True, (), False),  # all mixable types together have too few
        (6, True, ("v100",), False),
    ],
)
def test_a_job_runs_on_one_type_or_on_a_mix_that_has_enough_gpus_together(
    gpus: int, relaxed: bool, types: tuple[str, ...], runs: bool
) -> None:
    cluster = parse_short_form("v100:4,k80:4")
    estimator = TableEstimator(profile({"m": {"v100": 4.0, "k80": 1.0}}), cluster)
    spec = job("a", gpus, model="m", relaxed=relaxed, types=types)

    assert runs_somewhere(allowed_rates(spec, cluster, estimator), mixable_types(spec, cluster, estimator)) is runs
