"""Runs each lease as a Slurm job of its own, as the user of the service, without any right beyond an ordinary user's.

    ROOT/leases/JOB/NUMBER/   lease.json  batch.sh  ranks.sh  claim  asked  log  slurm.log  report/progress.json  exit.json

The directory is on a file system that the nodes share. Slurm's queue shows whether a job waits or runs; how it ended is in
`exit.json`, because Slurm forgets jobs after minutes. A lease is recognised in the queue by its comment, so that a
submission whose answer was lost is found again. Whoever links `claim` first decides whether it runs or is revoked.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from fairlead.engines.leases import Condition, Key, Lease, Look, Sight, no_answer
from fairlead.engines.local import shim
from fairlead.engines.local.files import REPORT, read_exit_code, read_report
from fairlead.engines.local.log_limits import LogLimits
from fairlead.engines.local.programs import program
from fairlead.engines.requests import Processes
from fairlead.engines.runner import Capabilities, LaunchError
from fairlead.engines.shared_leases import REPORT_EVERY_S, SharedLeases, identity, passed_on
from fairlead.engines.slurm.commands import Slurm, SlurmError
from fairlead.engines.slurm.gangs import components, launch_command, ranks_script
from fairlead.engines.slurm.machines import usable_gpus
from fairlead.engines.slurm.queue import JobStage, SlurmJob

BATCH, RANKS, IDENTITY = "batch.sh", "ranks.sh", "slurm-identity"
LOOK_S = 5.0
_OUT_OF_MEMORY = "OUT_OF_MEMORY"


class SlurmLeaseRunner:
    """A runner over Slurm's command line."""

    def __init__(
        self,
        root: Path,
        slurm: Slurm,
        *,
        options: Sequence[str] = (),  # of sbatch, for all leases: partition, account, time limit
        pace: Mapping[str, float] | None = None,  # by GPU type, if speeds are emulated
        gpus_of: Callable[[], Mapping[str, int]],  # of the nodes that belong to the cluster
        look_s: float = LOOK_S,
        report_every_s: float = REPORT_EVERY_S,
    ) -> None:
        self._leases = SharedLeases(root, pace=pace, report_every_s=report_every_s)
        self.root, self.directory = self._leases.root, self._leases.directory
        self.recall, self.jobs, self.numbers = self._leases.recall, self._leases.jobs, self._leases.numbers
        self.capabilities = Capabilities(
            look_s=look_s, looks_idle=True, claim_s=60.0, queue_s=60.0, picks_devices=True, queues=True
        )
        self._slurm = slurm
        self._service = identity(
            self.root, IDENTITY
        )  # in the comments of its jobs, which tell them from those of others
        self._options = list(options)
        self._gpus_of = gpus_of
        self._logs = LogLimits(self.root)
        self._numbers: dict[Key, str] = {}  # of jobs that this process submitted or has seen
        self._addresses: dict[str, str] = {}

    # ---- the interface of a runner ---------------------------------------------------------------------------------

    def launch(self, lease: Lease) -> None:
        directory = self._leases.lay_out(lease, lambda directory: self._plan(directory, lease))
        try:
            self._numbers[lease.key] = self._submit(directory, lease)
        except SlurmError as error:
            # If the answer was lost the job may be in the queue, where the next look finds it.
            if not error.lost and self.revoke(lease.key):
                raise LaunchError(str(error)) from None

    def ask_to_stop(self, lease: Lease) -> bool:
        if read_exit_code(self.directory(lease.key)) is not None:
            return False  # one that failed by itself before that has failed
        with suppress(OSError):
            (self.directory(lease.key) / shim.ASKED).touch(0o600)
        number = self._number(lease.key)
        if number is None or not self._leases.is_claimed(lease.key):
            return False
        gang = lease.command.processes != Processes.ONE
        with suppress(SlurmError):
            self._slurm.signal(number, "TERM" if gang else "USR1", batch=not gang)
            return True
        return False

    def kill(self, lease: Lease) -> None:
        number = self._number(lease.key)
        if number is not None:
            with suppress(SlurmError):
                self._slurm.kill(number)

    def look(self, leases: Sequence[Key]) -> Look:
        try:
            jobs = self._jobs()
            nodes = self._slurm.nodes()  # after the jobs: what began in between counts as a foreign job's for once
        except SlurmError as error:
            return no_answer(str(error))
        self._addresses = {name: node.address for name, node in nodes.items()}
        wanted = self._gpus_of()
        gone = frozenset(name for name in wanted if name not in nodes or nodes[name].gone)
        active = [key for key, job in jobs.items() if job.stage is JobStage.ACTIVE]
        self._logs.apply(active)
        ours = self._leases.held(active)
        closed = frozenset(name for name in wanted if name in nodes and not nodes[name].open)
        usable = {name: usable_gpus(nodes[name], wanted[name], ours[name]) for name in wanted if name in nodes}
        sights = {key: self._sight(key, jobs.get(key)) for key in leases}
        return Look({key: sight for key, sight in sights.items() if sight is not None}, gone, usable, closed)

    def revoke(self, key: Key) -> bool:
        revoked = self._leases.revoke(key)
        if revoked is None:
            return True
        number = self._number(key) if revoked else None
        if number is not None:
            with suppress(SlurmError):
                self._slurm.cancel(number)  # otherwise it would begin and end at once
        return revoked

    # ---- one lease -------------------------------------------------------------------------------------------------

    def _plan(self, directory: Path, lease: Lease) -> dict[str, Any]:
        """What Slurm adds to the plan of the lease, whose scripts are written here."""
        python = shlex.join(program(shim.__name__, "--foreground", str(directory)))
        _write(directory / BATCH, f"#!/bin/bash\nexec {python}\n")
        _write(directory / RANKS, ranks_script(lease, self._addresses))
        return {"run": launch_command(lease, str(directory / RANKS)), "submitted": passed_on()}

    def _submit(self, directory: Path, lease: Lease) -> str:
        common = [
            f"--job-name=fairlead-{lease.job}",
            f"--comment={self._comment(lease.key)}",
            f"--chdir={directory}",
            f"--output={directory}/slurm.log",
            "--no-requeue",
            *self._options_of(lease),
        ]
        parts = [[*common, *part.options] for part in components(lease)]
        return self._slurm.submit(parts, str(directory / BATCH), passed_on())

    def _options_of(self, lease: Lease) -> list[str]:
        """The options of all leases, with the memory that the job states instead of the usual one."""
        memory_gib = lease.command.memory_gib
        if memory_gib is None:
            return self._options
        others = [option for option in self._options if not option.startswith("--mem")]
        return [f"--mem={math.ceil(memory_gib * 1024)}M", *others]  # of each node

    # ---- what Slurm shows ------------------------------------------------------------------------------------------

    def _jobs(self) -> dict[Key, SlurmJob]:
        """Our jobs by lease; of a heterogeneous job the first component stands for all."""
        jobs = {}
        for job in self._slurm.queue(mine=True):
            key = self._key(job.comment)
            if key is not None and job.leader == job.number:
                jobs[key] = job
                self._numbers[key] = job.number
        return jobs

    def _sight(self, key: Key, job: SlurmJob | None) -> Sight | None:
        """The condition of a lease; None if nothing is known about it now."""
        directory = self.directory(key)
        asked = (directory / shim.ASKED).exists()
        if job is not None and job.stage is JobStage.UNKNOWN:
            return None
        if job is not None and job.stage is JobStage.PENDING:
            return Sight(Condition.QUEUED, asked=asked, reason=job.reason or "Slurm has not considered it yet")
        report = read_report(directory / REPORT)
        if job is not None and job.stage is JobStage.ACTIVE:
            if not self._leases.is_claimed(key):
                return Sight(Condition.QUEUED, asked=asked, reason="it begins")
            return Sight(Condition.RUNNING, asked=asked, report=report)
        code = read_exit_code(directory)
        if code is not None:
            return Sight(Condition.ENDED, code=code, asked=asked, report=report)
        if job is not None and job.state == _OUT_OF_MEMORY:
            return Sight(Condition.ENDED, code=137, asked=asked, report=report)
        if (
            job is not None and job.stage is JobStage.DONE and not self._leases.is_claimed(key)
        ):  # the node could not execute it
            return Sight(Condition.ENDED, code=job.exit_code or shim.CANNOT_RUN, asked=asked)
        if job is None and not self._leases.is_claimed(key):
            return Sight(Condition.NEVER_CLAIMED, asked=asked)
        return Sight(Condition.VANISHED, asked=asked, report=report)

    def _number(self, key: Key) -> str | None:
        """The number of the lease's Slurm job; None if there is none, or Slurm does not answer."""
        if key not in self._numbers:
            with suppress(SlurmError):
                self._jobs()
        return self._numbers.get(key)

    def _comment(self, key: Key) -> str:
        return f"fairlead:{self._service}:{key[0]}/{key[1]}"

    def _key(self, comment: str) -> Key | None:
        prefix, _, rest = comment.rpartition(":")
        job, _, number = rest.rpartition("/")
        return (job, int(number)) if prefix == f"fairlead:{self._service}" and number.isdigit() else None


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o700)
