"""Who owns a lease on this machine, and which of its processes live."""

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
    """What the claim says; nothing where there is none or it cannot be read."""
    claim = read_json(directory / shim.CLAIM)
    return claim if isinstance(claim, dict) else {}


def signal_group(directory: Path, number: signal.Signals) -> bool:
    """To the job's process group, if it is still the one that was started."""
    group = group_of(claim_of(directory))
    if group is None:
        return False
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def group_of(claim: dict[str, Any]) -> int | None:
    """The process group that the claim names, unless its number belongs to a stranger by now: after a boot, or where its
    leader has another birth. A number is not given again while its group lives.
    """
    if "group" not in claim or claim.get("boot") != shim.boot():
        return None
    group: int = claim["group"]
    leader = shim.born(group)
    return group if leader is None or leader == claim.get("born") else None


def group_lives(group: int) -> bool:
    """Whether a process of the group still runs; one that is dead and not yet buried does not."""
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
