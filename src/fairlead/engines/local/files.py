"""The files of a lease on this machine, read with care, because the job writes some of them.

ROOT/leases/JOB/NUMBER/   lease.json  claim  alive  asked  roll  log  report/progress.json  exit.json  gone
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from fairlead.engines.leases import Key, Lease, Report, lease_from_json
from fairlead.engines.local import shim
from fairlead.engines.requests import Command
from fairlead.engines.runner import LaunchError

REPORT, CHECKPOINTS = "report/progress.json", "checkpoints"
_JOB_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}\Z")
_LARGEST_FILE = 1 << 20  # bytes


def lease_directory(root: Path, key: Key) -> Path:
    job, number = key
    if not _JOB_NAME.match(job):
        raise LaunchError(f'job id "{job}" cannot name a directory; wanted letters, digits, dots and dashes')
    return root / "leases" / job / str(number)


def new_lease_directory(root: Path, key: Key) -> Path:
    """The directory of a lease, which other users cannot enter; FileExistsError if it was launched before."""
    directory = lease_directory(root, key)
    for parent in (root, root / "leases", directory.parent):
        parent.mkdir(mode=0o700, exist_ok=True)
    directory.mkdir(mode=0o700)
    return directory


def work_root(root: Path) -> Path:
    """Where jobs that run as other users read and write, next to `root`, which stays closed to them."""
    return root.with_name(f"{root.name}.work")


def jobs_in(root: Path) -> list[str]:
    """The jobs that have a directory for leases."""
    with suppress(FileNotFoundError):
        return os.listdir(root / "leases")
    return []


def lease_numbers(root: Path, job: str) -> list[int]:
    """The numbers of the job's leases, in ascending order."""
    with suppress(FileNotFoundError, NotADirectoryError):
        return sorted(int(name) for name in os.listdir(root / "leases" / job) if name.isdecimal())
    return []


class LocalReader:
    """Log and exit code of leases below `root`, for processes that run none."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def read_log(self, key: Key, offset: int, most: int) -> bytes:
        try:
            descriptor = open_plain(lease_directory(self._root, key) / shim.LOG)
        except (OSError, LaunchError):
            return b""  # it has not begun yet, or wrote nothing
        try:
            return os.pread(descriptor, most, offset)
        finally:
            os.close(descriptor)

    def jobs(self) -> Collection[str]:
        return jobs_in(self._root)

    def exit_code(self, key: Key) -> int | None:
        return read_exit_code(lease_directory(self._root, key))

    def checkpoint_bytes(self) -> Mapping[str, int]:
        sizes: Counter[str] = Counter()
        for checkpoints in (
            path for root in (self._root, work_root(self._root)) for path in root.glob(f"leases/*/{CHECKPOINTS}")
        ):
            sizes[checkpoints.parent.name] += _bytes_below(checkpoints)
        return sizes


def _bytes_below(folder: Path) -> int:
    """Bytes of all files in a folder that may change meanwhile. Links are not followed."""
    total, folders = 0, [folder]
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(Path(entry.path))
                    else:
                        total += entry.stat(follow_symlinks=False).st_size
        except OSError:
            continue  # removed just now
    return total


def open_plain(path: Path) -> int:
    """Open a regular file for reading. Never waits on a pipe, never follows a link to a private file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileNotFoundError(path)
    return descriptor


def read_json(path: Path) -> Any:
    """The content of a JSON file; None if it is missing, too large or not JSON."""
    try:
        descriptor = open_plain(path)
    except OSError:
        return None
    try:
        if os.fstat(descriptor).st_size > _LARGEST_FILE:
            return None
        return json.loads(os.read(descriptor, _LARGEST_FILE))
    except (OSError, ValueError, RecursionError):
        return None
    finally:
        os.close(descriptor)


def read_lease(directory: Path, key: Key) -> Lease | None:
    """The lease as it was launched; None if it never was. One whose description cannot be read is damaged."""
    path = directory / shim.LEASE
    if not (os.path.lexists(path) or has_begun(directory)):
        return None
    try:
        lease = lease_from_json(read_json(path))
        if lease.key == key and _is_sound(lease):
            return lease
    except (LookupError, TypeError, ValueError, AttributeError):
        pass
    job, number = key
    return Lease(job, number, (), Command(""), damage=f"{path} no longer describes a lease")


def _is_sound(lease: Lease) -> bool:
    command = lease.command
    texts = [command.run, command.foreign, lease.tenant, *(text for gpu in lease.gpus for text in (gpu.node, gpu.type))]
    numbers = [command.max_retries, lease.failures, *(gpu.tasks for gpu in lease.gpus)]
    numbers += [gpu.slot for gpu in lease.gpus if gpu.slot is not None]
    return (
        all(isinstance(text, str) for text in texts)
        and all(type(number) is int and number >= 0 for number in numbers)
        and _number(command.grace_s) is not None
        and bool(lease.gpus)
        and (lease.log_bytes is None or type(lease.log_bytes) is int)
    )


def has_begun(directory: Path) -> bool:
    """Whether a process has claimed the lease; the log comes after the claim, which may have been lost since."""
    return os.path.lexists(directory / shim.CLAIM) or os.path.lexists(directory / shim.LOG)


def read_exit_code(directory: Path) -> int | None:
    """The exit code of a lease; None if it has not ended, or the code cannot be read."""
    record = read_json(directory / shim.EXIT)
    code = record.get("code") if isinstance(record, dict) else None
    return code if type(code) is int else None


def how_lost(directory: Path) -> str:
    """Why the end of a lease is unknown."""
    path = directory / shim.EXIT
    if os.path.lexists(path):
        return f"{path} holds no exit code"
    return f"its processes are gone, and {path} was not written"


def read_report(path: Path) -> Report | None:
    """The worker's report; None if the file, which the job writes, makes no sense."""
    record = read_json(path)
    if not isinstance(record, dict):
        return None
    values = {name: _number(record.get(name)) for name in Report.__slots__ if name != "parts"}
    at_s = values.pop("at_s")
    return None if at_s is None else Report(at_s, **values, parts=_parts(record.get("parts")))


def _parts(parts: Any) -> dict[str, float] | None:
    """The parts that are numbers; a profile checks what they mean."""
    if not isinstance(parts, dict):
        return None
    return {name: value for name, value in parts.items() if isinstance(value, bool) or _number(value) is not None}


def _number(value: Any) -> float | None:
    good = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e18
    return float(value) if good else None
