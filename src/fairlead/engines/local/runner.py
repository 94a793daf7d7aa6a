"""The local runner: real processes on this machine, one directory for each lease.

    ROOT/leases/JOB/NUMBER/   lease.json  claim  alive  asked  log  report/progress.json  exit.json
    ROOT/leases/JOB/checkpoints/          unless the job names another directory
    ROOT/down/NODE                        while this file exists, an emulated node counts as failed

Jobs run as the daemon's user, so that all tenants are one trust domain; where the daemon is root and a user is named,
they run as that user, and what they read and write is in ROOT.work, next to ROOT, which stays closed to them. Of the
daemon's environment they see only the variables in `PASSED_ON`.
"""

from __future__ import annotations

import json
import os
import pwd
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fairlead.engines.leases import Condition, Gpu, Key, Lease, Look, Report, Sight, lease_from_json
from fairlead.engines.local import shim
from fairlead.engines.local.files import CHECKPOINTS, REPORT, lease_directory, read_json, read_report
from fairlead.engines.local.processes import claim_of, group_lives, group_of, is_locked, signal_group
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
    single emulated nodes relative to their type.
    """

    capabilities = Capabilities()

    def __init__(
        self,
        root: str | Path,
        devices: Mapping[tuple[str, int], int],
        *,
        pace: Mapping[str, float] | None = None,
        node_pace: Mapping[str, float] | None = None,
        user: str | None = None,
        warm: WarmLimits | None = None,
    ) -> None:
        self.root = Path(root).absolute()
        self._devices = devices
        self._pace = pace
        self._node_pace = node_pace or {}
        self._user = _user(user)
        self.warm = WarmPool(warm or WarmLimits())
        self._work = self.root if self._user is None else self.root.with_name(f"{self.root.name}.work")
        self._shell = ["/bin/bash", "-o", "pipefail"] if os.access("/bin/bash", os.X_OK) else ["/bin/sh"]
        if self._user is not None:
            _check_reachable(self._work, self._user)

    @property
    def emulated(self) -> bool:
        return self._pace is not None

    def directory(self, key: Key) -> Path:
        return lease_directory(self.root, key)

    def launch(self, lease: Lease) -> None:
        directory = self.directory(lease.key)
        try:
            self._lay_out(directory, lease)
            if self._load_warm(directory, lease):
                return
            # Without our environment, our directory and our terminal; the shim forks itself away at once.
            done = subprocess.run(
                [sys.executable, "-I", "-S", shim.__file__, str(directory)],
                env={},
                cwd="/",
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_LAUNCH_S,
                check=False,
            )
        except FileExistsError:
            raise LaunchError(f"lease {lease.number} of job {lease.job} was launched before") from None
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
        for directory in {self.directory(lease.key), self._work_directory(lease.key)}:
            with suppress(OSError):
                (directory / shim.ASKED).touch(0o600)  # only its existence matters
        return signal_group(self.directory(lease.key), signal.SIGTERM)

    def kill(self, lease: Lease) -> None:
        signal_group(self.directory(lease.key), signal.SIGKILL)

    def look(self, leases: Sequence[Key]) -> Look:
        down = self._down()
        return Look({key: self._look(key) for key in leases}, down)

    def recall(self, key: Key) -> Lease | None:
        record = read_json(self.directory(key) / shim.LEASE)
        return None if record is None else lease_from_json(record)

    def revoke(self, key: Key) -> bool:
        directory = self.directory(key)
        try:
            if shim.claim(str(directory / shim.CLAIM), {"revoked": True}):
                return True
        except FileNotFoundError:
            return True  # without a directory nothing can run it
        claim = claim_of(directory)
        return "revoked" in claim or ("group" not in claim and not is_locked(directory / shim.ALIVE))

    # ---- one lease -------------------------------------------------------------------------------------------------

    def _lay_out(self, directory: Path, lease: Lease) -> None:
        """Create the directory and files of a lease; FileExistsError if it was launched before."""
        for parent in (self.root, self.root / "leases", directory.parent):
            parent.mkdir(mode=0o700, exist_ok=True)
        directory.mkdir(mode=0o700)
        work = self._work_directory(lease.key)
        if self._user:
            for parent in (self._work, self._work / "leases", work.parent, work):
                parent.mkdir(exist_ok=True)
                parent.chmod(0o711)  # whatever the umask
        for private in (work.parent / CHECKPOINTS, (work / REPORT).parent):
            with suppress(FileExistsError):
                private.mkdir(mode=0o700)
                self._give(private)
        ranks = ranks_of(lease)
        record = self._description(work, lease, ranks)
        if self._user:
            self._write(work / shim.LEASE, record, self._user.pw_gid)
        self._write(directory / shim.LEASE, {**record, "plan": self._plan(work, lease, ranks)})

    def _plan(self, work: Path, lease: Lease, ranks: Sequence[Rank]) -> dict[str, Any]:
        """What the shim or a standby executes."""
        return {
            "shell": self._shell,
            "setup": lease.command.setup,
            "run": lease.command.run,
            "python": _python(lease),
            "workdir": self._workdir(lease),
            "env": self._environment(work, lease),
            "ranks": self._rank_environments(lease, ranks),
            "grace_s": lease.command.grace_s,
            "uid": self._user.pw_uid if self._user else None,
            "gid": self._user.pw_gid if self._user else None,
        }

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
        return os.path.abspath(lease.command.workdir or self._home())

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

    def _write(self, path: Path, record: dict[str, Any], group: int | None = None) -> None:
        """Write a file atomically, readable by its owner and perhaps one group."""
        draft = path.with_suffix(".draft")
        with open(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="utf-8") as file:
            json.dump(record, file)
            file.flush()
            os.fsync(file.fileno())
        if group is not None:
            os.chown(draft, 0, group)
            draft.chmod(0o640)
        draft.rename(path)

    def _give(self, path: Path) -> None:
        if self._user:
            os.chown(path, self._user.pw_uid, self._user.pw_gid)

    def _home(self) -> str:
        return self._user.pw_dir if self._user else os.environ.get("HOME", "/")

    def _pace_of(self, gpu: Gpu) -> float:
        if self._pace is None:
            return 1.0
        return self._pace.get(gpu.type, 1.0) * self._node_pace.get(gpu.node, 1.0)

    def _environment(self, work: Path, lease: Lease) -> dict[str, str]:
        """The environment of the job: selected variables of the daemon, then the job's own, then ours."""
        env = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        if self._user:
            env |= {"HOME": self._user.pw_dir, "USER": self._user.pw_name, "LOGNAME": self._user.pw_name}
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
        asked = (directory / shim.ASKED).exists()
        ended = self._ended(key, asked)
        if ended is not None:
            return ended
        if not (directory / shim.CLAIM).exists():
            return Sight(Condition.NEVER_CLAIMED, asked=asked)
        claim = claim_of(directory)
        if "revoked" in claim:
            return Sight(Condition.VANISHED, asked=asked)
        if is_locked(directory / shim.ALIVE):
            return Sight(Condition.RUNNING, asked=asked, report=self._report(key), warm="warm" in claim)
        # It may have ended in the meantime; otherwise it was killed, and its other processes must end too.
        ended = self._ended(key, asked)
        if ended is None:
            signal_group(directory, signal.SIGKILL)
            group = group_of(claim)
            lives = group is not None and group_lives(group)
            return Sight(Condition.RUNNING if lives else Condition.VANISHED, asked=asked, report=self._report(key))
        return ended

    def _report(self, key: Key) -> Report | None:
        return read_report(self._work_directory(key) / REPORT)

    def _ended(self, key: Key, asked: bool) -> Sight | None:
        record = read_json(self.directory(key) / shim.EXIT)
        if record is None:
            return None
        return Sight(Condition.ENDED, code=int(record["code"]), asked=asked, report=self._report(key))

    def _down(self) -> frozenset[str]:
        with suppress(FileNotFoundError):
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


def _user(name: str | None) -> pwd.struct_passwd | None:
    if name is None:
        return None
    try:
        user = pwd.getpwnam(name)
    except KeyError:
        raise InputError(f'there is no user "{name}" on this machine; name one that exists') from None
    if os.geteuid():
        raise InputError(
            f'jobs can run as "{name}" only if the daemon runs as root; start it as root or leave the user out'
        )
    return user


def _check_reachable(root: Path, user: pwd.struct_passwd) -> None:
    """Jobs of another user read their lease below `root`, so they must be able to enter its parent directories."""
    for parent in root.parents:
        if parent.exists() and not parent.stat().st_mode & stat.S_IXOTH and parent.stat().st_uid != user.pw_uid:
            raise InputError(
                f"user {user.pw_name} cannot enter {parent}, below which leases are kept; choose a directory that it can enter"
            )
