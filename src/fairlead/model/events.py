"""What the world tells the scheduler. Columns hold job positions: the order in which jobs arrived.

Progress between two reports is a straight line: `samples` done at `time_s`, then `rate` samples per second from
`resume_s` on. An engine that sees more reports more; the simulator, whose reports are exact, reports only changes.
"""

from __future__ import annotations

from dataclasses import dataclass

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.jobs import JobSpec


@dataclass(frozen=True, slots=True)
class Arrived:
    time_s: float
    spec: JobSpec


@dataclass(frozen=True, slots=True)
class Started:
    """These jobs hold their GPUs now and make `rate` samples per second once `resume_s` is over."""

    time_s: float
    jobs: IntArray
    rate: FloatArray
    resume_s: FloatArray


@dataclass(frozen=True, slots=True)
class Progress:
    time_s: float
    jobs: IntArray
    samples: FloatArray
    rate: FloatArray


@dataclass(frozen=True, slots=True)
class Stopped:
    """These jobs gave their GPUs back as asked, with `samples` safely kept."""

    time_s: float
    jobs: IntArray
    samples: FloatArray


@dataclass(frozen=True, slots=True)
class Finished:
    """These jobs are done after `samples`, whatever their owners had declared."""

    time_s: float
    jobs: IntArray
    samples: FloatArray


@dataclass(frozen=True, slots=True)
class Failed:
    time_s: float
    jobs: IntArray
    reason: str


@dataclass(frozen=True, slots=True)
class Lost:
    """These jobs went down with their node, or out of sight; `samples` survive in their checkpoints."""

    time_s: float
    jobs: IntArray
    samples: FloatArray


@dataclass(frozen=True, slots=True)
class Refused:
    """The engine did not do as asked; the jobs wait again."""

    time_s: float
    jobs: IntArray
    reason: str


@dataclass(frozen=True, slots=True)
class Cancelled:
    time_s: float
    jobs: IntArray


@dataclass(frozen=True, slots=True)
class NodeDown:
    time_s: float
    node: int


@dataclass(frozen=True, slots=True)
class NodeUp:
    time_s: float
    node: int


Event = Arrived | Started | Progress | Stopped | Finished | Failed | Lost | Refused | Cancelled | NodeDown | NodeUp
