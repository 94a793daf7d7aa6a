"""The local runner: real processes on this machine, one directory for each lease.

    ROOT/leases/JOB/NUMBER/   lease.json  claim  alive  asked  log  report/progress.json  exit.json
    ROOT/leases/JOB/checkpoints/          where the job names no other place
    ROOT/down/NODE                        while this file exists, an emulated node counts as failed

Jobs run as the daemon's user, so that all tenants are one trust domain; where the daemon is root and a user is given,
they run as that user, and what they read and write lies beside ROOT in ROOT.work: ROOT itself stays closed to them. Of
the daemon's environment they see just what `PASSED_ON` names.
"""

from __future__ import annotations

import fcntl
import json
import os
import pwd
import re
import signal
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
from fairlead.engines.runner import Capabilities, LaunchError
from fairlead.model.errors import InputError
from fairlead.model.handshake import LEASE_VARIABLE, REPORT_VARIABLE

PASSED_ON = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR")
KIND = "lease/1"
ASKED, REPORT, CHECKPOINTS = "asked", "report/progress.json", "checkpoints"
_JOB_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}\Z")
_LARGEST_FILE = 1 << 20  # bytes; what workers write is read with care
_LAUNCH_S = 60.0  # ends a hang; the machine may be busy


class LocalRunner:
    """`devices` maps (node, slot) to the number under which CUDA knows the GPU. `pace` makes this an emulation: how fast
    each type is, the fastest 1; workers that use `fairlead.lease` slow down to it.
    """

    capabilities = Capabilities()

    def __init__(
        self,
        root: str | Path,
        devices: Mapping[tuple[str, int], int],
        *,
        pace: Mapping[str, float] | None = None,
        user: str | None = None,
    ) -> None:
        self.root = Path(root).absolute()
        self._devices = devices
        self._pace = pace
        self._user = _user(user)
        self._work = self.root if self._user is None else self.root.with_name(f"{self.root.name}.work")
        self._shell = ["/bin/bash", "-o", "pipefail"] if os.access("/bin/bash", os.X_OK) else ["/bin/sh"]
        if self._user is not None:
            _check_reachable(self._work, self._user)

    @property
    def emulated(self) -> bool:
        return self._pace is not None

    def directory(self, key: Key) -> Path:
        job, number = key
        if not _JOB_NAME.match(job):
            raise LaunchError(f'job id "{job}" cannot name a directory; wanted letters, digits, dots and dashes')
        return self.root / "leases" / job / str(number)

    def launch(self, lease: Lease) -> None:
        directory = self.directory(lease.key)
        try:
            self._lay_out(directory, lease)
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
            return  # it was claimed all the same, and runs
        if done.returncode:
            self._give_up(lease.key, done.stderr.decode(errors="replace").strip()[-500:] or "the runner did not start")

    def ask_to_stop(self, lease: Lease) -> bool:
        with suppress(OSError):
            (self.directory(lease.key) / ASKED).touch(0o600)
        return self._signal(lease.key, signal.SIGTERM)

    def kill(self, lease: Lease) -> None:
        self._signal(lease.key, signal.SIGKILL)

    def look(self, leases: Sequence[Key]) -> Look:
        down = self._down()
        return Look({key: self._look(key) for key in leases}, down)

    def recall(self, key: Key) -> Lease | None:
        found = _read_json(self.directory(key) / shim.LEASE)
        return None if found is None else lease_from_json(found)

    def revoke(self, key: Key) -> bool:
        directory = self.directory(key)
        try:
            if shim.claim(str(directory / shim.CLAIM), {"revoked": True}):
                return True
        except FileNotFoundError:
            return True  # there is no directory, so that nobody can run it
        claim = _claim(directory)
        return "revoked" in claim or ("group" not in claim and not _locked(directory / shim.ALIVE))

    # ---- one lease -------------------------------------------------------------------------------------------------

    def _lay_out(self, directory: Path, lease: Lease) -> None:
        """The directory is the lease's own from here on; who comes second finds it taken."""
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
        workdir = os.path.abspath(lease.command.workdir or self._home())
        chosen = lease.command.checkpoint_dir
        where = str(work.parent / CHECKPOINTS) if chosen is None else os.path.join(workdir, chosen, lease.job)
        found = {
            "fairlead": KIND,
            **asdict(lease),
            "checkpoint_dir": where,
            "emulated": self.emulated,
            "pace": [self._pace_of(gpu) for gpu in lease.gpus] if self._pace is not None else None,
        }
        if self._user:
            self._write(work / shim.LEASE, found, self._user.pw_gid)
        plan = {
            "shell": self._shell,
            "setup": lease.command.setup,
            "run": lease.command.run,
            "workdir": workdir,
            "env": self._environment(work, lease),
            "uid": self._user.pw_uid if self._user else None,
            "gid": self._user.pw_gid if self._user else None,
        }
        self._write(directory / shim.LEASE, {**found, "plan": plan})

    def _work_directory(self, key: Key) -> Path:
        """Where the job's own side of the lease lies."""
        job, number = key
        return self._work / "leases" / job / str(number)

    def _write(self, path: Path, found: dict[str, Any], group: int | None = None) -> None:
        """The whole file or none, for its owner and perhaps one group to read."""
        draft = path.with_suffix(".draft")
        with open(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="utf-8") as file:
            json.dump(found, file)
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

    def _device(self, gpu: Gpu) -> int:
        assert gpu.slot is not None, "this runner does not pick devices"
        return self._devices[gpu.node, gpu.slot]

    def _pace_of(self, gpu: Gpu) -> float:
        return 1.0 if self._pace is None else self._pace.get(gpu.type, 1.0)

    def _environment(self, work: Path, lease: Lease) -> dict[str, str]:
        """Chosen names of the daemon's, then the job's own, then what only we may say."""
        env = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        if self._user:
            env |= {"HOME": self._user.pw_dir, "USER": self._user.pw_name, "LOGNAME": self._user.pw_name}
        env |= {"PYTHONUNBUFFERED": "1", **lease.command.env}
        devices = [self._device(gpu) for gpu in lease.gpus]
        env |= {
            LEASE_VARIABLE: str(work / shim.LEASE),
            REPORT_VARIABLE: str(work / REPORT),
            "CUDA_VISIBLE_DEVICES": ",".join(map(str, devices)),
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # the order in which NVML counts
            "FAIRLEAD_JOB": lease.job,
            "FAIRLEAD_GPUS": str(len(devices)),
        }
        return env | ({"FAIRLEAD_EMULATED": "1"} if self.emulated else {})

    def _give_up(self, key: Key, reason: str) -> None:
        if self.revoke(key):
            raise LaunchError(reason)

    def _signal(self, key: Key, number: signal.Signals) -> bool:
        """To the job's process group, if it is still the one that was started."""
        group = _group(_claim(self.directory(key)))
        if group is None:
            return False
        try:
            os.killpg(group, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    def _look(self, key: Key) -> Sight:
        directory = self.directory(key)
        asked = (directory / ASKED).exists()
        ended = self._ended(key, asked)
        if ended is not None:
            return ended
        if not (directory / shim.CLAIM).exists():
            return Sight(Condition.NEVER_CLAIMED, asked=asked)
        claim = _claim(directory)
        if "revoked" in claim:
            return Sight(Condition.VANISHED, asked=asked)
        if _locked(directory / shim.ALIVE):
            return Sight(Condition.RUNNING, asked=asked, report=self._report(key))
        # It may have ended since we looked; otherwise it was killed, and what it left behind must not live on.
        ended = self._ended(key, asked)
        if ended is None:
            self._signal(key, signal.SIGKILL)
            group = _group(claim)
            lives = group is not None and _group_lives(group)
            return Sight(Condition.RUNNING if lives else Condition.VANISHED, asked=asked, report=self._report(key))
        return ended

    def _report(self, key: Key) -> Report | None:
        return _report(self._work_directory(key) / REPORT)

    def _ended(self, key: Key, asked: bool) -> Sight | None:
        found = _read_json(self.directory(key) / shim.EXIT)
        if found is None:
            return None
        return Sight(Condition.ENDED, code=int(found["code"]), asked=asked, report=self._report(key))

    def _down(self) -> frozenset[str]:
        with suppress(FileNotFoundError):
            return frozenset(os.listdir(self.root / "down"))
        return frozenset()


def _report(path: Path) -> Report | None:
    """What the worker wrote, if it makes sense: the file is the job's own."""
    found = _read_json(path)
    if not isinstance(found, dict):
        return None
    values = {name: _number(found.get(name)) for name in Report.__slots__ if name != "parts"}
    at_s = values.pop("at_s")
    return None if at_s is None else Report(at_s, **values, parts=_parts(found.get("parts")))


def _parts(told: Any) -> dict[str, float] | None:
    """Those that are numbers; what they mean is for a profile to judge."""
    if not isinstance(told, dict):
        return None
    return {name: value for name, value in told.items() if isinstance(value, bool) or _number(value) is not None}


def _number(value: Any) -> float | None:
    good = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e18
    return float(value) if good else None


def _read_json(path: Path) -> Any:
    """None where there is no such file or nothing sensible in it. Never waits on a pipe or follows a link."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode) or about.st_size > _LARGEST_FILE:
            return None
        return json.loads(os.read(descriptor, _LARGEST_FILE))
    except (OSError, ValueError, RecursionError):
        return None
    finally:
        os.close(descriptor)


def _locked(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _claim(directory: Path) -> dict[str, Any]:
    """What the claim says; nothing where there is none or it cannot be read."""
    found = _read_json(directory / shim.CLAIM)
    return found if isinstance(found, dict) else {}


def _group(claim: dict[str, Any]) -> int | None:
    """The process group that the claim names, unless its number belongs to a stranger by now: after a boot, or where its
    leader has another birth. A number is not given again while its group lives.
    """
    if "group" not in claim or claim.get("boot") != shim.boot():
        return None
    group: int = claim["group"]
    leader = shim.born(group)
    return group if leader is None or leader == claim.get("born") else None


def _group_lives(group: int) -> bool:
    """Whether a process of the group still runs; one that is dead and not yet buried does not."""
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with suppress(OSError, ValueError, IndexError), open(f"/proc/{entry}/stat", "rb") as file:
                state, _, of = file.read().rpartition(b")")[2].split()[:3]
                if int(of) == group and state not in (b"Z", b"X"):
                    return True
    return False


def _user(name: str | None) -> pwd.struct_passwd | None:
    if name is None:
        return None
    try:
        found = pwd.getpwnam(name)
    except KeyError:
        raise InputError(f'there is no user "{name}" on this machine; name one that exists') from None
    if os.geteuid():
        raise InputError(
            f'jobs can run as "{name}" only if the daemon runs as root; start it as root or leave the user out'
        )
    return found


def _check_reachable(root: Path, user: pwd.struct_passwd) -> None:
    """Jobs of another user read their lease below `root`, which is opened to them when it is laid out."""
    for parent in root.parents:
        if parent.exists() and not parent.stat().st_mode & stat.S_IXOTH and parent.stat().st_uid != user.pw_uid:
            raise InputError(
                f"user {user.pw_name} cannot enter {parent}, below which leases are kept; choose a directory that it can enter"
            )
