"""The leases that exist: launched, and not yet seen to end."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fairlead.engines.leases import Condition, Key, Lease, Look, Report, Runner, Sight
from fairlead.model.handshake import CHECKPOINTED

KILL_AGAIN_S = 5.0


@dataclass(slots=True)
class Live:
    lease: Lease
    job: int
    since_s: float
    base: float  # samples that were safe when it started
    told: bool = False  # the loop has heard that it runs
    asked_s: float | None = None  # when it was asked to stop
    reached: bool = False  # and whether that got through to its processes
    killed_s: float = -math.inf
    dropped: bool = False  # the loop counts it as gone already
    astray: bool = False  # its node does not answer: nobody waits for it
    last: Report | None = None  # as told in the last Progress, or the first that was seen
    measured: bool = False


class Fleet:
    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._live: dict[Key, Live] = {}
        self._of_job: dict[int, list[Live]] = {}

    def __len__(self) -> int:
        return len(self._live)

    def __getitem__(self, key: Key) -> Live:
        return self._live[key]

    def add(self, live: Live) -> None:
        self._live[live.lease.key] = live
        self._of_job.setdefault(live.job, []).append(live)

    def remove(self, live: Live) -> None:
        del self._live[live.lease.key]
        self._of_job[live.job].remove(live)
        if not self._of_job[live.job]:
            del self._of_job[live.job]

    def of(self, j: int) -> list[Live]:
        """All of the job's that somebody waits for."""
        return [live for live in self._of_job.get(j, ()) if not live.astray]

    def current(self, j: int) -> Live | None:
        """The one by which the loop says that the job holds GPUs."""
        return next((live for live in self._of_job.get(j, ()) if not live.dropped), None)

    def on(self, node: str) -> list[Live]:
        return [live for live in self._live.values() if any(gpu.node == node for gpu in live.lease.gpus)]

    def taken(self) -> set[tuple[str, int]]:
        """Slots that are not free, by node."""
        return {(gpu.node, gpu.slot) for live in self._live.values() for gpu in live.lease.gpus}

    def look(self) -> Look:
        return self._runner.look(list(self._live))

    def sight(self, lease: Lease) -> Sight:
        return self._runner.look([lease.key]).sights[lease.key]

    def ask(self, live: Live, now_s: float) -> None:
        """Until it got through, and not once more: a second signal would interrupt a script that saves as it handles the first."""
        if live.asked_s is None:
            live.asked_s = now_s
        if not live.reached:
            live.reached = self._runner.ask_to_stop(live.lease)

    def kill(self, live: Live, now_s: float) -> None:
        if now_s >= live.killed_s + KILL_AGAIN_S:
            live.killed_s = now_s
            self._runner.kill(live.lease)

    def last_launched(self, job: str, number: int) -> Lease | None:
        """The last of the job's leases up to this number that was more than a decision."""
        for n in range(number, 0, -1):
            lease = self._runner.recall((job, n))
            if lease is not None:
                return lease
        return None

    def story(self, job: str, number: int) -> tuple[int, bool]:
        """Of that lease: failures up to its end, and whether the job is through."""
        lease = self.last_launched(job, number)
        if lease is None:
            return 0, False
        sight = self.sight(lease)
        return lease.failures + is_failure(sight), sight.code == 0


def is_failure(sight: Sight) -> bool:
    return sight.condition is Condition.ENDED and sight.code not in (0, CHECKPOINTED) and not sight.asked
