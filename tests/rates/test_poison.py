"""Reports that must not spoil what is learnt about nodes, and what is forgotten."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from building import job, profile, setup
from fairlead.model.allocation import Spot
from fairlead.model.cluster import parse_short_form
from fairlead.model.decision import Cause, Decision
from fairlead.model.events import Arrived, Cancelled, Finished, Held, Progress, Started
from fairlead.rates.evidence import BOUND, VOTERS, WINDOW, Vote, middle
from fairlead.rates.profile import Profile, Speed
from fairlead.rates.three_layer import Sensing, ThreeLayer, build_estimator
from fairlead.rounds.snapshot import dump, load
from fairlead.rounds.state import State
from fairlead.sim.truth import World
from fairlead.studies.journals.folding import state_at
from fairlead.studies.journals.replaying import replay_journal
from fairlead.studies.runs.simulate import simulate

SPEEDS = profile({"known": {"v100": 2.0, "k80": 1.0}})
CLUSTER = parse_short_form("v100:32x4,k80:32x4")
STRANGER = 1000  # a job of the known model that was never observed
V100 = 8  # nodes, the first ones


def learner(sensing: Sensing = Sensing.THREE_LAYER, speeds: Profile = SPEEDS) -> ThreeLayer:
    estimator = build_estimator(speeds, CLUSTER, None, sensing, unmeasured=True)
    assert isinstance(estimator, ThreeLayer)
    return estimator


def factors(estimator: ThreeLayer) -> list[float]:
    """n  the speeds of nodes for a job that was never observed."""
    return [float(value) for value in estimator.relative(np.array([STRANGER]))[0]]


def report(estimator: ThreeLayer, job_: int, node: int, ratio: float, times: int = 1, model: str = "known") -> None:
    """`times` reports of a job at `ratio` times the table's speed."""
    spot = ((node, 1),)
    for _ in range(times):
        estimator.observe(job_, model, spot, ratio * estimator.at(model, int(CLUSTER.node_type[node]), 1, 1))


# ---- whose reports count for a node ------------------------------------------------------------------------------------


def test_a_model_without_a_profile_does_not_move_the_factor_of_a_node() -> None:
    """Its assumed speed is one sample per second; in a live run this made a node look 85 times as fast."""
    estimator = learner()
    for stranger in range(5):
        report(estimator, stranger, 0, 85.0, times=10, model="unheard of")

    assert factors(estimator) == [1.0] * 16


@pytest.mark.parametrize("source", ["declared: by its owner", "completed: from other models", "estimate: a guess"])
def test_nor_does_a_model_whose_speeds_nobody_measured(source: str) -> None:
    estimator = learner(speeds=Profile("guesses", (Speed("guess", "v100", 1, 1, 1.0, 1.0, source),)))
    for job_ in range(5):
        report(estimator, job_, 0, 2.0, times=10, model="guess")

    assert factors(estimator) == [1.0] * 16


def test_nor_do_jobs_that_are_far_from_their_profile() -> None:
    """They do not run what was profiled, or count their steps in another way."""
    estimator = learner()
    for job_ in range(5):
        report(estimator, job_, 0, 85.0, times=10)

    assert factors(estimator) == [1.0] * 16


def test_a_job_without_a_profile_shows_how_its_nodes_differ() -> None:
    estimator = learner()
    for job_ in range(3):
        report(estimator, job_, 0, 85.0, times=3, model="unheard of")
        report(estimator, job_, 1, 0.8 * 85.0, times=3, model="unheard of")

    speeds = factors(estimator)
    assert speeds[1] / speeds[0] == pytest.approx(0.8)
    assert speeds[2:] == [1.0] * 14


def test_profiled_jobs_show_how_fast_a_node_is() -> None:
    estimator = learner()
    for job_, ratio in ((0, 0.7), (1, 0.8), (2, 0.82)):
        report(estimator, job_, 3, ratio, times=3)

    assert factors(estimator)[3] == pytest.approx(0.8)


def test_strangers_among_profiled_jobs_change_nothing() -> None:
    clean, poisoned = learner(), learner()
    for job_ in range(4):
        for estimator in (clean, poisoned):
            report(estimator, job_, 2, 0.8, times=3)
        report(poisoned, 100 + job_, 2, 85.0, times=9, model="unheard of")

    assert factors(poisoned) == factors(clean)


# ---- how much evidence is needed --------------------------------------------------------------------------------------


def test_one_job_alone_decides_nothing_about_a_node() -> None:
    estimator = learner()
    report(estimator, 0, 0, 0.5, times=20)

    assert factors(estimator)[0] == 1.0
    assert estimator.relative(np.array([0]))[0, 0] == pytest.approx(0.5)  # but about itself


