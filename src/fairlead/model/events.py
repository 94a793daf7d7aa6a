"""Events that engines and users report to the scheduler. Columns hold job positions: the order in which jobs arrived.

Progress between two reports is linear: `samples` done at `time_s`, then `rate` samples per second from `resume_s` on.
An engine that observes more reports more; the simulator, whose reports are exact, reports only changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.decision import Decision
from fairlead.model.jobs import JobSpec
from fairlead.model.limits import TenantLimits
from fairlead.model.quotas import Quota


@dataclass(frozen=True, slots=True)
class Arrived:
    time_s: float
    spec: JobSpec


@dataclass(frozen=True, slots=True)
class Started:
    """These jobs hold their GPUs now and process `rate` samples per second from `resume_s` on.

    If not `measured`, the rate is the previous estimate, so there is nothing to learn from it.
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
class FirstProgress:
    """These jobs made progress for the first time since they were launched, `cost_s` seconds earlier.

    They were loaded into processes that ran already if `warm`, and were started afresh if not.
    """

    time_s: float
    jobs: IntArray
    cost_s: FloatArray
    warm: bool


@dataclass(frozen=True, slots=True)
class Served:
    """What these jobs hold on average until their next report, where GPUs pass from job to job with every task.

    For `part` of the time a task of the job runs or its gradients are being sent.
    """

    time_s: float
    jobs: IntArray
    samples: FloatArray
    rate: FloatArray
    part: FloatArray
    gpus: FloatArray  # j,t


@dataclass(frozen=True, slots=True)
class Stopped:
    """These jobs returned their GPUs as requested; `samples` are saved."""

    time_s: float
    jobs: IntArray
    samples: FloatArray


@dataclass(frozen=True, slots=True)
class Finished:
    """These jobs finished after `samples`, whatever length their owners declared."""

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
    """These jobs died with their node or can no longer be observed; `samples` survive in their checkpoints.

    `unfit`: they ended with an error on a type on which their model was tried, after it ran on another; it does not run
    there. If the loss may be the jobs' own fault, `setbacks` counts how often they came to nothing in a row, and they
    pause until `again_s`.
    """

    time_s: float
    jobs: IntArray
    samples: FloatArray
    unfit: bool = False
    reason: str = ""
    setbacks: int = 0
    again_s: float | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """The engine did not carry out the command; the jobs wait again, and pause as after a loss."""

    time_s: float
    jobs: IntArray
    reason: str
    setbacks: int = 0
    again_s: float | None = None


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The owners cancelled these jobs; the GPUs that they held are free."""

    time_s: float
    jobs: IntArray


@dataclass(frozen=True, slots=True)
class Held:
    """These jobs leave the queue until they are released, with `samples` saved; the GPUs that they held are free."""

    time_s: float
    jobs: IntArray
    samples: FloatArray


@dataclass(frozen=True, slots=True)
class Released:
    """These jobs are no longer on hold, or their pause is over."""

    time_s: float
    jobs: IntArray


@dataclass(frozen=True, slots=True)
class Renumbered:
    """From now on leases of these jobs are counted after these numbers, because some may be missing in the log."""

    time_s: float
    jobs: IntArray
    leases: IntArray


@dataclass(frozen=True, slots=True)
class Forgotten:
    """The state forgets these jobs, which have ended. The jobs after them move up, so that later positions change."""

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
    """From now on our jobs may use this many GPUs of the node, from 0 to its size; other users hold the rest.

    GPUs that our jobs hold count as ours. Before they are taken away the jobs are reported as lost.
    """

    time_s: float
    node: int
    gpus: int


@dataclass(frozen=True, slots=True)
class NodeAdded:
    """A node joins, or a removed one returns, perhaps with other GPUs. It is up, and our jobs may use all its GPUs."""

    time_s: float
    name: str
    gpu: str
    gpus: int
    memory_gib: float


@dataclass(frozen=True, slots=True)
class NodeRemoved:
    """A node leaves permanently. No job holds any of its GPUs: jobs that did were reported as lost first."""

    time_s: float
    node: int


@dataclass(frozen=True, slots=True)
class TenantSet:
    """From now on the tenant has this weight and these limits, which replace all earlier ones."""

    time_s: float
    tenant: str
    weight: float
    quotas: tuple[Quota, ...] = ()


@dataclass(frozen=True, slots=True)
class PolicySet:
    """From now on this policy decides. The state ignores the event; a replay needs it.

    `instead_of` is empty if an operator chose the policy or the service started with it. Otherwise another policy could
    not decide, and the text says which one and why.
    """

    time_s: float
    policy: str
    parameters: Mapping[str, Any]
    instead_of: str = ""


@dataclass(frozen=True, slots=True)
class SettingsSet:
    """From now on these settings apply, as in a journal's header. The state ignores the event; a replay needs it."""

    time_s: float
    settings: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class LimitsSet:
    """From now on the tenant (empty: every tenant without its own) has these limits. Decisions do not depend on them."""

    time_s: float
    tenant: str
    limits: TenantLimits


@dataclass(frozen=True, slots=True)
class Advised:
    """What the policy would have done on a cluster that another scheduler runs. Nothing of it is done.

    The state only takes over why jobs wait; of a job that would start it shows no reason.
    """

    time_s: float
    decision: Decision


Event = (
    Arrived
    | Started
    | Progress
    | FirstProgress
    | Served
    | Stopped
    | Finished
    | Failed
    | Lost
    | Refused
    | Cancelled
    | Held
    | Released
    | Forgotten
    | Renumbered
    | NodeDown
    | NodeUp
    | NodeUsable
    | NodeAdded
    | NodeRemoved
    | TenantSet
    | PolicySet
    | SettingsSet
    | LimitsSet
    | Advised
)
