"""The control groups of one lease: the kernel's record of its processes, however they fork, and their common limits.

A lease has one directory in the hierarchy that tracks its processes, and with version 1 another one for each limit
(`hierarchies.py`). Imports only the standard library, because the shim uses it too.

    .../fairlead/lease-JOB-NUMBER-DIGEST/     cgroup.procs  cgroup.kill  memory.max  pids.max
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from fairlead.engines.local import proc

Groups = Mapping[str, Mapping[str, str]]  # the directories of a lease, each with the limits to write into its files


def make(groups: Groups) -> None:
    """Create the directories and set their limits; OSError if the kernel refuses."""
    for path, limits in groups.items():
        parent = os.path.dirname(path)
        os.makedirs(parent, exist_ok=True)
        for controller in sorted({name.partition(".")[0] for name in limits}):
            for directory in (os.path.dirname(parent), parent):
                _enable(directory, controller)
        os.makedirs(path, exist_ok=True)
        for name, value in limits.items():
            _write(os.path.join(path, name), value)


def join(paths: Iterable[str], pid: int = 0) -> None:
    """Move a process (0: this one) into the groups; its children are born there. OSError if the kernel refuses."""
    for path in paths:
        _write(os.path.join(path, "cgroup.procs"), str(pid))


def members(paths: Iterable[str]) -> set[int]:
    """The numbers of all processes in the groups, and in groups that they made below."""
    return {pid for path in paths for directory in _with_nested(path) for pid in _numbers(directory)}


def is_populated(paths: Iterable[str]) -> bool:
    """Whether a process in the groups lives."""
    return any(proc.read(pid) is not None for pid in members(paths))


def kill(paths: Iterable[str]) -> None:
    """Kill all processes in the groups, at once where the kernel can."""
    for path in paths:
        try:
            _write(os.path.join(path, "cgroup.kill"), "1")
        except OSError:  # version 1, a kernel before 5.14, or nothing left
            for process in filter(None, map(proc.read, members([path]))):
                proc.kill(process)


def ran_out_of_memory(paths: Iterable[str]) -> bool:
    """Whether the kernel killed a process of the groups because they reached their limit of memory."""
    for path in paths:
        for name in ("memory.events", "memory.oom_control"):  # of version 2, and 1
            with suppress(OSError), open(os.path.join(path, name), encoding="ascii") as file:
                if any(line.startswith("oom_kill ") and line.split()[1] != "0" for line in file):
                    return True
    return False


def remove(paths: Iterable[str]) -> None:
    """Remove groups in which nothing lives any more."""
    for path in paths:
        for directory in reversed(list(_with_nested(path))):
            with suppress(OSError):
                os.rmdir(directory)


def _with_nested(path: str) -> Iterator[str]:
    for directory, _, _ in os.walk(path):
        yield directory


def _numbers(directory: str) -> list[int]:
    with suppress(OSError), open(os.path.join(directory, "cgroup.procs"), encoding="ascii") as file:
        return [int(pid) for pid in file.read().split()]
    return []


def _enable(directory: str, controller: str) -> None:
    """Let groups below the directory have limits; those of version 1 always can."""
    control = os.path.join(directory, "cgroup.subtree_control")
    if os.path.exists(control):
        _write(control, f"+{controller}")


def _write(path: str, text: str) -> None:
    """Write to a file of the kernel, which must exist, in one call."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
