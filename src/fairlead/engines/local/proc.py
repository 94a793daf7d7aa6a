"""Processes of this machine, as /proc shows them. Imports only the standard library, because the shim uses it too."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple


class Process(NamedTuple):
    """A process that runs. Its number may be used again once it is gone, but not with the same start time."""

    pid: int
    born: int  # ticks since boot
    parent: int
    group: int
    session: int


def read(pid: int) -> Process | None:
    """The process with this number; None if there is none, or it is dead and only waits for its parent to notice."""
    fields = _fields(pid)
    if fields is None or (fields[0] in (b"Z", b"X") and int(fields[17]) < 2):  # threads may outlive the first one
        return None
    return Process(pid, int(fields[19]), int(fields[1]), int(fields[2]), int(fields[3]))


def born(pid: int) -> int | None:
    """The start time of a process in ticks since boot, even if it is dead and its parent has not noticed; else None."""
    fields = _fields(pid)
    return None if fields is None else int(fields[19])


def _fields(pid: int) -> list[bytes] | None:
    """What the kernel shows about a process, from its state on."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return None


def all_processes() -> dict[int, Process]:
    numbers = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
    return {pid: process for pid in numbers if (process := read(pid)) is not None}


def descendants(roots: Iterable[int], processes: Mapping[int, Process]) -> set[int]:
    """The roots with all their children, and theirs."""
    children: dict[int, list[int]] = {}
    for process in processes.values():
        children.setdefault(process.parent, []).append(process.pid)
    family: set[int] = set()
    new = [pid for pid in roots if pid in processes]
    while new:
        family.update(new)
        new = [child for pid in new for child in children.get(pid, ()) if child not in family]
    return family


def tree(root: int) -> set[int]:
    """All descendants of a process, without it. Reads only the files of those processes, where the kernel offers that."""
    if not os.path.exists(f"/proc/{root}/task/{root}/children"):
        return descendants([root], all_processes()) - {root}
    family: set[int] = set()
    new = [root]
    while new:
        new = [child for pid in new for child in _children(pid) if child not in family]
        family.update(new)
    return family


def _children(pid: int) -> list[int]:
    children: list[int] = []
    with suppress(OSError):  # it has ended
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError), open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as file:
                children += map(int, file.read().split())
    return children


def has_variable(pid: int, assignment: str) -> bool:
    """Whether the process was started with `NAME=VALUE` in its environment; False if we may not see that."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return assignment.encode() in file.read().split(b"\0")
    except OSError:
        return False


def kill(process: Process) -> None:
    """Kill this process, and no other that has its number by now."""
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    except OSError:  # a kernel before 5.3: another process may get the number between the next two lines
        handle = None
    current = read(process.pid)  # read after the handle was opened, so they are the same process
    with suppress(OSError):
        if current is not None and current.born == process.born:
            os.kill(process.pid, signal.SIGKILL) if handle is None else signal.pidfd_send_signal(handle, signal.SIGKILL)
    if handle is not None:
        os.close(handle)


def boot() -> str | None:
    """The name of the time since the machine was switched on."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return None
