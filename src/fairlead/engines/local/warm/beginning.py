"""What a lease that wants a warm start has in common with others like it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fairlead.engines.leases import Lease
from fairlead.model.handshake import LEASE_VARIABLE, REPORT_VARIABLE, STOP_VARIABLE

DEVICES = "CUDA_VISIBLE_DEVICES"
_OF_LEASE = (LEASE_VARIABLE, REPORT_VARIABLE, STOP_VARIABLE, "FAIRLEAD_JOB", "FAIRLEAD_GPUS")


@dataclass(frozen=True, slots=True)
class Beginning:
    """All that is decided about a process before it knows its lease."""

    tenant: str
    interpreter: str  # path
    words: tuple[str, ...]  # of its command line: the interpreter as the job writes it, and its options
    path: str  # where it looks for modules first
    modules: tuple[str, ...]
    workdir: str
    env: tuple[tuple[str, str], ...]
    ranks: int
    uid: int | None
    gid: int | None
    groups: tuple[int, ...] | None
    memory_gib: float | None  # its limit, if the job states one


def beginning_of(lease: Lease, plan: Mapping[str, Any], *, contexts: bool) -> Beginning | None:
    """The beginning of a lease with this plan; None if only the shim can start it.

    A CUDA context belongs to devices, so a standby that opens contexts fits only leases on the same ones. Its processes
    all open the devices of the lease, so it does not fit a gang of which each process sees only those of its node.
    """
    python, env, workdir = plan["python"], plan["env"], plan["workdir"]
    if python is None or (contexts and any(rank.get(DEVICES, env[DEVICES]) != env[DEVICES] for rank in plan["ranks"])):
        return None
    first = os.path.join(workdir, python["words"][0]) if "/" in python["words"][0] else python["words"][0]
    interpreter = shutil.which(first, path=env.get("PATH"))
    if interpreter is None:
        return None
    script = os.path.join(workdir, python["target"])
    own = _OF_LEASE if contexts else (*_OF_LEASE, DEVICES)
    return Beginning(
        tenant=lease.tenant,
        interpreter=os.path.join(workdir, interpreter),
        words=tuple(python["words"]),
        path=workdir if python["is_module"] else os.path.dirname(os.path.realpath(script)),
        modules=lease.command.warm,
        workdir=workdir,
        env=tuple(sorted({**_of_shells(plan, interpreter), **_without(env, own)}.items())),
        ranks=len(plan["ranks"]),
        uid=plan["uid"],
        gid=plan["gid"],
        groups=plan["groups"],
        memory_gib=lease.command.memory_gib,
    )


def _without(env: Mapping[str, str], names: tuple[str, ...]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name not in names}


def _of_shells(plan: Mapping[str, Any], interpreter: str) -> dict[str, str]:
    """The variables that the job's shell would set."""
    return {"PWD": plan["workdir"], "SHLVL": "1", "_": interpreter}
