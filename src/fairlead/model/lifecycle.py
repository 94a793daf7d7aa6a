"""The life cycle of a job as a literal table: (phase, step) -> phase. A pair that is absent is a bug."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from fairlead.model.arrays import IntArray
from fairlead.model.errors import BrokenInvariantError
from fairlead.model.phases import ENDED, HAS_GPUS, Phase

__all__ = ["ENDED", "HAS_GPUS", "Phase", "Step", "TABLE", "advance", "advance_one"]


class Step(IntEnum):
    START = 0  # the scheduler commands
    STOP = 1
    MOVE = 2
    STARTED = 3  # the engine reports
    STOPPED = 4
    FINISHED = 5
    FAILED = 6
    LOST = 7  # its node died or it can no longer be observed; it waits again
    REFUSED = 8
    CANCEL = 9
    HOLD = 10
    RELEASE = 11


TABLE: dict[tuple[Phase, Step], Phase] = {
    (Phase.WAITING, Step.START): Phase.STARTING,
    (Phase.WAITING, Step.CANCEL): Phase.CANCELLED,
    (Phase.STARTING, Step.STARTED): Phase.RUNNING,
    (Phase.STARTING, Step.REFUSED): Phase.WAITING,
    (Phase.STARTING, Step.LOST): Phase.WAITING,
    (Phase.STARTING, Step.FINISHED): Phase.FINISHED,
    (Phase.STARTING, Step.FAILED): Phase.FAILED,
    (Phase.STARTING, Step.STOP): Phase.STOPPING,
    (Phase.STARTING, Step.MOVE): Phase.MOVING,
    (Phase.RUNNING, Step.STOP): Phase.STOPPING,
    (Phase.RUNNING, Step.MOVE): Phase.MOVING,
    (Phase.RUNNING, Step.FINISHED): Phase.FINISHED,
    (Phase.RUNNING, Step.FAILED): Phase.FAILED,
    (Phase.RUNNING, Step.LOST): Phase.WAITING,
    # Stopping may take long, and the next decision does not wait for it.
    (Phase.STOPPING, Step.START): Phase.MOVING,
    (Phase.STOPPING, Step.STOPPED): Phase.WAITING,
    (Phase.STOPPING, Step.FINISHED): Phase.FINISHED,
    (Phase.STOPPING, Step.FAILED): Phase.FAILED,
    (Phase.STOPPING, Step.LOST): Phase.WAITING,
    (Phase.MOVING, Step.STOP): Phase.STOPPING,
    (Phase.MOVING, Step.MOVE): Phase.MOVING,
    (Phase.MOVING, Step.STOPPED): Phase.STARTING,
    (Phase.MOVING, Step.FINISHED): Phase.FINISHED,
    (Phase.MOVING, Step.FAILED): Phase.FAILED,
    (Phase.MOVING, Step.LOST): Phase.WAITING,
    (Phase.MOVING, Step.REFUSED): Phase.WAITING,
    (Phase.HELD, Step.RELEASE): Phase.WAITING,
    (Phase.WAITING, Step.RELEASE): Phase.WAITING,  # its pause is over
    (Phase.HELD, Step.CANCEL): Phase.CANCELLED,
    # A job that has GPUs is held or cancelled once the engine has them back.
    **{(phase, Step.HOLD): Phase.HELD for phase in (Phase.WAITING, *HAS_GPUS)},
    **{(phase, Step.CANCEL): Phase.CANCELLED for phase in HAS_GPUS},
}

_NEXT = np.full((len(Step), len(Phase)), -1, dtype=np.int64)
for (_phase, _step), _after in TABLE.items():
    _NEXT[_step, _phase] = _after
_NEXT_OF: list[list[int]] = _NEXT.tolist()


def advance(phases: IntArray, step: Step) -> IntArray:
    """The phases after `step`, for many jobs at once."""
    after: IntArray = _NEXT[step].take(phases)
    if np.count_nonzero(after < 0):
        bad = Phase(int(phases[int(after.argmin())]))
        raise BrokenInvariantError(f"a job that is {bad.name} cannot take the step {step.name}")
    return after


def advance_one(phase: int, step: Step) -> int:
    """The same for one job, several times as fast as for a column of one; -1 if there is no such step."""
    return _NEXT_OF[step][phase]
