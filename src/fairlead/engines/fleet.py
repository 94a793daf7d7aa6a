"""The leases that were launched and are not known to have ended, and the ends of earlier ones."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fairlead.engines.leases import UNSEEN, Condition, Key, Lease, Look, Report, Sight
from fairlead.engines.runner import Runner
from fairlead.model.handshake import CHECKPOINTED

KILL_AGAIN_S = 5.0
_MAY_RUN = (Condition.UNSEEN, Condition.QUEUED, Condition.RUNNING)
NO_JOB = -1  # of a lease whose job is not in the log


@dataclass(slots=True)
class Live:
    """A lease that may run, with what the engine knows about it."""

    lease: Lease
    job: int  # its position, or NO_JOB
    since_s: float  # from when the runner's patience counts
    base: float  # samples that were safe when it started
    announced: bool = False  # the loop knows that it runs
    asked_s: float | None = None  # when it was asked to stop
    reached: bool = False  # whether that request reached its processes
    killed_s: float = -math.inf
    dropped: bool = False  # the loop counts it as gone already
    astray: bool = False  # its node does not answer, so nothing waits for it
    seen: Sight = UNSEEN  # the last sight with information
    last: Report | None = None  # of the last Progress event, or the first report
    measured: bool = False
    launched_s: float | None = None  # until its first progress; None also if another process launched it
    first_done: float | None = None  # samples of its first report, which may be those of the restored checkpoint


@dataclass(frozen=True, slots=True)
class Story:
    """The outcome of a job's leases so far."""

    failures: int
    finished: bool
    report: Report | None = None  # the last one of the last lease


class Fleet:
    """All live leases, by key and by job."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._live: dict[Key, Live] = {}
        self._of_job: dict[int, list[Live]] = {}
        self._ends: dict[str, tuple[Lease, Sight]] = {}  # by job: the last lease that ended

    def __len__(self) -> int:
        return len(self._live)

    def __getitem__(self, key: Key) -> Live:
        return self._live[key]

    def all(self) -> list[Live]:
        return list(self._live.values())

    def add(self, live: Live) -> None:
        self._live[live.lease.key] = live
        self._of_job.setdefault(live.job, []).append(live)

    def remove(self, live: Live, end: Sight) -> None:
        del self._live[live.lease.key]
        self._of_job[live.job].remove(live)
        if not self._of_job[live.job]:
            del self._of_job[live.job]
        last = self._ends.get(live.lease.job)
        if last is None or last[0].number < live.lease.number:
            self._ends[live.lease.job] = (live.lease, end)

    def jobs(self) -> list[int]:
        """Jobs with leases, also such that are astray."""
        return list(self._of_job)

    def renumber(self, position: Mapping[int, int], forgotten: Iterable[str]) -> None:
        """Jobs have new positions; forgotten ones have no leases."""
        self._of_job = {position.get(j, NO_JOB): leases for j, leases in self._of_job.items()}
        for live in self._live.values():
            live.job = position.get(live.job, NO_JOB)
        for job in forgotten:
            self._ends.pop(job, None)

    def of(self, j: int) -> list[Live]:
        """The leases of the job, without those astray."""
        return [live for live in self._of_job.get(j, ()) if not live.astray]

    def current(self, j: int) -> Live | None:
        """The lease whose GPUs the loop counts as held by the job."""
        return next((live for live in self._of_job.get(j, ()) if not live.dropped), None)

    def on(self, node: str) -> list[Live]:
        return [live for live in self._live.values() if any(gpu.node == node for gpu in live.lease.gpus)]

    def taken(self) -> set[tuple[str, int | None]]:
        """The (node, slot) pairs that are not free."""
        return {(gpu.node, gpu.slot) for live in self._live.values() for gpu in live.lease.gpus}

    def used(self) -> Counter[str]:
        """GPUs that are not free, by node."""
        return Counter(gpu.node for live in self._live.values() for gpu in live.lease.gpus)

    def leaving(self) -> set[str]:
        """Nodes with leases that were asked to stop."""
        return {gpu.node for live in self._live.values() if live.asked_s is not None for gpu in live.lease.gpus}

    def look(self) -> Look:
        return self._runner.look(list(self._live))

    def sights(self, leases: Sequence[Lease]) -> dict[Key, Sight]:
        keys = [lease.key for lease in leases]
        look = self._runner.look(keys)
        return {key: look.sight(key) for key in keys}

    def ask(self, live: Live, now_s: float) -> None:
        """Ask until it got through, and never again: a second signal would interrupt a script that is saving."""
        if live.asked_s is None:
            live.asked_s = now_s
        if not live.reached:
            live.reached = self._runner.ask_to_stop(live.lease)

    def kill(self, live: Live, now_s: float) -> None:
        if now_s >= live.killed_s + KILL_AGAIN_S:
            live.killed_s = now_s
            self._runner.kill(live.lease)

    def last_launched(self, job: str, number: int) -> Lease | None:
        """The last of the job's leases up to this number that was launched."""
        launched = [n for n in self._runner.numbers(job) if n <= number] if number else []
        return self._runner.recall((job, launched[-1])) if launched else None

    def story(self, j: int, job: str, number: int) -> Story | None:
        """The outcome of leases up to this number; None while the last one is not known to have ended."""
        lease, sight = self._ends.get(job, (None, UNSEEN))
        for live in self._of_job.get(j, ()):  # on nodes that are down
            if lease is None or lease.number < live.lease.number:
                lease, sight = live.lease, live.seen
        newest = self.last_launched(job, number) if lease is None or lease.number < number else None
        if newest is not None and (lease is None or lease.number < newest.number):  # an earlier scheduler saw its end
            lease, sight = newest, self.sights([newest])[newest.key]
            if sight.condition in _MAY_RUN:
                return None
        if lease is None:
            return Story(0, False)
        return Story(lease.failures + is_failure(sight), sight.code == 0, sight.report)


def is_failure(sight: Sight) -> bool:
    return sight.condition is Condition.ENDED and sight.code not in (0, CHECKPOINTED) and not sight.asked
