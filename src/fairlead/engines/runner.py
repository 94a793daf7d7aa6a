"""The interface of a runner: what the live engine asks of it, and the laws that the engine relies on.

    launch -> NEVER_CLAIMED -> QUEUED -> RUNNING -> ENDED, with an exit code
                    |            |          |
                    +-- revoke --+----------+-----> VANISHED, without one

Laws, each tested over every runner (tests/engines/test_laws.py).

1. A lease runs once. A key is launched once; a second launch raises LaunchError and starts nothing.
2. LaunchError means that nothing of the lease runs or ever will; if it is recalled at all, it has vanished. A launch
   whose answer was lost returns, and the looks that follow show what happened.
3. A lease goes through its conditions from left to right and may skip some. A lease that is over stays over.
4. It is over when its processes are gone and its GPUs are free, and not before.
5. `revoke` returns True if the lease never began and never will, and False if it began or the engine did not answer.
6. `ask_to_stop`, `kill` and `revoke` can be repeated, and change nothing if they come too early or too late. Each may
   be lost. After False, `ask_to_stop` is repeated; `kill` is repeated until the lease is over.
7. `look` is the only source of news. It may be late, it may leave out leases (they are unseen), and it does not raise
   if the engine cannot be reached. What it shows was true at some time.
8. Nothing depends on this process: the lease as it was launched (`recall`), that it was asked to stop, and its exit
   code are kept where the lease is. `recall` knows a lease before anything of it runs, and `jobs` and `numbers` list
   what it knows.
9. A runner that picks devices gets leases without slots. One that queues may get a lease whose GPUs are still in use by
   leases that were asked to stop, and starts it when they are free. No job ever has two leases, except on nodes that
   are down.
10. The processes of a gang begin together and end together (`engines/ranks.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from fairlead.engines.leases import Key, Lease, Look
from fairlead.model.errors import FairleadError


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an engine can do, and its time limits."""

    look_s: float = 0.15  # between two looks
    looks_idle: bool = False  # look even without leases, because nodes and foreign jobs change
    claim_s: float = 60.0  # an unclaimed lease is revoked after this time
    queue_s: float = 30.0  # and a queued one; time in which our own leases block it does not count
    picks_devices: bool = False
    queues: bool = False

    def __post_init__(self) -> None:
        if self.queues and not self.picks_devices:
            raise ValueError(
                "a runner that queues must pick devices: slots of leases that still run cannot be granted twice"
            )


class LaunchError(FairleadError):
    """A lease could not be started; nothing of it runs."""


class Runner(Protocol):
    """Starts, signals and looks at leases, by the laws above."""

    @property
    def capabilities(self) -> Capabilities: ...

    def launch(self, lease: Lease) -> None:
        """Start the lease, or raise LaunchError."""

    def ask_to_stop(self, lease: Lease) -> bool:
        """Whether the request reached the lease."""

    def kill(self, lease: Lease) -> None: ...

    def look(self, leases: Sequence[Key]) -> Look: ...

    def recall(self, key: Key) -> Lease | None:
        """The lease as it was launched; None if it never was."""

    def jobs(self) -> Collection[str]:
        """All jobs of which a lease is recalled."""

    def numbers(self, job: str) -> Sequence[int]:
        """The numbers of the job's leases that are recalled, in ascending order."""

    def revoke(self, key: Key) -> bool:
        """Prevent the lease from starting; True if it has not begun and never will."""


@runtime_checkable
class KeepsStandbys(Protocol):
    """A runner with processes that wait for leases (`engines/local/warm`)."""

    def warm_figures(self) -> dict[str, int]:
        """How many there are and may be, their memory, and how many leases began in one."""


@runtime_checkable
class AdoptsLeases(Protocol):
    """A runner whose choices for new leases depend on those that an earlier process launched and that still run."""

    def adopt(self, lease: Lease) -> None:
        """Called for each of them after a restart, before anything is launched."""


class LeaseReader(Protocol):
    """Reads leases for other processes, such as the API, without a runner and without changes."""

    def read_log(self, key: Key, offset: int, most: int) -> bytes:
        """Up to `most` bytes of output from `offset` on; empty if there is no more, or none yet."""

    def jobs(self) -> Collection[str]:
        """All jobs that have, or had, leases."""

    def exit_code(self, key: Key) -> int | None:
        """The exit code; None if the lease has not ended, or its code is unknown."""


@runtime_checkable
class StoresCheckpoints(Protocol):
    """A reader of leases whose checkpoints are stored below the state directory."""

    def checkpoint_bytes(self) -> Mapping[str, int]:
        """Bytes of these checkpoints by job; those in a directory that the job has named do not count."""
