"""`fairlead doctor`: what works here, what does not, and what to do about it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.output import Format, Output, print_json, print_table
from fairlead.model.errors import FairleadError
from fairlead.model.findings import Finding


def doctor(
    state: Annotated[Path | None, typer.Option(help="Also check this state directory of `fairlead serve`.")] = None,
    output: Output = Format.table,
) -> None:
    """Check this machine, the service and the token; exit code 1 if something needs to be fixed."""
    findings = [check() for check in (_python, _solver, _gpus, _control_groups, _torch, _service)]
    if state is not None:
        findings += _state(state)
    if output is Format.json:
        print_json([asdict(finding) for finding in findings])
    else:
        words = {True: "ok", False: "FIX", None: "absent"}
        rows = [[f.check, words[f.ok], f.found, "" if f.ok else f.remedy] for f in findings]
        print_table("Doctor", ["check", "", "found", "what to do"], rows, left=4)
    if any(finding.ok is False for finding in findings):
        raise typer.Exit(1)


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    return Finding("python", sys.version_info >= (3, 11), version, "install Python 3.11 or newer")


def _solver() -> Finding:
    try:
        import numpy as np

        from fairlead.policies.oef import WORK, cooperative

        division = cooperative(np.array([[1.0, 2.0], [1.0, 3.0]]), np.array([1.0, 1.0]), np.ones(2), None, WORK)
        return Finding("solver", True, f"HiGHS divides two GPU types between two tenants ({division.status})")
    except Exception as error:  # anything wrong with the installation is the finding
        return Finding(
            "solver", False, f"{type(error).__name__}: {error}", "install Fairlead again: make clean, then make demo"
        )


def _gpus() -> Finding:
    from fairlead.engines.local.nvml import detect

    detection = detect()
    if not detection.devices:
        return Finding("gpus", None, detection.why_none, "nothing; the cluster's GPUs are emulated as slots")
    return Finding("gpus", True, ", ".join(device.name for device in detection.devices))


def _control_groups() -> Finding:
    from fairlead.engines.local.hierarchies import find

    found = find()
    limits = {"memory": "memory", "number of processes": "pids"}
    words = [f"{what} {'can be' if found.can_limit(how) else 'not'} limited here" for what, how in limits.items()]
    if found.tracking is None:
        lines = ["processes of jobs are found by other signs", *words, found.why_none]
        return Finding("control groups", None, "; ".join(lines), "let the service make control groups (Delegate=yes)")
    return Finding(
        "control groups", True, "; ".join([f"processes of jobs are tracked in {found.tracking.path}", *words])
    )


def _torch() -> Finding:
    from importlib.util import find_spec

    if find_spec("torch") is None:
        return Finding("torch", None, "not installed", "only fairlead.lease.torch needs it: pip install torch")
    return Finding("torch", True, "installed")


def _service() -> Finding:
    from fairlead.service.client import Client, NotAllowedError, UnreachableError, credentials_path

    try:
        client = Client.from_environment()
        client.get("/me")
        return Finding("service", True, f"answers at {client.url}, and the token is valid")
    except UnreachableError as error:
        return Finding(
            "service", None, str(error).partition(";")[0], "start it with `fairlead serve`, or set FAIRLEAD_URL"
        )
    except NotAllowedError as error:
        return Finding("service", False, str(error), f"set FAIRLEAD_TOKEN, or correct {credentials_path()}")
    except FairleadError as error:
        return Finding("service", False, str(error))


def _state(path: Path) -> list[Finding]:
    checks: list[Callable[[Path], Finding]] = [_mode, _space]
    return (
        [check(path) for check in checks] if path.is_dir() else [Finding("state", False, f"{path} is not a directory")]
    )


def _mode(path: Path) -> Finding:
    mode = path.stat().st_mode & 0o777
    return Finding("state mode", mode == 0o700, f"{mode:04o}", f"chmod 700 {path}")


def _space(path: Path) -> Finding:
    disk = os.statvfs(path)
    free_gib = disk.f_bavail * disk.f_frsize / 2**30
    return Finding(
        "state space",
        free_gib > 1,
        f"{free_gib:.1f} GiB free",
        "free some disk space; with a full disk no job can be submitted",
    )
