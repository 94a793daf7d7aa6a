"""Steers the jobs that users have submitted with `sbatch`: it says where and when they run, and takes them back.

    ROOT/leases/JOB/NUMBER/   lease.json  claim  asked  exit.json  gone

A lease is one run of a user's job, which keeps its number, its user, its account and its script. Launching sets the nodes
of the job and releases it; asking it to stop sends USR1 to its batch shell; killing requeues it on hold. The state of the
job is Slurm's (`steered.py`); the files keep what Slurm forgets: which run was which lease, and how it ended. `claim` says
once more which run it is, so that a lease whose description is damaged can still be stopped.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from fairlead.engines.leases import OVER, Condition, Key, Lease, Look, Sight, no_answer
from fairlead.engines.local import shim
from fairlead.engines.local.files import (
    how_lost,
    jobs_in,
    lease_directory,
    lease_numbers,
    new_lease_directory,
    read_exit_code,
    read_json,
    read_lease,
)
from fairlead.engines.local.runner import KIND
from fairlead.engines.requests import Command
from fairlead.engines.runner import Capabilities, LaunchError
from fairlead.engines.slurm.commands import Slurm, SlurmError
from fairlead.engines.slurm.holds import HeldBy, holder
from fairlead.engines.slurm.lease_runner import LOOK_S
from fairlead.engines.slurm.machines import usable_gpus
from fairlead.engines.slurm.queue import JobStage, SlurmJob
from fairlead.engines.slurm.shared_looks import NAME, SharedLook, write_look
from fairlead.engines.slurm.steered import Correction, see

BEGINS_S = 2.0  # after which a batch script that Slurm counts as running has begun and set its traps
# Slurm revokes the credential of a run when it ends, by the second: a run that begins on a node within the same second
# as the last one ended there is refused, and the job fails.
CREDENTIAL_S = 1.2
QUEUE_S = 180.0  # above the two minutes for which Slurm delays requeued jobs by default
_MISSED_LOOKS = 3  # after which a job that Slurm does not show is gone
_RESTARTS, _ID = "restarts", "slurm"  # in records


class SlurmSteerRunner:
    """A runner over the jobs of one partition. It needs an operator's rights in Slurm."""

    def __init__(
        self,
        root: Path,
        slurm: Slurm,
        partition: str,
        *,
        gpus_of: Callable[[], Mapping[str, int]],  # of the nodes that belong to the cluster
        look_s: float = LOOK_S,
    ) -> None:
        self.root = root.absolute()
        self.capabilities = Capabilities(
            look_s=look_s, looks_idle=True, claim_s=60.0, queue_s=QUEUE_S, picks_devices=True, queues=True
        )
        self._slurm = slurm
        self._partition = partition
        self._gpus_of = gpus_of
        self._leases: dict[Key, tuple[Lease, int]] = {}  # with the restarts at their launch
        self._missed: Counter[Key] = Counter()
        self._running_s: dict[Key, float] = {}  # when it was first seen to run, by the monotonic clock
        self._seen: dict[str, SlurmJob] = {}  # by Slurm's id, as of the last look
        self._stopped_s: dict[str, float] = {}  # Slurm's id -> when it was first seen not to run any more

    # ---- the interface of a runner ---------------------------------------------------------------------------------

    def launch(self, lease: Lease) -> None:
        try:
            job = self._slurm.job(
                lease.command.foreign
            )  # not of the last look: a hold that was set since would be lifted
        except SlurmError as error:
            raise LaunchError(str(error)) from None
        if job is None or job.stage is not JobStage.PENDING:
            state = "is unknown to Slurm" if job is None else f"is {job.state}"
            raise LaunchError(f"job {lease.command.foreign} {state}; wanted one that waits")
        if holder(job) in (HeldBy.OWNER, HeldBy.ADMINISTRATOR):
            raise LaunchError(f"job {job.id} is held by its {holder(job)}, and must be released with scontrol first")
        self._record(lease, job.restarts)
        self._end_earlier(lease)
        nodes = ",".join(lease.nodes)
        begin = ["StartTime=now"] if job.restarts else []  # else a requeued job waits until its credential has expired
        time.sleep(max(self._stopped_s.get(job.id, -math.inf) + CREDENTIAL_S - time.monotonic(), 0.0))
        try:
            self._slurm.run("scontrol", "update", f"jobid={job.id}", f"NodeList={nodes}", *begin)
            self._slurm.run("scontrol", "release", job.id)
        except SlurmError as error:
            # If the answer was lost it may have taken effect, which the next look shows.
            if not error.lost and self.revoke(lease.key):
                raise LaunchError(str(error)) from None

    def ask_to_stop(self, lease: Lease) -> bool:
        """Its owner sees USR1 in the batch shell, and the job stays on hold however its run ends.

        That it was asked is noted only if it still ran, because a run that died by itself before that has failed.
        """
        job = self._job(lease.command.foreign)
        if job is None or job.stage is not JobStage.ACTIVE or self._is_over(lease.key):
            return False
        if time.monotonic() - self._running_s.get(lease.key, math.inf) < BEGINS_S:
            return False  # a signal would be lost, or end a script that has not set its trap yet
        with suppress(SlurmError, OSError):
            self._slurm.run("scontrol", "uhold", job.id)  # Slurm refuses it for a job that is over
            (self.directory(lease.key) / shim.ASKED).touch(0o600)
            self._slurm.signal(job.id, "USR1", batch=True)
            return True
        return False

    def kill(self, lease: Lease) -> None:
        """Requeue its job on hold, unless it has ended since the last look: Slurm would run a finished job again."""
        if self._is_over(lease.key) or not lease.command.foreign:
            return
        with suppress(SlurmError):
            job = self._slurm.job(lease.command.foreign)
            if job is not None and job.stage is JobStage.ACTIVE:
                self._requeue(job.id)

    def look(self, leases: Sequence[Key]) -> Look:
        began_s = time.monotonic()
        try:
            seen = {job.id: job for job in self._slurm.queue(partition=self._partition)}
            nodes = self._slurm.nodes()  # after the jobs: what began in between counts as a foreign job's for once
        except SlurmError as error:
            return no_answer(str(error))
        write_look(self.root / NAME, self._partition, SharedLook(began_s, seen, nodes))
        self._note_stops(seen)
        wanted = self._gpus_of()
        gone = frozenset(name for name in wanted if name not in nodes or nodes[name].gone)
        sights = {key: sight for key in leases if (sight := self._sight(key)) is not None}
        ours = self._held(key for key, sight in sights.items() if sight.condition is Condition.RUNNING)
        closed = frozenset(name for name in wanted if name in nodes and not nodes[name].open)
        usable = {name: usable_gpus(nodes[name], wanted[name], ours[name]) for name in wanted if name in nodes}
        return Look(sights, gone, usable, closed)

    def _note_stops(self, seen: dict[str, SlurmJob]) -> None:
        """Keep what a look shows, and the time of jobs that have come off their nodes since the last one."""
        now_s, before = time.monotonic(), self._seen
        stopped = [
            id_
            for id_, job in seen.items()
            if job.stage is not JobStage.ACTIVE and id_ in before and before[id_].stage is JobStage.ACTIVE
        ]
        kept = {id_: at_s for id_, at_s in self._stopped_s.items() if now_s - at_s < CREDENTIAL_S}
        self._seen, self._stopped_s = seen, kept | dict.fromkeys(stopped, now_s)

    def recall(self, key: Key) -> Lease | None:
        lease = read_lease(self.directory(key), key)
        if lease is None or not lease.damage:
            return lease
        return replace(lease, command=Command("", foreign=self._claimed(key)[0]))

    def jobs(self) -> Collection[str]:
        return jobs_in(self.root)

    def numbers(self, job: str) -> Sequence[int]:
        return [number for number in lease_numbers(self.root, job) if self.recall((job, number)) is not None]

    def revoke(self, key: Key) -> bool:
        """Hold the job, and see whether it had begun before."""
        lease, restarts = self._known(key)
        if lease is None:
            return True
        if self._is_over(key):
            return self._end(key) is Condition.VANISHED
        id_ = lease.command.foreign
        try:
            self._slurm.run("scontrol", "uhold", id_)
            job = self._slurm.job(id_)
        except SlurmError:
            return False  # the next look shows whether Slurm still has the job
        waits = job is not None and job.stage is JobStage.PENDING and job.held and job.restarts == restarts
        return waits and self._note_end(key, Sight(Condition.VANISHED))

    # ---- what Slurm shows ------------------------------------------------------------------------------------------

    def _sight(self, key: Key) -> Sight | None:
        lease, restarts = self._known(key)
        if lease is None:
            return Sight(Condition.NEVER_CLAIMED)
        asked = (self.directory(key) / shim.ASKED).exists()
        if self._is_over(key):
            self._leases.pop(key, None)  # its files have the rest
            condition, code = self._end(key), read_exit_code(self.directory(key))
            unknown = condition is Condition.ENDED and code is None
            return Sight(condition, code, asked, reason=how_lost(self.directory(key)) if unknown else "")
        job = self._seen.get(lease.command.foreign)
        if job is None:
            return self._missing(key, asked)
        self._missed.pop(key, None)
        seen = see(job, restarts, asked=asked)
        if seen.correction is Correction.HOLD:
            with suppress(SlurmError):
                self._slurm.run("scontrol", "uhold", job.id)
        elif seen.correction is Correction.REQUEUE:
            self._requeue(job.id)
        elif seen.sight is not None and seen.sight.condition in OVER:
            self._note_end(key, seen.sight)
        if seen.sight is not None and seen.sight.condition is Condition.RUNNING:
            self._running_s.setdefault(key, time.monotonic())
        return seen.sight

    def _missing(self, key: Key, asked: bool) -> Sight | None:
        """Slurm forgets jobs some minutes after their end. Whether this one has finished cannot be known any more."""
        self._missed[key] += 1
        if self._missed[key] < _MISSED_LOOKS:
            return None
        sight = Sight(Condition.VANISHED, asked=asked, reason="Slurm no longer knows the job")
        self._note_end(key, sight)
        return sight

    def _held(self, keys: Iterable[Key]) -> Counter[str]:
        held: Counter[str] = Counter()
        for key in keys:
            lease, _ = self._known(key)
            if lease is not None:
                held.update(lease.nodes)
        return held

    def _job(self, id_: str) -> SlurmJob | None:
        """The job as the last look showed it, or now if there was none; None if it is unknown or Slurm does not answer.

        An old sight does no harm: Slurm refuses what no longer fits, and a later look shows what really happened.
        """
        if id_ and id_ not in self._seen:
            with suppress(SlurmError):
                self._seen |= {job.id: job for job in self._slurm.queue(jobs=[id_])}
        return self._seen.get(id_)

    def _requeue(self, id_: str) -> None:
        with suppress(SlurmError):
            self._slurm.run("scontrol", "requeuehold", id_)

    # ---- files -----------------------------------------------------------------------------------------------------

    def directory(self, key: Key) -> Path:
        return lease_directory(self.root, key)

    def _record(self, lease: Lease, restarts: int) -> None:
        directory = self.directory(lease.key)
        try:
            new_lease_directory(self.root, lease.key)
            draft = directory / f"{shim.LEASE}.draft"
            shim.write_synced(str(draft), {"fairlead": KIND, **asdict(lease), _RESTARTS: restarts})
            draft.rename(directory / shim.LEASE)
            (directory / shim.CLAIM).write_text(json.dumps({_ID: lease.command.foreign, _RESTARTS: restarts}))
        except FileExistsError:
            raise LaunchError(f"lease {lease.number} of job {lease.job} was launched before") from None
        except OSError as error:
            raise LaunchError(f"cannot write {directory}: {error.strerror}") from None
        self._leases[lease.key] = lease, restarts

    def _end_earlier(self, lease: Lease) -> None:
        """Slurm runs a job once, so earlier leases are over: also those on nodes that failed, which nobody saw end."""
        for key in ((lease.job, number) for number in lease_numbers(self.root, lease.job) if number < lease.number):
            if not self._is_over(key):
                self._note_end(key, Sight(Condition.VANISHED))

    def _known(self, key: Key) -> tuple[Lease | None, int]:
        """The lease, and how often its job had been requeued when it was launched."""
        if key not in self._leases:
            lease = self.recall(key)
            if lease is None or not lease.command.foreign:
                return None, 0
            self._leases[key] = lease, self._claimed(key)[1]
        return self._leases[key]

    def _claimed(self, key: Key) -> tuple[str, int]:
        """Slurm's id of the job and its restarts at the launch, by either of two files; no id if neither can be read."""
        claim, lease = (read_json(self.directory(key) / name) for name in (shim.CLAIM, shim.LEASE))
        for record, id_ in ((claim, _field(claim, _ID)), (lease, _field(_field(lease, "command"), "foreign"))):
            restarts = _field(record, _RESTARTS)
            if isinstance(id_, str) and id_ and type(restarts) is int:
                return id_, restarts
        return "", 0

    def _note_end(self, key: Key, sight: Sight) -> bool:
        """Keep how the lease ended, because Slurm forgets it; whether that succeeded."""
        directory = self.directory(key)
        try:
            if sight.condition is Condition.ENDED:
                shim.write_synced(str(directory / f"{shim.EXIT}.draft"), {"code": sight.code})
                os.replace(directory / f"{shim.EXIT}.draft", directory / shim.EXIT)
            else:
                (directory / shim.GONE).touch(0o600)
        except OSError:
            return False  # such as a full disk; the next look sees it again
        self._leases.pop(key, None)
        self._missed.pop(key, None)
        self._running_s.pop(key, None)
        return True

    def _is_over(self, key: Key) -> bool:
        directory = self.directory(key)
        return (directory / shim.EXIT).exists() or (directory / shim.GONE).exists()

    def _end(self, key: Key) -> Condition:
        return Condition.ENDED if (self.directory(key) / shim.EXIT).exists() else Condition.VANISHED


def _field(record: Any, name: str) -> Any:
    return record.get(name) if isinstance(record, dict) else None
