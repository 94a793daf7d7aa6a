"""The files of a lease on this machine, read with care, because the job writes some of them.

ROOT/leases/JOB/NUMBER/   lease.json  claim  alive  asked  log  report/progress.json  exit.json
"""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path
from typing import Any

from fairlead.engines.leases import Key, Report
from fairlead.engines.local import shim
from fairlead.engines.runner import LaunchError

REPORT, CHECKPOINTS = "report/progress.json", "checkpoints"
_JOB_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}\Z")
_LARGEST_FILE = 1 << 20  # bytes


def lease_directory(root: Path, key: Key) -> Path:
    job, number = key
    if not _JOB_NAME.match(job):
        raise LaunchError(f'job id "{job}" cannot name a directory; wanted letters, digits, dots and dashes')
    return root / "leases" / job / str(number)


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

    def exit_code(self, key: Key) -> int | None:
        record = read_json(lease_directory(self._root, key) / shim.EXIT)
        code = record.get("code") if isinstance(record, dict) else None
        return code if isinstance(code, int) else None


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