def test_two_reports_decide_nothing_and_a_third_does() -> None:
    estimator = learner()
    report(estimator, 0, 0, 0.5)
    report(estimator, 1, 0, 0.5)
    assert factors(estimator)[0] == 1.0

    report(estimator, 2, 0, 0.5)
    assert factors(estimator)[0] == pytest.approx(0.5)


@pytest.mark.parametrize("when", range(7))
@pytest.mark.parametrize("wrong", [0.01, 3.9, 85.0])
def test_a_single_wrong_report_does_not_matter(when: int, wrong: float) -> None:
    """Whichever it is of the seven reports of two jobs, the factor stays where the others put it."""
    estimator = learner()
    for i in range(7):
        report(estimator, int(i >= 4), 0, wrong if i == when else 0.9)

    assert factors(estimator)[0] == pytest.approx(0.9)


@pytest.mark.parametrize("ratio", [0.01, 100.0])
def test_a_factor_is_bounded(ratio: float) -> None:
    """Two jobs without a profile both find one node a hundred times as fast or slow as another."""
    estimator = learner()
    for job_ in range(3):
        report(estimator, job_, 0, 7.0, times=3, model="unheard of")
        report(estimator, job_, 1, 7.0 * ratio, times=3, model="unheard of")

    assert abs(math.log(factors(estimator)[1])) == pytest.approx(BOUND)


def test_the_weighted_median_splits_the_weight_in_halves() -> None:
    assert middle([Vote(5.0, 1), Vote(0.0, 2)]) == 0.0
    assert middle([Vote(1.0, 3), Vote(0.0, 3)]) == 0.5
    assert middle([Vote(1.0, 3), Vote(0.0, 300)]) == 0.5  # nobody counts more than fully
    assert middle([Vote(9.0, 1), Vote(1.0, 1), Vote(0.0, 1)]) == 1.0


# ---- a job's own speed ------------------------------------------------------------------------------------------------


def test_an_assumed_scale_is_corrected_on_all_types() -> None:
    """Otherwise the type on which the job was observed would look 85 times as fast as the other."""
    estimator = learner()
    report(estimator, 0, 0, 85.0, model="unheard of")

    assert estimator.relative(np.array([0]))[0].tolist() == pytest.approx([85.0] * 16)


def test_an_assumed_scale_is_not_mistaken_for_a_gain_from_being_spread() -> None:
    estimator, spot = learner(), ((0, 4), (1, 4))
    estimator.observe(0, "unheard of", spot, 85.0 * 8)

    assert estimator.spread(np.array([0]))[0].tolist() == pytest.approx([1.0, 1.0])
    assert estimator.predict(0, "unheard of", spot) == pytest.approx(85.0 * 8)
    assert estimator.predict(0, "unheard of", ((0, 4),)) == pytest.approx(85.0 * 4)


def test_what_is_expected_of_a_job_holds_where_it_was_not_observed_itself() -> None:
    estimator = learner()
    report(estimator, 0, 0, 0.5, times=3)

    relative = estimator.relative(np.array([0, 1]), np.array([[3.0, 2.0], [3.0, 2.0]]))

    assert relative[0].tolist() == pytest.approx([0.5] * V100 + [2.0] * 8)
    assert relative[1].tolist() == pytest.approx([3.0] * V100 + [2.0] * 8)


def test_the_factor_of_a_job_by_type_includes_the_nodes_on_which_it_ran() -> None:
    """A node's factor must not explain the wrong speeds of a model whose jobs are alone on it."""
    estimator = learner()
    for job_ in range(3):
        for node in range(3):
            report(estimator, job_, node, 0.8 if node == 0 else 1.0, times=3)
    report(estimator, 7, 0, 0.8, times=3)

    assert estimator.factors(7, "known", 1).factor.tolist() == pytest.approx([0.8, 1.0])


# ---- forgetting -------------------------------------------------------------------------------------------------------


