"""All processes of a lease, wherever they went: by which signs they are recognised, and how they are ended.

A process belongs to the lease if one of these is true; so do all its descendants:

- it is in the lease's control groups, which it cannot leave unless it has the rights of the service;
- it descends from the supervisor (shim or keeper), to which orphans of the job return as long as it lives;
- it is in the supervisor's session, or in the process group of the job;
- it was started with the mark of the lease in its environment;
- it is on the roll, which the supervisor keeps where there are no control groups.

Sessions and groups have the number of the process that began them. Once that process is gone, the number may belong to
others, for example after a long time without a service. It counts as long as a process of the lease is in that session
or group, because a number is not given again before it is empty, and a process cannot enter those of strangers.

Imports only the standard library, because the shim uses it too.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from fairlead.engines.local import cgroups, proc
from fairlead.engines.local.proc import Process

MARK = "FAIRLEAD_MARK"  # environment variable
ROLL = "roll"
_ROLL_S = 1.0  # between two entries in the roll
_PASSES = 20  # over a family that forks while it is killed; the caller repeats the whole


def new_mark() -> str:
    return os.urandom(16).hex()


def claim_record(group: int, mark: str, groups: cgroups.Groups) -> dict[str, Any]:
    """What a supervisor, which calls this, writes into the claim of its lease so that all its processes can be found."""
    return {
        "group": group,
        "born": proc.born(group),
        "boot": proc.boot(),
        "supervisor": os.getpid(),
        "supervisor_born": proc.born(os.getpid()),
        "mark": mark,
        "cgroups": list(groups),
    }


def group_of(directory: str, claim: Mapping[str, Any]) -> int | None:
    """The process group of the claim, or None if it is empty, or its number may belong to others by now."""
    if claim.get("boot") != proc.boot():
        return None
    groups = {process.group for process in members(directory, claim)}
    return _unless_reused(claim, "group", "born", groups)


def members(directory: str, claim: Mapping[str, Any]) -> list[Process]:
    """The living processes of the lease, except its supervisor."""
    if claim.get("boot") != proc.boot():
        return []
    everything = proc.all_processes()
    supervisor = _living(claim, "supervisor", "supervisor_born")
    known = {*cgroups.members(claim.get("cgroups", ())), *_on_roll(directory, everything), *_marked(claim, everything)}
    if supervisor is not None:
        known.add(supervisor)
    family = proc.descendants(known, everything)
    group = _unless_reused(claim, "group", "born", {everything[pid].group for pid in family})
    session = _unless_reused(claim, "supervisor", "supervisor_born", {everything[pid].session for pid in family})
    together = {process.pid for process in everything.values() if process.group == group or process.session == session}
    family = proc.descendants(family | together, everything)
    return [everything[pid] for pid in family if pid != supervisor]


def kill_all(directory: str, claim: Mapping[str, Any]) -> bool:
    """Kill all processes of the lease except its supervisor; whether one may still live."""
    killed: set[Process] = set()
    for _ in range(_PASSES):
        cgroups.kill(claim.get("cgroups", ()))
        new = set(members(directory, claim)) - killed
        for process in new:
            proc.kill(process)
        killed |= new
        if not new:
            break
    # Twice, because one that forks and ends during the first search may hide its child from it.
    return bool(members(directory, claim) or members(directory, claim))


class Roll:
    """A list of the descendants of this process, a supervisor, in its directory. Not kept if the kernel tracks them."""

    def __init__(self, *, is_tracked: bool) -> None:
        self._due_s = math.inf if is_tracked else 0.0
        self._listed: list[Process] = []

    def keep(self) -> float:
        """Write the list if it is time to and it has changed; return the seconds until it is time again."""
        now_s = time.monotonic()
        if now_s >= self._due_s:
            self._due_s = now_s + _ROLL_S
            present = [process for process in map(proc.read, sorted(proc.tree(os.getpid()))) if process is not None]
            if present != self._listed:
                self._write(present)
        return self._due_s - now_s

    def _write(self, present: list[Process]) -> None:
        with suppress(OSError):  # a full disk: the mark in their environment remains
            with open(f"{ROLL}.draft", "w", encoding="ascii") as file:
                file.writelines(f"{process.pid} {process.born}\n" for process in present)
            os.replace(f"{ROLL}.draft", ROLL)
            self._listed = present


def _on_roll(directory: str, everything: Mapping[int, Process]) -> set[int]:
    try:
        with open(os.path.join(directory, ROLL), encoding="ascii") as file:
            pairs = [tuple(map(int, line.split())) for line in file]
        return {pid for pid, born in pairs if pid > 1 and pid in everything and everything[pid].born == born}
    except (OSError, ValueError):
        return set()


def _marked(claim: Mapping[str, Any], everything: Mapping[int, Process]) -> set[int]:
    if "mark" not in claim:
        return set()
    return {pid for pid in everything if proc.has_variable(pid, f"{MARK}={claim['mark']}")}


def _living(claim: Mapping[str, Any], number: str, born: str) -> int | None:
    """The process of the claim, unless it is gone; another one may have its number."""
    pid: int | None = claim.get(number)
    current = None if pid is None else proc.born(pid)
    return pid if current is not None and current == claim.get(born) else None


def _unless_reused(claim: Mapping[str, Any], number: str, born: str, held: set[int]) -> int | None:
    """The number of a session or group, if its first process is there or it is one of those that are `held`."""
    return _living(claim, number, born) or (claim.get(number) if claim.get(number) in held else None)
