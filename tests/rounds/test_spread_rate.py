"""Policies see a job that is spread over more nodes than it needs at its actual speed."""

from __future__ import annotations

import numpy as np
import pytest

from building import Scene, job, speed
from fairlead.model.allocation import NOWHERE, Spot
from fairlead.model.decision import Cause, Decision
from fairlead.policies import ROUND_POLICIES
from fairlead.rates.profile import ModelFacts, Profile
from fairlead.rounds.look import look
from fairlead.rounds.snapshot import dump, load

FIFO = ROUND_POLICIES["fifo"]
HALVED = Profile(
    "made up", (speed("even", "v100", 2.0), speed("even", "k80", 1.5)), {"even": ModelFacts(spread=0.5, restart_s=0.0)}
)


def scene(held: dict[str, Spot]) -> Scene:
    return Scene([job("a", 2), job("b", 2)], "v100:8,k80:8", HALVED, held=held)


def test_only_the_type_that_a_spread_job_holds_is_slower() -> None:
    view = scene({"a": ((0, 1), (1, 1)), "b": ((0, 2),)}).view()

    assert view.ideal_rate.tolist() == [[4.0, 3.0], [4.0, 3.0]]
    assert view.rate.tolist() == [[2.0, 3.0], [4.0, 3.0]]


def test_a_spread_job_is_only_like_others_that_are_spread_as_it_is() -> None:
    spread, gathered = scene({"a": ((0, 1), (1, 1))}).view(), scene({"a": ((0, 2),)}).view()
    both = scene({"a": ((0, 1), (1, 1)), "b": ((0, 1), (1, 1))}).view()
    elsewhere = scene({"a": ((0, 1), (1, 1)), "b": ((2, 1), (3, 1))}).view()

    assert spread.alike[0] != spread.alike[1]
    assert gathered.alike[0] == gathered.alike[1]
    assert both.alike[0] == both.alike[1]
    assert elsewhere.alike[0] != elsewhere.alike[1]


@pytest.mark.parametrize("spot", [((0, 2),), NOWHERE])
def test_a_job_that_is_gathered_or_stopped_is_as_fast_as_it_can_be_again(spot: Spot) -> None:
    world = scene({"a": ((0, 1), (1, 1))})
    state = world.state()
    first = look(state, FIFO, 360.0)
    assert first.rate[0, 0] == 2.0

    one = np.array([0])
    start = one if spot else one[:0]
    state.fold(Decision(state.now_s, Cause.ROUND, one, start, (spot,) if spot else (), state.now_s, ""))

    assert look(state, FIFO, 360.0).rate[0, 0] == 4.0


def test_a_job_that_is_gathered_is_like_others_again() -> None:
    state = scene({"a": ((0, 1), (1, 1))}).state()
    first = look(state, FIFO, 360.0)
    assert first.alike[0] != first.alike[1]

    one = np.array([0])
    state.fold(Decision(state.now_s, Cause.ROUND, one, one, (((0, 2),),), state.now_s, ""))

    gathered = look(state, FIFO, 360.0)
    assert gathered.alike[0] == gathered.alike[1]


def test_a_snapshot_knows_which_jobs_are_spread() -> None:
    world = scene({"a": ((0, 1), (1, 1))})
    state = world.state()
    again = load(dump(state), state.cluster, state.estimator)

    assert again.spread_rate == state.spread_rate == {0: 2.0}
