"""Leases: one placement of one job, and what can be seen of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from fairlead.engines.requests import Command
from fairlead.model.errors import FairleadError


@dataclass(frozen=True, slots=True)
class Gpu:
    """One granted GPU; it runs `tasks` of the job's tasks in every training round."""

    node: str
    type: str
    slot: int  # its number on the node
    tasks: int = 1


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


Key = tuple[str, int]  # job, number of the lease


def lease_from_json(found: dict[str, Any]) -> Lease:
    """What `dataclasses.asdict` made of a lease, perhaps among other fields."""
    gpus = tuple(Gpu(**gpu) for gpu in found["gpus"])
    return Lease(found["job"], found["number"], gpus, Command(**found["command"]), found["failures"])


class Condition(StrEnum):
    NEVER_CLAIMED = "never claimed"
    RUNNING = "running"
    ENDED = "ended"
    VANISHED = "vanished"


@dataclass(frozen=True, slots=True)
class Report:
    """What a worker said last: how far it is, and how far its newest checkpoint is. None = it did not say.

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


@dataclass(frozen=True, slots=True)
class Look:
    sights: Mapping[Key, Sight]
    down: frozenset[str] = frozenset()  # names of nodes that do not answer


class LaunchError(FairleadError):
    """A lease could not be started; nothing of it runs."""


class Runner(Protocol):
    """Starts, signals and looks. It keeps no memory that a restart of the daemon could lose."""

    def launch(self, lease: Lease) -> None:
        """Raises LaunchError. Afterwards the lease is never claimed, running or over."""

    def ask_to_stop(self, lease: Lease) -> bool:
        """False: nobody was there to hear it."""

    def kill(self, lease: Lease) -> None: ...

    def look(self, leases: Sequence[Key]) -> Look: ...

    def recall(self, key: Key) -> Lease | None:
        """The lease as it was launched; None where nobody ever tried."""

    def revoke(self, key: Key) -> bool:
        """True: nobody has claimed it and nobody will."""
