"""Runs each lease as a Slurm job of its own, as the user of the service, without any right beyond an ordinary user's.

    ROOT/leases/JOB/NUMBER/   lease.json  batch.sh  ranks.sh  claim  asked  log  slurm.log  report/progress.json  exit.json

The directory is on a file system that the nodes share. Slurm's queue shows whether a job waits or runs; how it ended is in
`exit.json`, because Slurm forgets jobs after minutes. A lease is recognised in the queue by its comment, so that a
submission whose answer was lost is found again. Whoever links `claim` first decides whether it runs or is revoked.
"""

from __future__ import annotations

import math
import os
import secrets
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fairlead.engines.leases import NO_ANSWER, Condition, Key, Lease, Look, Sight
from fairlead.engines.local import shim
from fairlead.engines.local.files import (
    CHECKPOINTS,
    REPORT,
    jobs_in,
    lease_directory,
    lease_numbers,
    new_lease_directory,
    read_exit_code,
    read_json,
    read_lease,
    read_report,
)
from fairlead.engines.local.log_limits import LogLimits
from fairlead.engines.local.programs import program
from fairlead.engines.local.runner import KIND, PASSED_ON
from fairlead.engines.ranks import ranks_of
from fairlead.engines.requests import Processes
from fairlead.engines.runner import Capabilities, LaunchError
from fairlead.engines.slurm.commands import Slurm, SlurmError
from fairlead.engines.slurm.gangs import components, launch_command, ranks_script
from fairlead.engines.slurm.machines import usable_gpus
from fairlead.engines.slurm.queue import JobStage, SlurmJob
from fairlead.model.handshake import LEASE_VARIABLE, REPORT_EVERY_VARIABLE, REPORT_VARIABLE, STOP_VARIABLE

