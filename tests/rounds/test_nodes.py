"""The nodes in the state: how many of their GPUs are usable, which are free, and what a decision may assign."""

from __future__ import annotations

import numpy as np
import pytest

from building import THREE, Scene, job
from fairlead.model.arrays import NO_JOBS
from fairlead.model.cluster import parse_short_form
from fairlead.model.decision import Cause, Decision
from fairlead.model.errors import BrokenInvariantError, InputError
from fairlead.model.events import (
    Arrived,
    Event,
    Finished,
    Lost,
    NodeAdded,
    NodeDown,
    NodeRemoved,
    NodeUp,
    NodeUsable,
    Started,
    TenantSet,
)
from fairlead.model.quotas import Quota
from fairlead.placement.rounding import Deficits
from fairlead.policies import ROUND_POLICIES
from fairlead.rates.estimator import TableEstimator
from fairlead.rates.three_layer import ThreeLayer
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
    state.fold(Decision(0.0, Cause.ROUND, NO_JOBS, ONE, (((0, 2),),), 0.0, ""))
    state.fold(Started(0.0, ONE, np.ones(1), np.zeros(1)))
    return state


def test_gpus_that_others_hold_are_neither_capacity_nor_free() -> None:
    state = running_on_two()
    state.fold(NodeUsable(1.0, 0, 3))

    assert state.capacity.tolist() == [7, 4]
    assert state.node_free.tolist() == [1, 4, 4]
    assert look(state, ROUND_POLICIES["fifo"], 60.0).node_free.tolist() == [1, 4, 4]


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


def test_a_job_that_is_lost_first_frees_its_gpus() -> None:
    state = running_on_two()
    state.fold(Lost(1.0, ONE, np.zeros(1)))
    state.fold(NodeUsable(1.0, 0, 0))

    assert state.capacity.tolist() == [4, 4]
    assert state.node_free.tolist() == [0, 4, 4]


def test_only_usable_gpus_are_assigned() -> None:
    state = Scene([job("a", 4), job("b", 2)], "v100:4").state()
    state.fold(NodeUsable(0.0, 0, 2))

    decision, _ = decide(look(state, ROUND_POLICIES["las"], 60.0), ROUND_POLICIES["las"], Memory())

    assert decision.start.tolist() == [1]
    assert decision.spots == (((0, 2),),)


def test_only_time_on_usable_gpus_counts_as_capacity() -> None:
    state = running_on_two()
    state.fold(NodeUsable(10.0, 2, 0))
    state.pass_time(20.0)

    assert state.up_gpu_s == 10 * 12 + 10 * 8


def test_a_node_that_joins_has_the_next_position_and_a_new_type_the_next_column() -> None:
    state = running_on_two()
    state.fold(NodeAdded(1.0, "new", "p100", 2, 16.0))

    assert state.cluster.nodes[-1] == "new"
    assert state.cluster.types == ("v100", "k80", "p100")
    assert state.capacity.tolist() == [8, 4, 2]
    assert state.node_free.tolist() == [2, 4, 4, 2]
    assert look(state, ROUND_POLICIES["fifo"], 60.0).rate.tolist() == [[2.0, 2.0, 2.0]]


def test_the_same_gpu_with_other_memory_is_another_type() -> None:
    state = running_on_two()
    state.fold(NodeAdded(1.0, "new", "v100", 2, 32.0))

    assert state.cluster.types == ("v100", "k80", "v100-32gib")
    assert state.capacity.tolist() == [8, 4, 2]


def test_a_node_that_left_keeps_its_position_and_may_come_back_with_other_gpus() -> None:
    state = running_on_two()
    state.fold(NodeRemoved(1.0, 1))
    assert (state.capacity.tolist(), state.node_free.tolist()) == ([4, 4], [2, 0, 4])
    assert not state.node_up[1]

    state.fold(NodeAdded(2.0, "v100-2", "k80", 8, 12.0))
    assert (state.capacity.tolist(), state.node_free.tolist()) == ([4, 12], [2, 8, 4])
    assert state.node_up[1]


def test_a_node_cannot_leave_while_a_job_is_on_it() -> None:
    with pytest.raises(BrokenInvariantError, match="v100-1 cannot leave while jobs hold 2 of its GPUs"):
        running_on_two().fold(NodeRemoved(1.0, 0))


@pytest.mark.parametrize("event", [NodeRemoved(2.0, 1), NodeUp(2.0, 1), NodeDown(2.0, 1)], ids=repr)
def test_nothing_happens_to_a_node_that_has_left(event: Event) -> None:
    state = running_on_two()
    state.fold(NodeRemoved(1.0, 1))

    with pytest.raises(BrokenInvariantError, match="v100-2 has left"):
        state.fold(event)


def test_a_node_that_is_present_cannot_join() -> None:
    with pytest.raises(InputError, match='has a node "k80-1" already'):
        running_on_two().fold(NodeAdded(1.0, "k80-1", "k80", 4, 12.0))


