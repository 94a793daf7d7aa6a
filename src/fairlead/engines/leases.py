"""Leases: one placement of one job, and what can be seen of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from fairlead.engines.requests import Command


@dataclass(frozen=True, slots=True)
class Gpu:
    """One granted GPU; it runs `tasks` of the job's tasks in every training round."""

    node: str
    type: str
    slot: int | None  # its number on the node; None where the engine picks devices itself
    tasks: int = 1


Key = tuple[str, int]  # job, number of the lease


@dataclass(frozen=True, slots=True)
class Lease:
    """`failures` counts the earlier leases of the job that ended with an error."""

    job: str
    number: int
    gpus: tuple[Gpu, ...]
    command: Command
    failures: int = 0

    @property
    def key(self) -> Key:
        return (self.job, self.number)

    @property
    def nodes(self) -> Counter[str]:
        """GPUs by node, in the order of the lease."""
        return Counter(gpu.node for gpu in self.gpus)


def lease_from_json(record: dict[str, Any]) -> Lease:
    """What `dataclasses.asdict` made of a lease, perhaps among other fields."""
    gpus = tuple(Gpu(**gpu) for gpu in record["gpus"])
    return Lease(record["job"], record["number"], gpus, Command(**record["command"]), record["failures"])


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
    """What a worker reported last: how far it is, and how far its newest checkpoint is. None = it did not report it.

    `at_s` is its own steady clock; only differences mean anything.
    """

    at_s: float
    step: float | None = None
    samples: float | None = None
    saved_step: float | None = None
    saved_samples: float | None = None
    parts: Mapping[str, float] | None = None  # of an iteration, for a profile


@dataclass(frozen=True, slots=True)
class Sight:
    condition: Condition
    code: int | None = None  # exit code of what ended
    asked: bool = False  # it was asked to stop
    report: Report | None = None
    reason: str = ""  # why it has not begun, in the engine's words


UNSEEN = Sight(Condition.UNSEEN)


@dataclass(frozen=True, slots=True)
class Look:
    """All that is news. A key without a sight is unseen: it is as it was before."""

    sights: Mapping[Key, Sight]
    down: frozenset[str] | None = frozenset()  # names of nodes that do not answer; None: as before
    usable: Mapping[str, int] = field(default_factory=dict)  # GPUs that leases may hold, by node; absent: as before

    def sight(self, key: Key) -> Sight:
        return self.sights.get(key, UNSEEN)


NO_ANSWER = Look({}, None)  # the engine could not be reached
