"""The nodes' side of the state: how many of their GPUs are ours, which are free, and what a decision may hand out."""

from __future__ import annotations

import numpy as np
import pytest

from building import THREE, Scene, job
from fairlead.model.cluster import parse_short_form
from fairlead.model.decision import Cause, Decision
from fairlead.model.errors import BrokenInvariantError
from fairlead.model.events import Arrived, Lost, NodeDown, NodeUp, NodeUsable, Started
from fairlead.policies import REGISTRY
from fairlead.rates.estimator import TableEstimator
from fairlead.rounds.decide import Memory, decide
from fairlead.rounds.look import look
from fairlead.rounds.records import Records
from fairlead.rounds.snapshot import dump, load
from fairlead.rounds.state import State

CLUSTER = parse_short_form("v100:8,k80:4")
ONE = np.array([0])


def running_on_two() -> State:
    state = State(CLUSTER, TableEstimator(THREE, CLUSTER))
    state.fold(Arrived(0.0, job("a", 2)))
    state.fold(Decision(0.0, Cause.ROUND, np.array([], dtype=np.int64), ONE, (((0, 2),),), 0.0, ""))
    state.fold(Started(0.0, ONE, np.ones(1), np.zeros(1)))
    return state


def test_gpus_that_others_hold_are_neither_capacity_nor_free() -> None:
    state = running_on_two()
    state.fold(NodeUsable(1.0, 0, 3))

    assert state.capacity.tolist() == [7, 4]
    assert state.node_free.tolist() == [1, 4, 4]
    assert look(state, REGISTRY["fifo"], 60.0).node_free.tolist() == [1, 4, 4]


def test_usable_gpus_come_back() -> None:
    state = running_on_two()
    state.fold(NodeUsable(1.0, 1, 0))
    state.fold(NodeUsable(2.0, 1, 4))

    assert state.capacity.tolist() == [8, 4]
    assert state.node_free.tolist() == [2, 4, 4]


def test_a_node_that_is_down_keeps_what_is_usable_of_it() -> None:
    state = running_on_two()
    state.fold(NodeDown(1.0, 1))
    state.fold(NodeUsable(2.0, 1, 1))
    assert state.capacity.tolist() == [4, 4]

    state.fold(NodeUp(3.0, 1))
    assert state.capacity.tolist() == [5, 4]


@pytest.mark.parametrize("gpus", [-1, 1, 5])
def test_fewer_than_are_held_or_more_than_there_are_cannot_be_usable(gpus: int) -> None:
    with pytest.raises(BrokenInvariantError, match="cannot be usable: jobs hold 2 of the 4"):
        running_on_two().fold(NodeUsable(1.0, 0, gpus))


def test_a_job_that_is_lost_first_makes_way() -> None:
    state = running_on_two()
    state.fold(Lost(1.0, ONE, np.zeros(1)))
    state.fold(NodeUsable(1.0, 0, 0))

    assert state.capacity.tolist() == [4, 4]
    assert state.node_free.tolist() == [0, 4, 4]


def test_only_usable_gpus_are_handed_out() -> None:
    state = Scene([job("a", 4), job("b", 2)], "v100:4").state()
    state.fold(NodeUsable(0.0, 0, 2))

    decision, _ = decide(look(state, REGISTRY["las"], 60.0), REGISTRY["las"], Memory())

    assert decision.start.tolist() == [1]
    assert decision.spots == (((0, 2),),)


def test_only_time_on_usable_gpus_counts_as_capacity() -> None:
    state = running_on_two()
    state.fold(NodeUsable(10.0, 2, 0))
    state.pass_time(20.0)

    assert state.up_gpu_s == 10 * 12 + 10 * 8


def test_the_record_names_the_node() -> None:
    records = Records(CLUSTER)
    record = records.to_json(NodeUsable(1.5, 2, 3))

    assert record == {"event": "node_usable", "time_s": 1.5, "node": "k80-1", "gpus": 3}
    assert records.from_json(record) == NodeUsable(1.5, 2, 3)


def test_a_snapshot_carries_what_is_usable() -> None:
    state = running_on_two()
    state.fold(NodeUsable(1.0, 0, 3))

    again = load(dump(state), CLUSTER, TableEstimator(THREE, CLUSTER))

    assert dump(again) == dump(state)
    assert again.nodes.usable.tolist() == [3, 4, 4]
    assert again.capacity.tolist() == [7, 4]