def test_a_job_for_which_no_node_is_left_waits_until_one_joins() -> None:
    state = Scene([job("a", 1, types=("k80",)), job("b", 1)], "v100:4,k80:4").state()
    las = ROUND_POLICIES["las"]
    state.fold(NodeRemoved(1.0, 1))
    decision, _ = decide(look(state, las, 60.0), las, Memory())
    assert decision.start.tolist() == [1]

    state.fold(NodeAdded(2.0, "other", "k80", 1, 12.0))
    decision, _ = decide(look(state, las, 60.0), las, Memory())
    assert decision.start.tolist() == [0, 1]


def test_a_wide_job_sees_a_type_that_has_become_large_enough() -> None:
    state = Scene([job("a", 6)], "v100:4").state()
    state.fold(NodeAdded(1.0, "more", "v100", 4, 16.0))

    assert look(state, ROUND_POLICIES["las"], 60.0).rate.any()


def test_ended_jobs_keep_the_rates_that_they_had() -> None:
    state = running_on_two()
    state.fold(Finished(1.0, ONE, np.ones(1)))
    before = state.best_rate[0].tolist()
    for node in range(3):
        state.fold(NodeRemoved(2.0, node))
    state.fold(NodeAdded(3.0, "new", "p100", 4, 16.0))

    assert state.best_rate[0].tolist() == [*before, 0.0]


def test_quotas_and_deficits_extend_to_new_types() -> None:
    state = running_on_two()
    state.fold(TenantSet(1.0, "a", 1.0, (Quota("k80", 2, 0, 0),)))
    state.fold(NodeAdded(1.0, "new", "p100", 4, 16.0))
    assert state.quotas is not None
    assert state.quotas.most.shape[1] == 3

    owed = Deficits(np.array([3, 5]), np.array([[1.0, 2.0], [3.0, 4.0]]))
    assert owed.of(owed.owner_key, 3).tolist() == [[1.0, 2.0, 0.0], [3.0, 4.0, 0.0]]


def test_what_was_learnt_about_a_node_is_kept_until_it_comes_back_as_another_type() -> None:
    learner = ThreeLayer(TableEstimator(THREE, CLUSTER), CLUSTER)
    state = State(CLUSTER, learner)
    state.fold(Arrived(0.0, job("a", 2)))
    state.fold(Decision(0.0, Cause.ROUND, NO_JOBS, ONE, (((0, 2),),), 0.0, ""))
    state.fold(Started(0.0, ONE, np.ones(1), np.zeros(1)))
    state.fold(Lost(1.0, ONE, np.zeros(1)))
    state.fold(NodeRemoved(1.0, 0))
    state.fold(NodeAdded(2.0, "v100-1", "v100", 2, 16.0))
    assert isinstance(state.estimator, ThreeLayer)
    assert state.estimator.factor_of(0) == learner.factor_of(0) != 1.0

    state.fold(NodeRemoved(3.0, 0))
    state.fold(NodeAdded(4.0, "v100-1", "p100", 2, 16.0))
    assert state.estimator.factor_of(0) is None


def test_a_policy_forgets_and_deficits_stay_when_nodes_join() -> None:
    scene = Scene([job("a", 1), job("b", 1)], "v100:1,k80:1")
    state, gavel = scene.state(), ROUND_POLICIES["gavel"]
    _, memory = decide(look(state, gavel, 60.0), gavel, Memory())
    assert memory.of_policy(state.cluster) is memory.policy is not None
    state.fold(NodeAdded(1.0, "new", "p100", 4, 16.0))

    assert memory.of_policy(state.cluster) is None
    _, after = decide(look(state, gavel, 60.0), gavel, memory)
    assert after.owed.gpus.shape[1] == 3


def test_records_of_nodes_that_join_and_leave_name_them() -> None:
    records, again = Records(CLUSTER), Records(CLUSTER)
    events = (NodeAdded(1.0, "new", "p100", 2, 16.0), NodeUsable(2.0, 3, 1), NodeRemoved(3.0, 3))
    lines = [records.to_json(event) for event in events]

    assert lines[0] == {
        "event": "node_added",
        "time_s": 1.0,
        "name": "new",
        "gpu": "p100",
        "gpus": 2,
        "memory_gib": 16.0,
    }
    assert lines[2] == {"event": "node_removed", "time_s": 3.0, "node": "new"}
    assert tuple(again.from_json(line) for line in lines) == events


def test_a_snapshot_carries_a_cluster_that_has_changed() -> None:
    state = running_on_two()
    state.fold(NodeRemoved(1.0, 1))
    state.fold(NodeAdded(2.0, "new", "p100", 4, 16.0))
    state.fold(TenantSet(3.0, "a", 1.0, (Quota("p100", 2, 0, 0),)))
    state.fold(Arrived(4.0, job("b", 4, at=4.0)))

    again = load(dump(state), CLUSTER, TableEstimator(THREE, CLUSTER))

    assert dump(again) == dump(state)
    for event in (Arrived(5.0, job("c", 2, at=5.0)), NodeAdded(6.0, "v100-2", "v100", 8, 16.0)):
        again.fold(event)
        state.fold(event)
    assert dump(again) == dump(state)


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
