"""The seam to an engine: what the live engine asks of a runner, and what it may rely on.

    launch -> NEVER_CLAIMED -> QUEUED -> RUNNING -> ENDED, with an exit code
                    |            |          |
                    +-- revoke --+----------+-----> VANISHED, without one

Laws. Each of them is a test over every runner (tests/engines/test_laws.py).

1. A lease runs once. A key is launched once; whoever launches it again gets a LaunchError and starts nothing.
2. LaunchError means that nothing of the lease runs or ever will; if it is recalled at all, it has vanished. A launch
   whose answer was lost returns, and the looks that follow show what happened.
3. A lease goes through its conditions from left to right and skips as many as it likes. One that is over stays over.
4. It is over when its processes are gone and its GPUs are free, and not before.
5. `revoke` answers True where the lease never began and never will; False where it began or the engine did not answer.
6. `ask_to_stop`, `kill` and `revoke` can be repeated, and can come too early or too late: they change nothing then.
   Each may be lost. False from `ask_to_stop` has it asked again; `kill` is repeated until the end is seen.
7. `look` is the only source of news. It may be late, it may leave out leases (they are unseen), and it does not raise when
   the engine cannot be reached; what it shows has been so.
8. Nothing depends on this process: the lease as it was launched (`recall`), that it was asked to stop, and its exit code
   are kept where the lease is. `recall` knows a lease before anything of it runs.
9. A runner that picks devices gets leases without slots. One that queues may get a lease whose GPUs are still in use by
   leases that were asked to stop, and starts it when they are free. No job ever has two leases, except on nodes that are down.
10. The processes of a gang begin together and end together (`engines/ranks.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from fairlead.engines.leases import Key, Lease, Look
from fairlead.model.errors import FairleadError


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an engine can do, and how it wants to be treated."""

    look_s: float = 0.15  # between two looks
    looks_idle: bool = False  # nodes change and other people's jobs come and go, so look without leases, too
    claim_s: float = 60.0  # a lease that nothing is seen of by then is taken back
    queue_s: float = 30.0  # and one that queues; the time in which our own leases are in its way does not count
    picks_devices: bool = False
    queues: bool = False

    def __post_init__(self) -> None:
        if self.queues and not self.picks_devices:
            raise ValueError(
                "a runner that queues must pick devices: slots of leases that still run cannot be given twice"
            )


class LaunchError(FairleadError):
    """A lease could not be started; nothing of it runs."""


class Runner(Protocol):
    """Starts, signals and looks, by the laws above."""

    @property
    def capabilities(self) -> Capabilities: ...

    def launch(self, lease: Lease) -> None:
        """Raises LaunchError."""

    def ask_to_stop(self, lease: Lease) -> bool:
        """False: nobody was there to hear it."""

    def kill(self, lease: Lease) -> None: ...

    def look(self, leases: Sequence[Key]) -> Look: ...

    def recall(self, key: Key) -> Lease | None:
        """The lease as it was launched; None where nobody ever tried."""

    def revoke(self, key: Key) -> bool:
        """True: it has not begun and never will."""


class LeaseReader(Protocol):
    """What other processes may read of leases, such as the API's: no runner is needed, and nothing is changed."""

    def read_log(self, key: Key, offset: int, most: int) -> bytes:
        """Up to `most` bytes of output from `offset` on; nothing where there is no more, or none yet."""

    def exit_code(self, key: Key) -> int | None:
        """None: it has not ended, or nobody knows how."""
