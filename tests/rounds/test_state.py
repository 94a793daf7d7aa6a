"""The current state, folded from events and decisions."""

from __future__ import annotations

import math

import numpy as np
import pytest

from building import Scene, job, start, stop
from fairlead.model.decision import Cause, Decision
from fairlead.model.errors import BrokenInvariantError
from fairlead.model.events import (
    Cancelled,
    Finished,
    Held,
    Lost,
    NodeDown,
    NodeUp,
    Progress,
    Refused,
    Released,
    Started,
    TenantSet,
)
from fairlead.policies import ROUND_POLICIES
from fairlead.rounds.columns import COLUMNS
from fairlead.rounds.look import look

ONE = np.array([0])


def test_progress_is_linear_from_the_last_report() -> None:
    state = Scene([job("a")]).state()
    start(state, "a", ((0, 1),), 10.0, rate=2.0)
    assert state.done_at(ONE, 15.0).tolist() == [10.0]

    state.fold(Progress(20.0, ONE, np.array([15.0]), np.array([3.0])))

    assert state.done_at(ONE, 22.0).tolist() == [21.0]


def test_nothing_is_done_before_a_job_has_restored_its_state() -> None:
    state = Scene([job("a")]).state()
    state.fold(Decision(0.0, Cause.ROUND, ONE[:0], ONE, (((0, 1),),), math.inf, ""))
    state.fold(Started(0.0, ONE, np.array([2.0]), np.array([30.0])))

    assert state.done_at(ONE, 20.0).tolist() == [0.0]
    assert state.done_at(ONE, 40.0).tolist() == [20.0]


def test_service_is_counted_in_gpu_seconds_over_all_runs() -> None:
    state = Scene([job("a", 4)]).state()
    start(state, "a", ((0, 4),), 0.0)
    stop(state, "a", 10.0, 10.0)
    start(state, "a", ((0, 4),), 50.0)

    assert state.attained_at(ONE, 55.0).tolist() == [60.0]
    assert state.ran_at(ONE, 55.0).tolist() == [15.0]


def test_jobs_that_end_one_by_one_leave_the_state_of_jobs_that_end_together() -> None:
    together, apart = (Scene([job("a", 2), job("b", 4)], "v100:8x4").state() for _ in range(2))
    for state in (together, apart):
        start(state, "a", ((0, 2),), 0.0)
        start(state, "b", ((0, 2), (1, 2)), 3.0)  # on two nodes
        state.resume_s[:2] = 5.0, 40.0  # the second has not restored its state when it ends
        state.restart_gpu_s[:2] = 10.0, 148.0

    together.fold(Finished(20.0, np.array([0, 1]), np.array([7.0, 9.0])))
    apart.fold(Finished(20.0, np.array([0]), np.array([7.0])))
    apart.fold(Finished(20.0, np.array([1]), np.array([9.0])))

    for name in COLUMNS:
        np.testing.assert_array_equal(getattr(apart, name), getattr(together, name), err_msg=name)
    assert apart.node_free.tolist() == together.node_free.tolist() == apart.cluster.node_gpus.tolist()
    assert (apart.busy_gpus, apart.running, apart.spots) == (together.busy_gpus, together.running, together.spots)
    assert together.restart_gpu_s[:2].tolist() == [10.0, 68.0]


def test_a_job_migrates_only_from_a_spot_on_which_it_ran() -> None:
    state = Scene([job("a")], "v100:8").state()
    state.fold(Decision(0.0, Cause.ROUND, ONE[:0], ONE, (((0, 1),),), math.inf, ""))
    state.fold(Refused(1.0, ONE, "no room"))
    start(state, "a", ((1, 1),), 2.0)
    assert state.migrations[0] == 0

    stop(state, "a", 10.0, 10.0)
    start(state, "a", ((1, 1),), 20.0)
    assert state.migrations[0] == 0

    stop(state, "a", 30.0, 20.0)
    start(state, "a", ((0, 1),), 40.0)
    assert state.migrations[0] == 1


def test_a_node_that_is_down_counts_no_capacity_until_it_is_back() -> None:
    state = Scene([job("a")], "v100:8,k80:2").state()
    state.fold(NodeDown(1.0, 0))
    assert state.capacity.tolist() == [4, 2]

    state.fold(NodeUp(2.0, 0))

    assert state.capacity.tolist() == [8, 2]


def test_a_node_does_not_go_down_twice() -> None:
    state = Scene([job("a")]).state()
    state.fold(NodeDown(1.0, 0))

    with pytest.raises(BrokenInvariantError, match="v100-1 is down already"):
        state.fold(NodeDown(2.0, 0))


