"""Jobs that no node and no mix of nodes can run: they have that reason, and decisions leave them out."""

from __future__ import annotations

import numpy as np
import pytest

from building import Scene, job, start
from fairlead.model.decision import Cause, Decision
from fairlead.model.events import (
    Cancelled,
    Event,
    Held,
    Lost,
    NodeAdded,
    NodeRemoved,
    Refused,
    Released,
    Stopped,
)
from fairlead.model.outcomes import Reason
from fairlead.policies import ROUND_POLICIES
from fairlead.rounds.copying import copied
from fairlead.rounds.look import look
from fairlead.rounds.snapshot import dump, load
from fairlead.rounds.state import State

ONE, NONE = np.array([0]), np.array([0.0])


def reason(state: State, j: int = 0) -> Reason:
    return Reason(int(state.reason[j]))


def starting() -> State:
    """Job a is starting on two of eight V100 GPUs; it may also run on all eight, which is its reference width."""
    state = Scene([job("a", 8, widths=(2, 8)), job("b")], "v100:8").state()
    state.fold(Decision(1.0, Cause.ROUND, ONE[:0], ONE, (((0, 2),),), np.inf, ""))
    return state


@pytest.mark.parametrize("event", [Lost(3.0, ONE, NONE), Refused(3.0, ONE, "no devices")])
def test_an_elastic_job_that_waits_again_never_fits_if_its_reference_width_has_left(event: Event) -> None:
    state = starting()
    state.fold(NodeRemoved(2.0, 1))

    state.fold(event)

    assert reason(state) is Reason.NEVER_FITS
    assert state.reason_s[0] == 3.0


def test_a_job_that_is_released_after_its_hardware_has_left_never_fits() -> None:
    state = Scene([job("a", model="v"), job("b")], "v100:1,k80:1").state()
    state.fold(Held(1.0, ONE, NONE))
    state.fold(NodeRemoved(2.0, 0))
    assert reason(state) is Reason.HELD

    state.fold(Released(3.0, ONE))

    assert reason(state) is Reason.NEVER_FITS


def test_a_job_that_has_stopped_after_its_hardware_left_never_fits() -> None:
    state = Scene([job("a", model="v")], "v100:1,k80:1").state()
    start(state, "a", ((0, 1),), 1.0)
    state.fold(Decision(2.0, Cause.ROUND, ONE, ONE[:0], (), np.inf, ""))
    state.fold(NodeRemoved(3.0, 0))

    state.fold(Stopped(4.0, ONE, NONE))

    assert reason(state) is Reason.NEVER_FITS


def test_a_snapshot_keeps_that_a_mix_has_too_few_gpus() -> None:
    state = Scene([job("a", 6, relaxed=True)], "v100:4,k80:4").state()
    assert reason(state) is Reason.UNDECIDED

    state.fold(NodeRemoved(1.0, 1))
    again = load(dump(state), state.nodes.first, state.estimator)

    assert reason(state) is reason(again) is Reason.NEVER_FITS
    assert dump(again) == dump(state)


def uses_the_cache(state: State) -> bool:
    """Whether columns that never change are gathered once for several decisions."""
    return state.schedulable()[1] is state.queue.fixed


@pytest.mark.parametrize("event", [Cancelled(2.0, ONE), Held(2.0, ONE, NONE)])
def test_columns_are_cached_again_once_the_job_that_runs_nowhere_has_left_the_queue(event: Event) -> None:
    state = Scene([job("a", model="v"), job("b")], "v100:1,k80:1").state()
    state.fold(NodeRemoved(1.0, 0))
    assert not uses_the_cache(state)

    state.fold(event)

    assert uses_the_cache(state)
    assert look(state, ROUND_POLICIES["fifo"], 360.0).job.tolist() == [1]


def test_a_job_that_ended_on_hold_is_not_remembered_among_those_that_run_nowhere() -> None:
    state = Scene([job("a", model="v"), job("b")], "v100:1,k80:1").state()
    state.fold(Held(1.0, ONE, NONE))
    state.fold(NodeRemoved(2.0, 0))
    assert state.run_nowhere == {0}

    state.fold(Cancelled(3.0, ONE))

    assert not state.run_nowhere


def test_a_copy_has_its_own_set_of_jobs_that_run_nowhere() -> None:
    state = Scene([job("a", model="v")], "v100:1,k80:1").state()
    state.fold(NodeRemoved(1.0, 0))
    copy = copied(state)

    copy.fold(NodeAdded(2.0, "v100-1", "v100", 1, 16.0))

    assert state.run_nowhere == {0}
    assert not copy.run_nowhere
