"""The local runner: real processes on this machine, one directory for each lease.

    ROOT/leases/JOB/NUMBER/   lease.json  claim  alive  asked  roll  log  report/progress.json  exit.json  gone
    ROOT/leases/JOB/checkpoints/          unless the job names another directory
    ROOT/down/NODE                        while this file exists, an emulated node counts as failed

Jobs run as the daemon's user, so that all tenants are one trust domain; where the daemon is root and tenants have
accounts, they run as those users, and what they read and write is in ROOT.work, next to ROOT, which stays closed to
them. Of the daemon's environment they see only the variables in `PASSED_ON`.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from fairlead.engines.leases import OVER, Condition, Gpu, Key, Lease, Look, Report, Sight
from fairlead.engines.local import shim
from fairlead.engines.local.accounts import ONE_USER, Account, Accounts, check_checkpoints, check_reachable, give
from fairlead.engines.local.devices import Slots, devices_of
from fairlead.engines.local.files import (
    CHECKPOINTS,
    REPORT,
    has_begun,
    how_lost,
    jobs_in,
    lease_directory,
    lease_numbers,
    new_lease_directory,
    read_exit_code,
    read_json,
    read_lease,
    read_report,
    work_root,
)
from fairlead.engines.local.hierarchies import NO_LIMITS, GroupLimits, Hierarchies, lease_name
from fairlead.engines.local.log_limits import LogLimits
from fairlead.engines.local.processes import claim_of, forget_groups, is_locked, is_supervised, kill_all, signal_group
from fairlead.engines.local.programs import program
from fairlead.engines.local.warm.beginning import Beginning, beginning_of
from fairlead.engines.local.warm.pool import WarmLimits, WarmPool
from fairlead.engines.python_command import python_command
from fairlead.engines.ranks import Rank, rank_environment, ranks_of
from fairlead.engines.runner import Capabilities, LaunchError
from fairlead.model.errors import InputError
from fairlead.model.handshake import LEASE_VARIABLE, REPORT_EVERY_VARIABLE, REPORT_VARIABLE, STOP_VARIABLE

PASSED_ON = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR")
KIND = "lease/1"
REPORT_EVERY_S = 0.2
_HERE = "127.0.0.1"  # where the ranks of a gang meet: all nodes are this machine
_LAUNCH_S = 60.0  # ends a hang; the machine may be busy


class LocalRunner:
    """Runs leases as local processes.

    `devices` maps (node, slot) to CUDA's number of the GPU. `pace` makes this an emulation: it is the speed of each
    type relative to the fastest, to which workers that use `fairlead.lease` slow down. `node_pace` is the speed of
    single emulated nodes relative to their type. `accounts` are the users as whom jobs run. `hierarchies` are those in which leases have control groups, if
    any, and `limits` what a lease may use where they can limit that.
    """

    capabilities = Capabilities()

    def __init__(
        self,
        root: str | Path,
        devices: Mapping[tuple[str, int], int],
        *,
        pace: Mapping[str, float] | None = None,
        node_pace: Mapping[str, float] | None = None,
        accounts: Accounts = ONE_USER,
        warm: WarmLimits | None = None,
        hierarchies: Hierarchies | None = None,
        limits: GroupLimits = NO_LIMITS,
    ) -> None:
        self.root = Path(root).absolute()
        self._devices = devices
        self._pace = pace
        self._node_pace = node_pace or {}
        self._accounts = accounts
        self._hierarchies, self._limits = hierarchies or Hierarchies(), limits
        self.warm = WarmPool(warm or WarmLimits(), self._standby_groups)
        self._logs = LogLimits(self.root)
        outside = work_root(self.root)
        self._work, self._unused = (outside, self.root) if accounts.all() else (self.root, outside)
        self._shell = ["/bin/bash", "-o", "pipefail"] if os.access("/bin/bash", os.X_OK) else ["/bin/sh"]
        for account in accounts.all():
            check_reachable(self._work, account)

    @property
    def emulated(self) -> bool:
        return self._pace is not None

    def directory(self, key: Key) -> Path:
        return lease_directory(self.root, key)

    def launch(self, lease: Lease) -> None:
        directory = self.directory(lease.key)
        try:
            self._lay_out(directory, lease)
        except FileExistsError:
            raise LaunchError(f"lease {lease.number} of job {lease.job} was launched before") from None
        except OSError as error:
            raise LaunchError(f"cannot write the files of the lease: {error}") from None
        except InputError as error:  # such as a slot for which this machine has no GPU
            raise LaunchError(str(error)) from None
        try:
            if self._load_warm(directory, lease):
                return
            # Without our environment, our directory and our terminal; the shim forks itself away at once.
            done = subprocess.run(
                program(shim.__name__, str(directory)),
                env={},
                cwd="/",
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_LAUNCH_S,
                check=False,
            )
        except (OSError, subprocess.SubprocessError) as error:
            self._give_up(lease.key, f"cannot start a process: {error}")
            return  # it was claimed nevertheless, and runs
        if done.returncode:
            self._give_up(lease.key, done.stderr.decode(errors="replace").strip()[-500:] or "the runner did not start")

        else:
            self.prepare(lease)

    def prepare(self, lease: Lease) -> None:
        """Keep a standby for a lease that begins like this one, if it wants a warm start and the limits allow it."""
        beginning = self._beginning(lease)
        if beginning is not None:
            self.warm.keep_for(beginning)

    def warm_figures(self) -> dict[str, int]:
        return self.warm.figures()

    def ask_to_stop(self, lease: Lease) -> bool:
        """That it was asked is noted only if it has not ended, because one that failed by itself before that has failed."""
        if (self.directory(lease.key) / shim.EXIT).exists():
            return False
        for directory in {self.directory(lease.key), self._work_directory(lease.key)}:
            with suppress(OSError):
                (directory / shim.ASKED).touch(0o600)  # only its existence matters
        return signal_group(self.directory(lease.key), signal.SIGTERM)

    def kill(self, lease: Lease) -> None:
        kill_all(self.directory(lease.key))

    def look(self, leases: Sequence[Key]) -> Look:
        down = self._down()
        sights = {key: self._look(key) for key in leases}
        self._logs.apply(leases)
        return Look(sights, down)

    def recall(self, key: Key) -> Lease | None:
        return read_lease(self.directory(key), key)

    def adopt(self, lease: Lease) -> None:
        """Let the lease keep its devices: numbers of slots of nodes that joined depend on the order of their use."""
        if isinstance(self._devices, Slots):
            self._devices.keep(devices_of(lease, read_json(self.directory(lease.key) / shim.LEASE)))

    def jobs(self) -> Collection[str]:
        return jobs_in(self.root)

    def numbers(self, job: str) -> Sequence[int]:
        return [number for number in lease_numbers(self.root, job) if self.recall((job, number)) is not None]

    def revoke(self, key: Key) -> bool:
        directory = self.directory(key)
        try:
            if not has_begun(directory) and shim.claim(str(directory / shim.CLAIM), {"revoked": True}):
                return True
        except FileNotFoundError:
            return True  # without a directory nothing can run it
        except OSError:
            return False  # such as a full disk
        claim = claim_of(directory)
        return "revoked" in claim or ("group" not in claim and not is_locked(directory / shim.ALIVE))

    def check_users(self, jobs: Iterable[str]) -> None:
        """InputError if a lease of these jobs still runs as another user than its tenant has now."""
        for key in ((job, number) for job in jobs for number in self.numbers(job)):
            lease, record = self.recall(key), read_json(self.directory(key) / shim.LEASE)
            if (
                lease is None
                or lease.damage
                or "uid" not in record.get("plan", ())
                or self._look(key).condition in OVER
            ):
                continue
            self._accounts.check_unchanged(lease, record["plan"]["uid"])

    # ---- one lease -------------------------------------------------------------------------------------------------

    def _lay_out(self, directory: Path, lease: Lease) -> None:
        """Create the directory and files of a lease; FileExistsError if it was launched before."""
        account, work = self._accounts.of(lease.tenant), self._work_directory(lease.key)
        if lease.command.checkpoint_dir is None:
            unused = self._unused / "leases" / lease.job / CHECKPOINTS
            check_checkpoints(work.parent / CHECKPOINTS, unused, account)
        self._limits_of(lease.command.memory_gib)  # it may be refused, before anything of it is there
        new_lease_directory(self.root, lease.key)
        if account:
            for parent in (self._work, self._work / "leases", work.parent, work):
                parent.mkdir(exist_ok=True)
                parent.chmod(0o711)  # whatever the umask
        for private in (work.parent / CHECKPOINTS, (work / REPORT).parent):
            with suppress(FileExistsError):
                private.mkdir(mode=0o700)
                give(private, account)
        ranks = ranks_of(lease)
        record = self._description(work, lease, ranks)
        if account:
            self._write(work / shim.LEASE, record, account)
        self._write(directory / shim.LEASE, {**record, "plan": self._plan(work, lease, ranks)})

    def _plan(self, work: Path, lease: Lease, ranks: Sequence[Rank]) -> dict[str, Any]:
        """What the shim or a standby executes."""
        account = self._accounts.of(lease.tenant)
        return {
            "shell": self._shell,
            "setup": lease.command.setup,
            "run": lease.command.run,
            "python": _python(lease),
            "workdir": self._workdir(lease),
            "env": self._environment(work, lease),
            "ranks": self._rank_environments(lease, ranks),
            "grace_s": lease.command.grace_s,
            "uid": account.uid if account else None,
            "gid": account.gid if account else None,
            "groups": account.groups if account else None,
            "cgroups": self._hierarchies.groups(
                lease_name(self.directory(lease.key), lease.job, lease.number),
                self._limits_of(lease.command.memory_gib),
            ),
        }

    def _standby_groups(self, beginning: Beginning) -> dict[str, dict[str, str]]:
        return self._hierarchies.groups(f"standby-{uuid.uuid4()}", self._limits_of(beginning.memory_gib))

    def _limits_of(self, memory_gib: float | None) -> GroupLimits:
        """The limits of a job that states its memory; LaunchError if that is more than the service allows."""
        wanted, most = GroupLimits.of(memory_gib, None).memory_bytes, self._limits.memory_bytes
        if wanted is not None and most is not None and wanted > most:
            raise LaunchError(
                f"it asks for {memory_gib:g} GiB of memory, and the service allows {most / 2**30:g} GiB; submit it with less"
            )
        return replace(self._limits, memory_bytes=wanted or most)

    def _load_warm(self, directory: Path, lease: Lease) -> bool:
        """Whether a standby has the lease; then another one is kept for the next."""
        beginning = self._beginning(lease)
        if beginning is None or not self.warm.load(beginning, directory):
            return False
        self.warm.keep_for(beginning)
        return True

    def _beginning(self, lease: Lease) -> Beginning | None:
        if not lease.command.warm:
            return None
        plan = self._plan(self._work_directory(lease.key), lease, ranks_of(lease))
        return beginning_of(lease, plan, contexts=self.warm.limits.contexts)

    def _workdir(self, lease: Lease) -> str:
        account = self._accounts.of(lease.tenant)
        return os.path.abspath(lease.command.workdir or (account.home if account else os.environ.get("HOME", "/")))

    def _description(self, work: Path, lease: Lease, ranks: Sequence[Rank]) -> dict[str, Any]:
        """The description of the lease that the job can read."""
        chosen = lease.command.checkpoint_dir
        return {
            "fairlead": KIND,
            **asdict(lease),
            "checkpoint_dir": str(work.parent / CHECKPOINTS)
            if chosen is None
            else os.path.join(self._workdir(lease), chosen, lease.job),
            "emulated": self.emulated,
            "pace": [self._pace_of(gpu) for gpu in lease.gpus] if self._pace is not None else None,
            "ranks": [rank.gpus for rank in ranks],
        }

    def _work_directory(self, key: Key) -> Path:
        """The directory of the lease that the job can access."""
        job, number = key
        return self._work / "leases" / job / str(number)

    def _write(self, path: Path, record: dict[str, Any], account: Account | None = None) -> None:
        """Write a file atomically, readable by its owner alone."""
        draft = path.with_suffix(".draft")
        with open(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="utf-8") as file:
            json.dump(record, file)
            file.flush()
            os.fsync(file.fileno())
        give(draft, account)
        draft.rename(path)

    def _pace_of(self, gpu: Gpu) -> float:
        if self._pace is None:
            return 1.0
        return self._pace.get(gpu.type, 1.0) * self._node_pace.get(gpu.node, 1.0)

    def _environment(self, work: Path, lease: Lease) -> dict[str, str]:
        """The environment of the job: selected variables of the daemon, then the job's own, then ours."""
        env = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        account = self._accounts.of(lease.tenant)
        if account:
            env |= {"HOME": account.home, "USER": account.name, "LOGNAME": account.name}
            env.pop("TMPDIR", None)  # perhaps one that only the daemon's user can enter
        env |= {"PYTHONUNBUFFERED": "1", **lease.command.env}
        env |= {
            LEASE_VARIABLE: str(work / shim.LEASE),
            REPORT_VARIABLE: str(work / REPORT),
            REPORT_EVERY_VARIABLE: f"{REPORT_EVERY_S:g}",
            STOP_VARIABLE: str(work / shim.ASKED),
            "CUDA_VISIBLE_DEVICES": self._visible(lease, range(len(lease.gpus))),
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # the order in which NVML counts
            "FAIRLEAD_JOB": lease.job,
            "FAIRLEAD_GPUS": str(len(lease.gpus)),
        }
        return env | ({"FAIRLEAD_EMULATED": "1"} if self.emulated else {})

    def _rank_environments(self, lease: Lease, ranks: Sequence[Rank]) -> list[dict[str, str]]:
        """The additional variables of each process; none for a job of one process."""
        if not ranks:
            return [{}]
        port = _free_port()
        return [
            rank_environment(rank, _HERE, port) | {"CUDA_VISIBLE_DEVICES": self._visible(lease, rank.visible)}
            for rank in ranks
        ]

    def _visible(self, lease: Lease, positions: Sequence[int]) -> str:
        slots = [(lease.gpus[position].node, lease.gpus[position].slot) for position in positions]
        return ",".join(str(self._devices[node, slot]) for node, slot in slots if slot is not None)

    def _give_up(self, key: Key, reason: str) -> None:
        if self.revoke(key):
            raise LaunchError(reason)

    def _look(self, key: Key) -> Sight:
        directory = self.directory(key)
        asked = os.path.exists(directory / shim.ASKED)
        ended = self._ended(key, asked)
        if ended is not None:
            return ended
        if not has_begun(directory):
            return Sight(Condition.NEVER_CLAIMED, asked=asked)
        claim = claim_of(directory)
        if "revoked" in claim:
            return Sight(Condition.VANISHED, asked=asked)
        if is_supervised(directory, claim):
            return Sight(Condition.RUNNING, asked=asked, report=self._report(key), warm="warm" in claim)
        # It may have ended in the meantime; otherwise it was killed, and its other processes must end too.
        return self._ended(key, asked) or self._without_supervisor(key, asked)

    def _without_supervisor(self, key: Key, asked: bool) -> Sight:
        """End what is left of the lease. Once nothing was left it stays over, whatever processes there are later."""
        directory = self.directory(key)
        if not os.path.lexists(directory / shim.GONE):
            if kill_all(directory):
                return Sight(Condition.RUNNING, asked=asked, report=self._report(key))
            forget_groups(directory)
            with suppress(OSError):
                (directory / shim.GONE).touch(0o600)
        return Sight(Condition.VANISHED, asked=asked, report=self._report(key), reason=how_lost(directory))

    def _report(self, key: Key) -> Report | None:
        return read_report(self._work_directory(key) / REPORT)

    def _ended(self, key: Key, asked: bool) -> Sight | None:
        code = read_exit_code(self.directory(key))
        return None if code is None else Sight(Condition.ENDED, code=code, asked=asked, report=self._report(key))

    def _down(self) -> frozenset[str]:
        with suppress(FileNotFoundError, NotADirectoryError):
            return frozenset(os.listdir(self.root / "down"))
        return frozenset()


def _python(lease: Lease) -> dict[str, Any] | None:
    """The parts of the command of a lease that wants a warm start, if a running interpreter can execute it."""
    if not lease.command.warm:
        return None
    with suppress(InputError):
        return asdict(python_command(lease.command.run))
    return None


def _free_port() -> int:
    """A port that is free now. If another process takes it before rank 0 does, the job fails."""
    with socket.socket() as probe:
        probe.bind((_HERE, 0))
        return int(probe.getsockname()[1])
