"""The owner of a lease on this machine, and its living processes."""

from __future__ import annotations

import fcntl
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

from fairlead.engines.leases import Key
from fairlead.engines.local import cgroups, members, proc, shim
from fairlead.engines.local.files import jobs_in, lease_directory, lease_numbers, read_json


def claim_of(directory: Path) -> dict[str, Any]:
    """The content of the claim. If it cannot be read, what shows who supervises the lease; empty if no one does."""
    claim = read_json(directory / shim.CLAIM)
    if isinstance(claim, dict) and ("revoked" in claim or _is_sound(claim)):
        return claim
    supervisor = _holder(directory / shim.ALIVE)
    if supervisor is None:
        return {}
    return {"boot": proc.boot(), "supervisor": supervisor, "supervisor_born": proc.born(supervisor)}


def is_supervised(directory: Path, claim: dict[str, Any]) -> bool:
    """Whether the supervisor of the lease lives: it holds the lock, or the file that it has locked is not there any more."""
    if is_locked(directory / shim.ALIVE):
        return True
    supervisor = proc.read(claim["supervisor"]) if claim.get("boot") == proc.boot() and "supervisor" in claim else None
    return supervisor is not None and supervisor.born == claim.get("supervisor_born")


def _is_sound(claim: dict[str, Any]) -> bool:
    """Whether the numbers can be those of a job: to a signal, 0, 1 and negative numbers mean other processes."""
    numbers, groups = (claim.get("group"), claim.get("supervisor", 2)), claim.get("cgroups", [])
    return (
        all(type(number) is int and number > 1 for number in numbers)
        and isinstance(groups, list)
        and all(isinstance(path, str) for path in groups)
    )


def _holder(path: Path) -> int | None:
    """The process that holds the lock on this file, by the kernel's list of locks.

    The list has numbers of files, which other file systems use as well, so the process must have this file open.
    """
    try:
        locked = os.stat(path, follow_symlinks=False)
        with open("/proc/locks", encoding="ascii") as file:
            rows = [line.split() for line in file if "FLOCK" in line]
        pids = [int(row[4]) for row in rows if row[5].rpartition(":")[2] == str(locked.st_ino)]
        return next((pid for pid in pids if _has_open(pid, locked)), None)
    except (OSError, ValueError, IndexError):
        return None


def _has_open(pid: int, wanted: os.stat_result) -> bool:
    folder = f"/proc/{pid}/fd"
    with suppress(OSError):  # it has ended, or is of another user
        for descriptor in os.listdir(folder):
            with suppress(OSError):
                if os.path.samestat(os.stat(f"{folder}/{descriptor}"), wanted):
                    return True
    return False


def signal_group(directory: Path, number: signal.Signals) -> bool:
    """Send a signal to the job's process group; False if it no longer exists."""
    group = members.group_of(str(directory), claim_of(directory))
    if group is None:
        return False
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def kill_all(directory: Path) -> bool:
    """Kill all processes of the lease except its supervisor; whether one may still live."""
    return members.kill_all(str(directory), claim_of(directory))


def forget_groups(directory: Path) -> None:
    """Remove the control groups of a lease of which nothing lives."""
    cgroups.remove(claim_of(directory).get("cgroups", ()))


def running_leases(root: Path) -> list[Key]:
    """The leases below `root` whose processes run."""
    keys = [(job, number) for job in jobs_in(root) for number in lease_numbers(root, job)]
    return sorted(key for key in keys if is_locked(lease_directory(root, key) / shim.ALIVE))


def is_locked(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