BATCH, RANKS, IDENTITY = "batch.sh", "ranks.sh", "slurm-identity"
LOOK_S = 5.0
REPORT_EVERY_S = 5.0  # on a file system that all nodes share
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
        self.root = root.absolute()
        self.capabilities = Capabilities(
            look_s=look_s, looks_idle=True, claim_s=60.0, queue_s=60.0, picks_devices=True, queues=True
        )
        self._slurm = slurm
        self._service = _identity(self.root)  # in the comments of its jobs, which tell them from those of others
        self._options = list(options)
        self._pace = pace
        self._gpus_of = gpus_of
        self._report_every_s = report_every_s
        self._logs = LogLimits(self.root)
        self._numbers: dict[Key, str] = {}  # of jobs that this process submitted or has seen
        self._addresses: dict[str, str] = {}

    # ---- the interface of a runner ---------------------------------------------------------------------------------

    def launch(self, lease: Lease) -> None:
        workdir = _workdir(lease)
        if not os.path.isdir(workdir):
            raise LaunchError(f"workdir {workdir} is not a directory; create it or name another")
        directory = self.directory(lease.key)
        try:
            self._lay_out(directory, lease)
        except FileExistsError:
            raise LaunchError(f"lease {lease.number} of job {lease.job} was launched before") from None
        except OSError as error:
            raise LaunchError(f"cannot write {directory}: {error.strerror}") from None
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
        if number is None or not self._claimed(lease.key):
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
        except SlurmError:
            return NO_ANSWER
        self._addresses = {name: node.address for name, node in nodes.items()}
        wanted = self._gpus_of()
        gone = frozenset(name for name in wanted if name not in nodes or nodes[name].gone)
        active = [key for key, job in jobs.items() if job.stage is JobStage.ACTIVE]
        self._logs.apply(active)
        ours = self._held(active)
        closed = frozenset(name for name in wanted if name in nodes and not nodes[name].open)
        usable = {name: usable_gpus(nodes[name], wanted[name], ours[name]) for name in wanted if name in nodes}
        sights = {key: self._sight(key, jobs.get(key)) for key in leases}
        return Look({key: sight for key, sight in sights.items() if sight is not None}, gone, usable, closed)

    def recall(self, key: Key) -> Lease | None:
        return read_lease(self.directory(key), key)

    def jobs(self) -> Collection[str]:
        return jobs_in(self.root)

    def numbers(self, job: str) -> Sequence[int]:
        return [number for number in lease_numbers(self.root, job) if self.recall((job, number)) is not None]

    def revoke(self, key: Key) -> bool:
        directory = self.directory(key)
        try:
            revoked = shim.claim(str(directory / shim.CLAIM), {"revoked": True}) or "revoked" in self._claim(key)
        except FileNotFoundError:
            return True  # without a directory nothing can run it
        except OSError:
            return False  # such as a full disk
        number = self._number(key) if revoked else None
        if number is not None:
            with suppress(SlurmError):
                self._slurm.cancel(number)  # otherwise it would begin and end at once
        return revoked

    # ---- one lease -------------------------------------------------------------------------------------------------

    def directory(self, key: Key) -> Path:
        return lease_directory(self.root, key)

    def _lay_out(self, directory: Path, lease: Lease) -> None:
        new_lease_directory(self.root, lease.key)
        (directory / REPORT).parent.mkdir(mode=0o700)
        (directory.parent / CHECKPOINTS).mkdir(mode=0o700, exist_ok=True)
        python = shlex.join(program(shim.__name__, "--foreground", str(directory)))
        _write(directory / BATCH, f"#!/bin/bash\nexec {python}\n")
        _write(directory / RANKS, ranks_script(lease, self._addresses))
        draft = directory / f"{shim.LEASE}.draft"
        shim.write_synced(str(draft), self._description(directory, lease))
        draft.rename(directory / shim.LEASE)

    def _description(self, directory: Path, lease: Lease) -> dict[str, Any]:
        chosen, workdir = lease.command.checkpoint_dir, _workdir(lease)
        home = directory.parent / CHECKPOINTS
        return {
            "fairlead": KIND,
            **asdict(lease),
            "checkpoint_dir": str(home) if chosen is None else os.path.join(workdir, chosen, lease.job),
            "emulated": self._pace is not None,
            "pace": None if self._pace is None else [self._pace.get(gpu.type, 1.0) for gpu in lease.gpus],
            "ranks": [rank.gpus for rank in ranks_of(lease)],
            "plan": {
                "shell": ["/bin/bash", "-o", "pipefail"],
                "setup": lease.command.setup,
                "run": launch_command(lease, str(directory / RANKS)),
                "workdir": workdir,
                "env": self._environment(directory, lease),
                "submitted": _submitted(),
                "ranks": [{}],
                "grace_s": lease.command.grace_s,
                "cgroups": {},  # Slurm tracks processes in its own way
            },
        }

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
        return self._slurm.submit(parts, str(directory / BATCH), _submitted())

    def _options_of(self, lease: Lease) -> list[str]:
        """The options of all leases, with the memory that the job states instead of the usual one."""
        memory_gib = lease.command.memory_gib
        if memory_gib is None:
            return self._options
        others = [option for option in self._options if not option.startswith("--mem")]
        return [f"--mem={math.ceil(memory_gib * 1024)}M", *others]  # of each node

    def _environment(self, directory: Path, lease: Lease) -> dict[str, str]:
        env = _submitted() | {"PYTHONUNBUFFERED": "1", **lease.command.env}
        env |= {
            LEASE_VARIABLE: str(directory / shim.LEASE),
            REPORT_VARIABLE: str(directory / REPORT),
            REPORT_EVERY_VARIABLE: f"{self._report_every_s:g}",
            STOP_VARIABLE: str(directory / shim.ASKED),
            "FAIRLEAD_JOB": lease.job,
            "FAIRLEAD_GPUS": str(len(lease.gpus)),
        }
        return env | ({"FAIRLEAD_EMULATED": "1"} if self._pace is not None else {})

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
            if not self._claimed(key):
                return Sight(Condition.QUEUED, asked=asked, reason="it begins")
            return Sight(Condition.RUNNING, asked=asked, report=report)
        code = read_exit_code(directory)
        if code is not None:
            return Sight(Condition.ENDED, code=code, asked=asked, report=report)
        if job is not None and job.state == _OUT_OF_MEMORY:
            return Sight(Condition.ENDED, code=137, asked=asked, report=report)
        if job is not None and job.stage is JobStage.DONE and not self._claimed(key):  # the node could not execute it
            return Sight(Condition.ENDED, code=job.exit_code or shim.CANNOT_RUN, asked=asked)
        if job is None and not self._claimed(key):
            return Sight(Condition.NEVER_CLAIMED, asked=asked)
        return Sight(Condition.VANISHED, asked=asked, report=report)

    def _held(self, keys: Iterable[Key]) -> Counter[str]:
        """GPUs of these leases by node. Each description is read once: they are on a file system that all nodes share."""
        held: Counter[str] = Counter()
        for lease in filter(None, map(self.recall, keys)):
            held.update(lease.nodes)
        return held

    def _claim(self, key: Key) -> dict[str, Any]:
        record = read_json(self.directory(key) / shim.CLAIM)
        return record if isinstance(record, dict) else {}

    def _claimed(self, key: Key) -> bool:
        return (self.directory(key) / shim.CLAIM).exists()

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


def _identity(root: Path) -> str:
    """A name that no other state directory has, made once."""
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    path, draft = root / IDENTITY, root / f"{IDENTITY}.{os.getpid()}"
    if not path.exists():
        draft.write_text(secrets.token_hex(8), encoding="ascii")
        with suppress(FileExistsError):
            os.link(draft, path)
        draft.unlink()
    return path.read_text(encoding="ascii")


def _submitted() -> dict[str, str]:
    """The environment of `sbatch`, which the batch script inherits. Variables of a job could change what sbatch does."""
    return {name: os.environ[name] for name in PASSED_ON if name in os.environ}


def _workdir(lease: Lease) -> str:
    return os.path.abspath(lease.command.workdir or os.environ.get("HOME", "/"))


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o700)
