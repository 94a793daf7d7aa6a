"""The hierarchies of control groups that this machine has mounted, and which of them the service may use.

    MOUNT/OWN/fairlead/lease-JOB-NUMBER-DIGEST/

OWN is the group that the service itself is in. Processes are tracked in the hierarchy of version 2, or else in one of
version 1, where each limit is a hierarchy of its own.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fairlead.engines.local import cgroups
from fairlead.model.errors import InputError

PARENT = "fairlead"
LEAF = "daemon"  # a service that is in a group of this name may use the whole group above (DelegateSubgroup of systemd)
_TRACKING = ("version 2", "pids", "freezer", "name=systemd")  # in the order in which we like them
_JOIN = '[ -f "$1" ] || { echo "$1 is missing" >&2; exit 1; }; echo 0 > "$1"'
_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """What the processes of one lease may use together; None: whatever there is."""

    memory_bytes: int | None = None
    processes: int | None = None

    @classmethod
    def of(cls, memory_gib: float | None, processes: int | None) -> GroupLimits:
        return cls(None if memory_gib is None else int(memory_gib * 2**30), processes)

    @property
    def by_controller(self) -> dict[str, int]:
        values = {"memory": self.memory_bytes, "pids": self.processes}
        return {controller: most for controller, most in values.items() if most is not None}


NO_LIMITS = GroupLimits()


@dataclass(frozen=True, slots=True)
class Hierarchy:
    path: Path  # the group of the service
    version: int
    controllers: frozenset[str]

    def group(self, name: str) -> str:
        return str(self.path / PARENT / name)


@dataclass(frozen=True, slots=True)
class Hierarchies:
    """Where the processes of leases are tracked (None, and why not), and all hierarchies that may limit them."""

    tracking: Hierarchy | None = None
    why_none: str = "control groups are switched off"
    limiting: tuple[Hierarchy, ...] = ()

    def can_limit(self, controller: str) -> bool:
        return self._with(controller) is not None

    def groups(self, name: str, limits: GroupLimits) -> dict[str, dict[str, str]]:
        """The directories of a lease, each with the limits to write into it, if this machine has such limits."""
        groups: dict[str, dict[str, str]] = {}
        if self.tracking is not None:
            groups[self.tracking.group(name)] = {}
        for controller, most in limits.by_controller.items():
            hierarchy = self._with(controller)
            if hierarchy is not None:
                groups.setdefault(hierarchy.group(name), {}).update(_files(controller, hierarchy.version, most))
        return groups

    def _with(self, controller: str) -> Hierarchy | None:
        return next((one for one in self.limiting if controller in one.controllers), None)


def find(process: Path = Path("/proc/self")) -> Hierarchies:
    """The hierarchies of this process. In the one that tracks, a process was moved into a group, to see that it works."""
    mounted: dict[str, Hierarchy] = {}
    with suppress(OSError):  # a system without /proc
        mounted = dict(_mounted(process))
    problem = "no control groups are mounted"
    for name in _TRACKING:
        if name in mounted:
            problem = why_not({mounted[name].group(f"trial-{os.getpid()}"): {}})
            if not problem:
                limiting = tuple(one for one in mounted.values() if os.access(one.path, os.W_OK))
                return Hierarchies(mounted[name], "", limiting)
    return Hierarchies(None, problem)


def check_limits(hierarchies: Hierarchies, limits: GroupLimits) -> None:
    """InputError if the service was asked for limits that it cannot set here."""
    for controller in limits.by_controller:
        option = {"memory": "--max-memory", "pids": "--max-processes"}[controller]
        if not hierarchies.can_limit(controller):
            reason = hierarchies.why_none or f"the service may not use the controller {controller}"
            raise InputError(f"{option} needs control groups, and {reason}; leave it out, or see `fairlead doctor`")
    problem = why_not(hierarchies.groups(f"trial-{os.getpid()}", limits))
    if limits.by_controller and problem:
        raise InputError(f"the limits of --max-memory and --max-processes cannot be set: {problem}")


def lease_name(directory: Path, job: str, number: int) -> str:
    """A name for the groups of a lease that no other lease of this machine has, nor a file of a controller."""
    return f"lease-{job[:64]}-{number}-{hashlib.sha256(os.fsencode(directory)).hexdigest()[:12]}"


def why_not(groups: cgroups.Groups) -> str:
    """Why no process can be moved into these groups, which are made and removed; empty if one can."""
    try:
        cgroups.make(groups)
        for path in groups:
            subprocess.run(["/bin/sh", "-c", _JOIN, "sh", f"{path}/cgroup.procs"], capture_output=True, check=True)
    except OSError as error:
        return f"{error.filename}: {error.strerror}" if error.filename else str(error)
    except subprocess.CalledProcessError as error:
        return str(error.stderr, errors="replace").strip()
    finally:
        cgroups.remove(groups)
    return ""


def _files(controller: str, version: int, most: int) -> dict[str, str]:
    if controller == "pids":
        return {"pids.max": str(most)}
    if version == 1:
        return {"memory.limit_in_bytes": str(most)}
    return {"memory.max": str(most), "memory.oom.group": "1"}  # a gang without one of its processes is of no use


def _mounted(process: Path) -> Iterator[tuple[str, Hierarchy]]:
    """Each mounted hierarchy, by its name in `_TRACKING` or by its controller."""
    own = _own_groups(process)
    for line in (process / "mountinfo").read_text(encoding="utf-8").splitlines():
        place, _, source = line.partition(" - ")
        root, mount = (_OCTAL.sub(lambda code: chr(int(code[1], 8)), part) for part in place.split()[3:5])
        kind, _, options = source.split()[:3]
        if kind == "cgroup2" and "version 2" in own:
            path = _inside(mount, root, own["version 2"])
            yield "version 2", Hierarchy(path, 2, frozenset(_words(path / "cgroup.controllers")))
        elif kind == "cgroup":
            for name in own.keys() & set(options.split(",")):
                yield name, Hierarchy(_inside(mount, root, own[name]), 1, frozenset([name]))


def _own_groups(process: Path) -> dict[str, str]:
    """The group of the process in each hierarchy."""
    own: dict[str, str] = {}
    for line in (process / "cgroup").read_text(encoding="utf-8").splitlines():
        _, names, path = line.split(":", 2)
        own |= dict.fromkeys(names.split(",") if names else ["version 2"], path)
    return own


def _inside(mount: str, root: str, group: str) -> Path:
    """The directory of a group below a mount that shows the hierarchy from `root` on."""
    relative = os.path.relpath(group, root)
    path = Path(mount) if relative.startswith("..") else Path(mount, relative)
    return path.parent if path.name == LEAF else path


def _words(path: Path) -> list[str]:
    with suppress(OSError):
        return path.read_text(encoding="ascii").split()
    return []
