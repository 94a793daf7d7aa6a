"""The phases of a job. Separate from the table of steps, so that a command that prints a phase does not load numpy."""

from __future__ import annotations

from enum import IntEnum


class Phase(IntEnum):
    WAITING = 0
    STARTING = 1
    RUNNING = 2
    STOPPING = 3
    MOVING = 4  # stopping in order to start elsewhere
    FINISHED = 5
    FAILED = 6
    CANCELLED = 7
    HELD = 8  # out of the queue until its owner releases it


ENDED = (Phase.FINISHED, Phase.FAILED, Phase.CANCELLED)
HAS_GPUS = (Phase.STARTING, Phase.RUNNING, Phase.STOPPING, Phase.MOVING)