def test_a_repaired_node_is_learnt_anew() -> None:
    estimator = learner()
    for job_ in range(20):
        report(estimator, job_, 0, 0.5, times=3)
        estimator.end(job_)
    assert factors(estimator)[0] == pytest.approx(0.5)

    for job_ in range(20, 20 + VOTERS // 2 + 1):
        report(estimator, job_, 0, 1.0, times=3)
    assert factors(estimator)[0] == pytest.approx(1.0)


def test_a_job_that_changes_its_speed_is_believed_after_half_a_window() -> None:
    estimator = learner()
    report(estimator, 0, 0, 0.5, times=50)
    report(estimator, 0, 0, 1.5, times=WINDOW // 2 + 1)

    assert estimator.relative(np.array([0]))[0, 0] == pytest.approx(1.5)


def run_job(state: State, id_: str, spot: Spot, model: str = "known") -> int:
    now_s = state.now_s
    state.fold(Arrived(now_s, job(id_, 1, 100.0, at=now_s, model=model)))
    j = state.position[id_]
    one = np.array([j])
    state.fold(Decision(now_s, Cause.ROUND, one[:0], one, (spot,), math.inf, ""))
    state.fold(Started(now_s, one, np.array([1.0]), np.array([now_s]), measured=False))
    rate = 0.9 * state.estimator.at(model, int(CLUSTER.node_type[spot[0][0]]), 1, len(spot))
    for i in range(2):
        state.fold(Progress(now_s + 1.0 + i, one, np.array([1.0 + i]), np.array([rate])))
    return j


def size(state: State) -> int:
    assert state.learner is not None
    return len(json.dumps(state.learner.learnt()))


def test_what_was_learnt_does_not_grow_with_jobs_that_are_over() -> None:
    """Ten thousand jobs, every third of them without a profile and every fifth on two nodes."""
    state, sizes = State(CLUSTER, learner()), []
    for i in range(10_000):
        node = i % 13
        spot = ((node, 1), (node + 1, 1)) if i % 5 == 0 and node != V100 - 1 else ((node, 1),)
        j = run_job(state, f"j{i}", spot, f"new {i}" if i % 3 == 0 else "known")
        state.fold(Finished(state.now_s, np.array([j]), np.array([100.0])))
        if i in (999, 9_999):
            sizes.append(size(state))

    assert sizes[1] < 1.1 * sizes[0]
    assert isinstance(state.learner, ThreeLayer)
    assert [state.learner.factor_of(node) for node in range(13)] == pytest.approx([0.9] * 13)


def test_a_held_job_keeps_its_reports_until_it_is_cancelled() -> None:
    state = State(CLUSTER, learner())
    one = np.array([run_job(state, "a", ((0, 1),))])
    assert isinstance(state.learner, ThreeLayer)

    state.fold(Held(10.0, one, np.array([5.0])))
    assert state.learner.relative(one)[0, 0] == pytest.approx(0.9)
    state.fold(Cancelled(11.0, one))
    assert state.learner.relative(one)[0, 0] == 1.0


def test_a_restart_changes_nothing_that_was_learnt_and_nothing_that_will_be() -> None:
    state = State(CLUSTER, learner())
    for i in range(30):
        j = run_job(state, f"j{i}", ((i % 5, 1),) if i % 4 else ((i % 5, 1), (i % 5 + 1, 1)), ("known", "new")[i % 2])
        if i % 3:
            state.fold(Finished(state.now_s, np.array([j]), np.array([100.0])))
    again = load(dump(state), CLUSTER, learner())
    assert dump(again) == dump(state)

    for continued in (state, again):
        run_job(continued, "later", ((2, 1),))
    assert dump(again) == dump(state)
    jobs = np.arange(state.jobs)
    assert np.array_equal(again.relative_to_table(jobs, 0.0), state.relative_to_table(jobs, 0.0))  # type: ignore[arg-type]


def test_what_an_earlier_version_learnt_is_learnt_again() -> None:
    estimator = learner()
    estimator.learn_again(
        {"on_node": [[0, 0, 1, 85.0]], "on_type": [], "of_node": [], "factor": [[0, 85.0]], "spread": []}
    )

    assert factors(estimator) == [1.0] * 16


@pytest.mark.parametrize("sensing", [Sensing.TYPES, Sensing.SERVERS, Sensing.THREE_LAYER])
def test_a_noisy_run_that_learns_is_folded_and_replayed_exactly(sensing: Sensing, tmp_path: Path) -> None:
    jobs = [job(f"j{i:02d}", 1 + i % 3, 4000.0, at=60.0 * i, model="known", widths=(1, 2, 3)) for i in range(24)]
    world = World(seed=1, server_factor=(0.75, 1.05), job_server_factor=(0.8, 1.0), sensing_noise=0.1)
    made = replace(setup(jobs, "v100:8x2,k80:8x2", "hops", SPEEDS, world=world), sensing=sensing)
    state = simulate(made, tmp_path / "journal").state

    replayed = replay_journal(tmp_path / "journal")

    assert replayed.decisions == replayed.same > 0
    assert dump(state_at(tmp_path / "journal")) == dump(state)
