"""The estimator learns only from rates that were measured."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from building import THREE, job
from fairlead.model.cluster import parse_short_form
from fairlead.model.decision import Cause, Decision
from fairlead.model.events import Arrived, Progress, Started
from fairlead.rates.three_layer import Sensing, build_estimator
from fairlead.rounds.records import Records
from fairlead.rounds.state import State

CLUSTER = parse_short_form("v100:4")
ONE = np.array([0])


def started(*, measured: bool) -> State:
    state = State(CLUSTER, build_estimator(THREE, CLUSTER, None, Sensing.THREE_LAYER))
    state.fold(Arrived(0.0, job("a")))
    state.fold(Decision(0.0, Cause.ROUND, ONE[:0], ONE, (((0, 1),),), math.inf, ""))
    state.fold(Started(0.0, ONE, np.array([3.0]), np.array([0.0]), measured))
    return state


@pytest.mark.parametrize(("measured", "after"), [(True, math.sqrt(3.0)), (False, 1.0)])
def test_only_a_measured_rate_is_learnt_from(measured: bool, after: float) -> None:
    """The table has 1 sample per second, the start reports 3, the first progress report 1."""
    state = started(measured=measured)
    state.fold(Progress(5.0, ONE, np.array([5.0]), np.array([1.0])))

    relative = state.relative_to_table(ONE, 5.0)

    assert relative is not None
    assert relative[0, 0] == pytest.approx(after)


@pytest.mark.parametrize("measured", [True, False])
def test_the_log_distinguishes_the_two(measured: bool) -> None:
    event = Started(1.0, ONE, np.array([3.0]), np.array([2.0]), measured)

    line = json.dumps(Records(CLUSTER, ["a"]).to_json(event))
    back = Records(CLUSTER, ["a"]).from_json(json.loads(line))

    assert isinstance(back, Started)
    assert back.measured is measured
