"""The phases of a job's life. Apart from the table of steps, so that a command that prints a phase loads no numpy."""

from __future__ import annotations

from enum import IntEnum


class Phase(IntEnum):
    WAITING = 0
    STARTING = 1
    RUNNING = 2
    STOPPING = 3
    MOVING = 4  # stopping here in order to start elsewhere
    FINISHED = 5
    FAILED = 6
    CANCELLED = 7
    HELD = 8  # out of the queue until its owner releases it


ENDED = (Phase.FINISHED, Phase.FAILED, Phase.CANCELLED)
HAS_GPUS = (Phase.STARTING, Phase.RUNNING, Phase.STOPPING, Phase.MOVING)
