"""What is learnt about nodes and types."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from building import job, profile, setup
from fairlead.model.cluster import parse_short_form
from fairlead.rates.estimator import TableEstimator
from fairlead.rates.three_layer import Sensing, ThreeLayer
from fairlead.sim.truth import World
from fairlead.studies.journals.folding import state_at
from fairlead.studies.journals.replaying import replay_journal
from fairlead.studies.runs.simulate import Setup, simulate

SPEEDS = profile({f"m{m}": {"v100": 2.0 + m, "k80": 1.0} for m in range(4)})
CLUSTER = parse_short_form("v100:32x4,k80:32x4")


# ---- the layers ------------------------------------------------------------------------------------------------------


def learner(sensing: Sensing = Sensing.THREE_LAYER) -> ThreeLayer:
    return ThreeLayer(TableEstimator(SPEEDS, CLUSTER), CLUSTER, sensing)


def test_without_observations_the_rates_are_those_of_the_table() -> None:
    assert (learner().relative(np.array([0, 5])) == 1.0).all()


def test_an_observed_rate_is_expected_on_the_same_node() -> None:
    """m0 runs at 2 samples per second on a V100."""
    estimator = learner(Sensing.SERVERS)
    estimator.observe(7, "m0", ((1, 2),), 4.0 * 0.8)
    estimator.observe(7, "m0", ((1, 2),), 4.0 * 0.9)

    mine, others = estimator.relative(np.array([7, 8]))

    middle = math.sqrt(0.8 * 0.9)
    assert mine[1] == pytest.approx(middle)
    assert mine[:8] == pytest.approx(np.full(8, middle))  # the type's ratio, where the node has no observation
    assert (mine[8:] == 1.0).all()
    assert (others == 1.0).all()


def test_a_node_that_is_slow_for_one_job_is_expected_to_be_slow_for_all_if_asked() -> None:
    estimator = learner()
    for job_, factor in ((1, 0.8), (2, 0.82), (3, 0.7)):
        estimator.observe(job_, "m1", ((3, 1),), 3.0 * factor)

    assert estimator.relative(np.array([9]))[0, 3] == pytest.approx(0.8)


def test_a_spread_job_shows_the_cost_of_spreading_and_nothing_about_nodes() -> None:
    estimator = learner()
    estimator.observe(0, "m0", ((0, 2), (1, 2)), 8.0 * 0.5)

    assert (estimator.relative(np.array([0, 1])) == 1.0).all()
    assert estimator.spread(np.array([0, 1])).tolist() == [
        [0.5, 0.5],
        [1.0, 1.0],
    ]  # from the other type, the only observation
    assert estimator.predict(0, "m0", ((4, 2), (5, 2))) == pytest.approx(4.0)
    assert estimator.predict(0, "m0", ((4, 4),)) == pytest.approx(8.0)


def test_a_slow_node_is_not_mistaken_for_the_cost_of_spreading() -> None:
    """The node is observed to be slow only later."""
    estimator = learner()
    estimator.observe(0, "m0", ((0, 2), (1, 2)), 8.0 * 0.6)
    for other in (1, 2, 3):
        estimator.observe(other, "m1", ((1, 1),), 3.0 * 0.8)

    assert estimator.spread(np.array([0]))[0, 0] == pytest.approx(0.75)
    assert estimator.predict(0, "m0", ((0, 2), (1, 2))) == pytest.approx(8.0 * 0.6)
    assert estimator.predict(0, "m0", ((0, 2), (2, 2))) == pytest.approx(8.0 * 0.75)


def test_a_job_faster_than_its_profile_is_expected_to_be_so_on_nodes_without_observations() -> None:
    """Nodes 0 and 1 are at 0.8 and 1.0 for other jobs and at 0.96 and 1.2 for this one, as if profiled on a slow node."""
    estimator = learner()
    for other in (1, 2, 3):
        estimator.observe(other, "m1", ((0, 1),), 3.0 * 0.8)
        estimator.observe(other, "m1", ((1, 1),), 3.0)
    estimator.observe(9, "m0", ((0, 1),), 2.0 * 0.96)

    assert estimator.predict(9, "m0", ((1, 1),)) == pytest.approx(2.0 * 1.2)


# ---- in a run --------------------------------------------------------------------------------------------------------


def made(sensing: Sensing) -> Setup:
    jobs = [job(f"j{i:02d}", 1 + i % 3, 4000.0, at=60.0 * i, model=f"m{i % 4}", widths=(1, 2, 3)) for i in range(24)]
    world = World(seed=1, server_factor=(0.75, 1.05))
    return replace(setup(jobs, "v100:8x2,k80:8x2", "hops", SPEEDS, world=world), sensing=sensing)


def test_a_run_that_learns_is_replayed_from_its_journal(tmp_path: Path) -> None:
    simulate(made(Sensing.THREE_LAYER), tmp_path / "journal")

    report = replay_journal(tmp_path / "journal")

    assert report.decisions == report.same > 0


def test_what_was_learnt_is_part_of_the_folded_state(tmp_path: Path) -> None:
    state = simulate(made(Sensing.THREE_LAYER), tmp_path / "journal").state
    jobs = np.arange(state.jobs)

    again = state_at(tmp_path / "journal").relative_to_table(jobs, state.now_s)

    learnt = state.relative_to_table(jobs, state.now_s)
    assert again is not None
    assert learnt is not None
    assert (learnt != 1.0).any()
    assert np.array_equal(again, learnt)


def test_the_journal_of_a_run_that_does_not_learn_has_no_learnt_rates(tmp_path: Path) -> None:
    simulate(made(Sensing.TABLE), tmp_path / "journal")

    assert "sensing" not in json.loads((tmp_path / "journal").read_text().splitlines()[0])
