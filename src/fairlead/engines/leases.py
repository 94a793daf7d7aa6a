"""Leases, each one placement of one job, and what a runner reports about them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from fairlead.engines.requests import Command
from fairlead.model.cluster import NodeGroup


@dataclass(frozen=True, slots=True)
class Gpu:
    """One granted GPU; it runs `tasks` of the job's tasks in every training round."""

    node: str
    type: str
    slot: int | None  # its number on the node; None if the engine picks devices itself
    tasks: int = 1


Key = tuple[str, int]  # job, number of the lease


@dataclass(frozen=True, slots=True)
class Lease:
    """One placement of a job; `failures` counts its earlier leases that ended with an error.

    If what was recorded about it is lost, `damage` says so and nothing but its key is known.
    """

    job: str
    number: int
    gpus: tuple[Gpu, ...]
    command: Command
    failures: int = 0
    tenant: str = ""
    log_bytes: int | None = None  # its log is cut there; None: not limited
    damage: str = ""

    @property
    def key(self) -> Key:
        return (self.job, self.number)

    @property
    def nodes(self) -> Counter[str]:
        """GPUs by node, in the order of the lease."""
        return Counter(gpu.node for gpu in self.gpus)


def lease_from_json(record: dict[str, Any]) -> Lease:
    """The lease of a record from `dataclasses.asdict`, which may have further fields."""
    gpus = tuple(Gpu(**gpu) for gpu in record["gpus"])
    return Lease(
        record["job"],
        record["number"],
        gpus,
        Command(**record["command"]),
        record["failures"],
        record.get("tenant", ""),
        record.get("log_bytes"),
    )


class Condition(StrEnum):
    NEVER_CLAIMED = "never claimed"  # launched; nothing shows that the engine has it
    QUEUED = "queued"  # the engine has it, and it has not begun
    RUNNING = "running"
    ENDED = "ended"
    VANISHED = "vanished"  # over without an exit code, or revoked before it began
    UNSEEN = "unseen"  # the engine cannot say at the moment


OVER = (Condition.ENDED, Condition.VANISHED)


@dataclass(frozen=True, slots=True)
class Report:
    """The last report of a worker: its progress, and that of its newest checkpoint. None where it reported nothing.

    `at_s` is by its own monotonic clock, so only differences are meaningful.
    """

    at_s: float
    step: float | None = None
    samples: float | None = None
    saved_step: float | None = None
    saved_samples: float | None = None
    parts: Mapping[str, float] | None = None  # of an iteration, for a profile


@dataclass(frozen=True, slots=True)
class Sight:
    """The condition of one lease as a look shows it."""

    condition: Condition
    code: int | None = None  # exit code, if it ended
    asked: bool = False  # it was asked to stop
    report: Report | None = None
    reason: str = ""  # why it has not begun, or how it was lost, in the engine's words
    warm: bool = False  # it was loaded into a process that ran already


UNSEEN = Sight(Condition.UNSEEN)


@dataclass(frozen=True, slots=True)
class Look:
    """The news about leases and nodes. A key without a sight is unseen: nothing is known to have changed."""

    sights: Mapping[Key, Sight]
    down: frozenset[str] | None = frozenset()  # names of nodes that do not answer; None: as before
    usable: Mapping[str, int] = field(default_factory=dict)  # GPUs that leases may hold, by node; absent: as before
    closed: frozenset[str] = (
        frozenset()
    )  # nodes that answer but take no new leases: one in the queue would wait for long
    joined: Mapping[str, NodeGroup] = field(default_factory=dict)  # nodes that the cluster may lack, by name
    trouble: str = ""  # why the engine cannot be reached, or what an operator should know about it

    def sight(self, key: Key) -> Sight:
        return self.sights.get(key, UNSEEN)


NO_ANSWER = Look({}, None)  # the engine could not be reached


def no_answer(reason: str) -> Look:
    """The look at an engine that could not be reached."""
    return Look({}, None, trouble=reason)