def test_a_lost_job_waits_again_with_what_its_checkpoint_holds() -> None:
    state = Scene([job("a")]).state()
    start(state, "a", ((0, 1),), 0.0, rate=1.0)
    state.fold(NodeDown(50.0, 0))
    state.fold(Lost(50.0, ONE, np.array([30.0])))

    assert state.done_at(ONE, 99.0).tolist() == [30.0]
    assert state.held_gpus[0] == 0
    assert state.running == 0


def test_more_gpus_than_a_node_has_are_a_bug() -> None:
    state = Scene([job("a", 4), job("b")]).state()
    start(state, "a", ((0, 4),), 0.0)

    with pytest.raises(BrokenInvariantError, match="node v100-1"):
        start(state, "b", ((0, 1),), 0.0)


def test_ended_jobs_leave_the_view() -> None:
    state = Scene([job("a"), job("b"), job("c")]).state()
    start(state, "b", ((0, 1),), 0.0)
    state.fold(Finished(9.0, np.array([1]), np.array([9.0])))

    assert state.active_jobs.tolist() == [0, 2]
    assert (state.jobs, state.active, state.ended) == (3, 2, 1)


def test_columns_grow_without_losing_what_they_hold() -> None:
    state = Scene([job(f"j{i}", 1 + i % 4) for i in range(1000)]).state()

    assert state.width[:1000].tolist() == [1 + i % 4 for i in range(1000)]
    assert np.isnan(state.first_start_s[:1000]).all()


def test_a_view_cannot_change_the_state() -> None:
    scene = Scene([job("a")], "v100:4")
    state = scene.state()
    view = look(state, ROUND_POLICIES["fifo"], 360.0)
    view.node_free[0] = 0

    assert state.node_free.tolist() == [4]
    for shared in (view.capacity, view.node_up, view.rate):
        with pytest.raises(ValueError, match="read-only"):
            shared[0] = 0


def test_waiting_is_time_in_the_system_without_gpus() -> None:
    state = Scene([job("a", at=10.0)], now_s=10.0).state()
    start(state, "a", ((0, 1),), 30.0)
    stop(state, "a", 40.0, 0.0)
    state.pass_time(100.0)
    assert look(state, ROUND_POLICIES["fifo"], 360.0).wait_s.tolist() == [80.0]


def test_rates_are_zero_on_types_that_a_job_does_not_allow() -> None:
    view = Scene([job("a", types=("k80",))], "v100:4,k80:4").view()

    assert view.rate.tolist() == [[0.0, 1.0]]


def test_a_job_without_suitable_hardware_is_hidden_from_policies() -> None:
    state = Scene([job("a", types=("v100-32gib",)), job("b")], "v100:4,k80:4").state()

    assert look(state, ROUND_POLICIES["fifo"], 360.0).job.tolist() == [1]
    assert (state.active, state.active_jobs.tolist()) == (2, [0, 1])


def test_a_held_job_is_hidden_from_policies_until_it_is_released() -> None:
    state = Scene([job("a"), job("b")]).state()
    start(state, "a", ((0, 1),), 10.0)

    state.fold(Held(20.0, ONE, np.array([5.0])))
    assert state.active_jobs.tolist() == [1]
    assert state.node_free.tolist() == [4]
    assert state.done_at(ONE, 30.0).tolist() == [5.0]

    state.fold(Released(40.0, ONE))
    assert state.active_jobs.tolist() == [0, 1]
    assert state.active == 2


def test_a_job_that_is_released_before_the_queue_was_read_is_in_it_once() -> None:
    state = Scene([job("a"), job("b")]).state()
    assert state.active_jobs.tolist() == [0, 1]

    state.fold(Held(20.0, ONE, np.array([0.0])))
    state.fold(Released(20.0, ONE))

    assert state.active_jobs.tolist() == [0, 1]


def test_time_on_hold_is_not_counted_against_fairness() -> None:
    state = Scene([job("a"), job("b")]).state()
    state.fold(Held(10.0, ONE, np.array([0.0])))
    state.fold(Released(110.0, ONE))
    start(state, "a", ((0, 1),), 110.0)
    state.fold(Finished(120.0, ONE, np.array([10.0])))

    assert state.crowd_out[0] - state.crowd_in[0] == 2 * 10 + 2 * 10  # two jobs, 10 s before and 10 s after


def test_a_held_job_can_be_cancelled() -> None:
    state = Scene([job("a"), job("b")]).state()
    state.fold(Held(10.0, ONE, np.array([0.0])))

    state.fold(Cancelled(20.0, ONE))

    assert state.active_jobs.tolist() == [1]
    assert state.end_s[0] == 20.0


def test_a_tenant_gets_its_new_weight() -> None:
    state = Scene([job("a")]).state()

    state.fold(TenantSet(1.0, "t", 3.0))

    assert look(state, ROUND_POLICIES["fifo"], 360.0).tenant_weight.tolist() == [3.0]
