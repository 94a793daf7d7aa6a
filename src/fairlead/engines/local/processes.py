"""The owner of a lease on this machine, and its living processes."""

from __future__ import annotations

import fcntl
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

from fairlead.engines.local import shim
from fairlead.engines.local.files import read_json


def claim_of(directory: Path) -> dict[str, Any]:
    """The content of the claim; empty if there is none or it cannot be read."""
    claim = read_json(directory / shim.CLAIM)
    return claim if isinstance(claim, dict) else {}


def signal_group(directory: Path, number: signal.Signals) -> bool:
    """Send a signal to the job's process group; False if it no longer exists."""
    group = group_of(claim_of(directory))
    if group is None:
        return False
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def group_of(claim: dict[str, Any]) -> int | None:
    """The process group of the claim, or None if its number belongs to another process by now.

    That is so after a reboot, or if its leader has another start time. A number is not reused while its group lives.
    """
    if "group" not in claim or claim.get("boot") != shim.boot():
        return None
    group: int = claim["group"]
    leader = shim.born(group)
    return group if leader is None or leader == claim.get("born") else None


def group_lives(group: int) -> bool:
    """Whether a process of the group still runs; zombies do not count."""
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with suppress(OSError, ValueError, IndexError), open(f"/proc/{entry}/stat", "rb") as file:
                state, _, of = file.read().rpartition(b")")[2].split()[:3]
                if int(of) == group and state not in (b"Z", b"X"):
                    return True
    return False


def is_locked(path: Path) -> bool:
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
