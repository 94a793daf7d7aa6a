"""What the world tells the scheduler. Columns hold job positions: the order in which jobs arrived.

Progress between two reports is a straight line: `samples` done at `time_s`, then `rate` samples per second from
`resume_s` on. An engine that sees more reports more; the simulator, whose reports are exact, reports only changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.jobs import JobSpec
from fairlead.model.quotas import Quota


@dataclass(frozen=True, slots=True)
class Arrived:
    time_s: float
    spec: JobSpec


@dataclass(frozen=True, slots=True)
class Started:
    """These jobs hold their GPUs now and make `rate` samples per second once `resume_s` is over.

    Not `measured`: the rate is what was believed before, so that there is nothing to learn from it.
    """

    time_s: float
    jobs: IntArray
    rate: FloatArray
    resume_s: FloatArray
    measured: bool = True


@dataclass(frozen=True, slots=True)
class Progress:
    time_s: float
    jobs: IntArray
    samples: FloatArray
    rate: FloatArray


@dataclass(frozen=True, slots=True)
class Served:
    """GPUs go from job to job with every task: what these jobs hold on average from now until they are told of again.

    For `part` of the time a task of the job runs or its gradients are on their way.
    """

    time_s: float
    jobs: IntArray
    samples: FloatArray
    rate: FloatArray
    part: FloatArray
    gpus: FloatArray  # j,t


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
    """Their owners gave these jobs up; whatever they held is free."""

    time_s: float
    jobs: IntArray


@dataclass(frozen=True, slots=True)
class Held:
    """These jobs leave the queue until they are released, with `samples` safely kept; whatever they held is free."""

    time_s: float
    jobs: IntArray
    samples: FloatArray


@dataclass(frozen=True, slots=True)
class Released:
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


@dataclass(frozen=True, slots=True)
class NodeUsable:
    """From now on this many GPUs of the node are ours to use, from 0 to its size: jobs of others hold the rest.

    GPUs that our jobs hold are ours. Before they are taken away the jobs are reported as lost.
    """

    time_s: float
    node: int
    gpus: int


@dataclass(frozen=True, slots=True)
class NodeAdded:
    """A node joins, or one that was removed comes back, perhaps with other GPUs: it is up, and all its GPUs are ours."""

    time_s: float
    name: str
    gpu: str
    gpus: int
    memory_gib: float


@dataclass(frozen=True, slots=True)
class NodeRemoved:
    """A node leaves for good. No job holds any of its GPUs: those that did are reported as lost before."""

    time_s: float
    node: int


@dataclass(frozen=True, slots=True)
class TenantSet:
    """From now on the tenant has this weight, and these limits in place of all it had before."""

    time_s: float
    tenant: str
    weight: float
    quotas: tuple[Quota, ...] = ()


@dataclass(frozen=True, slots=True)
class PolicySet:
    """From now on this policy decides. The state does not care; a replay does."""

    time_s: float
    policy: str
    parameters: Mapping[str, Any]


Event = (
    Arrived
    | Started
    | Progress
    | Served
    | Stopped
    | Finished
    | Failed
    | Lost
    | Refused
    | Cancelled
    | Held
    | Released
    | NodeDown
    | NodeUp
    | NodeUsable
    | NodeAdded
    | NodeRemoved
    | TenantSet
    | PolicySet
)
