"""The life cycle of a job: pairs in the table are allowed, and any other pair raises an error that explains it."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from building import Scene, job, start
from fairlead.model.decision import Cause, Decision
from fairlead.model.errors import BrokenInvariantError
from fairlead.model.events import Cancelled, Failed, Finished, Refused, Started
from fairlead.model.lifecycle import ENDED, TABLE, Phase, Step, advance

ALL = list(product(Phase, Step))


@pytest.mark.parametrize(("phase", "step"), [pair for pair in ALL if pair in TABLE])
def test_a_pair_in_the_table_leads_to_its_phase(phase: Phase, step: Step) -> None:
    assert advance(np.array([phase, phase]), step).tolist() == [TABLE[phase, step]] * 2


@pytest.mark.parametrize(("phase", "step"), [pair for pair in ALL if pair not in TABLE])
def test_a_pair_that_is_absent_raises(phase: Phase, step: Step) -> None:
    with pytest.raises(BrokenInvariantError, match=f"{phase.name} cannot take the step {step.name}"):
        advance(np.array([phase]), step)


def test_no_step_leaves_a_final_phase() -> None:
    assert not [pair for pair in TABLE if pair[0] in ENDED]


def test_no_jobs_take_no_step() -> None:
    assert advance(np.array([], dtype=np.int64), Step.START).size == 0


def test_a_job_that_finishes_twice_raises_an_error_that_explains_it() -> None:
    state = Scene([job("mine")]).state()
    start(state, "mine", ((0, 1),), 0.0)
    end = Finished(5.0, np.array([0]), np.array([5.0]))
    state.fold(end)

    with pytest.raises(BrokenInvariantError, match=r"at 5\.0 s.*mine is FINISHED"):
        state.fold(end)


def test_a_job_that_was_not_started_cannot_report_a_start() -> None:
    state = Scene([job("mine")]).state()

    with pytest.raises(BrokenInvariantError, match="mine is WAITING"):
        state.fold(Started(0.0, np.array([0]), np.array([1.0]), np.array([0.0])))


def test_a_refused_job_waits_again_and_gives_its_gpus_back() -> None:

    state = Scene([job("mine")]).state()
    one = np.array([0])
    state.fold(Decision(0.0, Cause.ROUND, one[:0], one, (((0, 1),),), 0.0, ""))
    state.fold(Refused(0.0, one, "no such image"))

    assert state.phase[0] == Phase.WAITING
    assert state.node_free.tolist() == [4]


def test_a_failed_job_ends_and_gives_its_gpus_back() -> None:
    state = Scene([job("mine")]).state()
    start(state, "mine", ((0, 1),), 0.0)
    state.fold(Failed(9.0, np.array([0]), "out of memory"))

    assert (state.phase[0], state.active, state.end_s[0]) == (Phase.FAILED, 0, 9.0)
    assert state.node_free.tolist() == [4]


def test_a_waiting_job_can_be_cancelled() -> None:
    state = Scene([job("mine"), job("other")]).state()
    state.fold(Cancelled(1.0, np.array([0])))

    assert state.active_jobs.tolist() == [1]


def test_a_job_arrives_once() -> None:
    with pytest.raises(BrokenInvariantError, match="mine arrived twice"):
        Scene([job("mine"), job("mine")]).state()


def test_time_does_not_run_backwards() -> None:
    state = Scene([job("mine")], now_s=10.0).state()

    with pytest.raises(BrokenInvariantError, match="backwards"):
        state.pass_time(9.0)
