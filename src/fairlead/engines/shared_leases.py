"""Leases on a file system that the nodes of an engine share: their directories, descriptions and claims.

    ROOT/leases/JOB/NUMBER/   lease.json  claim  asked  log  report/progress.json  exit.json, and what the engine adds
    ROOT/leases/JOB/checkpoints/          unless the job names another directory

An engine may forget jobs after minutes, so what must be known later is here. Whoever links `claim` first decides whether
a lease runs or is revoked.
"""

from __future__ import annotations

import os
import secrets
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fairlead.engines.leases import Key, Lease
from fairlead.engines.local import shim
from fairlead.engines.local.files import (
    CHECKPOINTS,
    REPORT,
    jobs_in,
    lease_directory,
    lease_numbers,
    new_lease_directory,
    read_json,
    read_lease,
)
from fairlead.engines.local.runner import KIND, PASSED_ON
from fairlead.engines.ranks import ranks_of
from fairlead.engines.runner import LaunchError
from fairlead.model.handshake import LEASE_VARIABLE, REPORT_EVERY_VARIABLE, REPORT_VARIABLE, STOP_VARIABLE

REPORT_EVERY_S = 5.0  # on a file system that all nodes share


class SharedLeases:
    """The leases below a directory. `pace` is by GPU type, if speeds are emulated."""

    def __init__(self, root: Path, *, pace: Mapping[str, float] | None, report_every_s: float) -> None:
        self.root = root.absolute()
        self._pace = pace
        self._report_every_s = report_every_s

    def directory(self, key: Key) -> Path:
        return lease_directory(self.root, key)

    def recall(self, key: Key) -> Lease | None:
        return read_lease(self.directory(key), key)

    def jobs(self) -> Collection[str]:
        return jobs_in(self.root)

    def numbers(self, job: str) -> Sequence[int]:
        return [number for number in lease_numbers(self.root, job) if self.recall((job, number)) is not None]

    def lay_out(self, lease: Lease, plan: Callable[[Path], Mapping[str, Any]]) -> Path:
        """Create the directory and files of a lease. `plan` may add files, and returns what the engine adds to the plan.

        LaunchError: the lease was launched before, or cannot be.
        """
        workdir = _workdir(lease)
        if not os.path.isdir(workdir):
            raise LaunchError(f"workdir {workdir} is not a directory; create it or name another")
        directory = self.directory(lease.key)
        try:
            new_lease_directory(self.root, lease.key)
            (directory / REPORT).parent.mkdir(mode=0o700)
            (directory.parent / CHECKPOINTS).mkdir(mode=0o700, exist_ok=True)
            draft = directory / f"{shim.LEASE}.draft"
            shim.write_synced(str(draft), self._description(directory, lease, plan(directory)))
            draft.rename(directory / shim.LEASE)
        except FileExistsError:
            raise LaunchError(f"lease {lease.number} of job {lease.job} was launched before") from None
        except OSError as error:
            raise LaunchError(f"cannot write {directory}: {error.strerror}") from None
        return directory

    def claim(self, key: Key) -> dict[str, Any]:
        record = read_json(self.directory(key) / shim.CLAIM)
        return record if isinstance(record, dict) else {}

    def is_claimed(self, key: Key) -> bool:
        return (self.directory(key) / shim.CLAIM).exists()

    def revoke(self, key: Key) -> bool | None:
        """Whether it is certain that the lease never began and never will; None if nothing of it is there at all."""
        try:
            claimed = shim.claim(str(self.directory(key) / shim.CLAIM), {"revoked": True})
        except FileNotFoundError:
            return None  # without a directory nothing can run it
        except OSError:
            return False  # such as a full disk
        return claimed or "revoked" in self.claim(key)

    def held(self, keys: Iterable[Key]) -> Counter[str]:
        """GPUs of these leases by node. Each description is read once: they are on a file system that all nodes share."""
        held: Counter[str] = Counter()
        for lease in filter(None, map(self.recall, keys)):
            held.update(lease.nodes)
        return held

    def _description(self, directory: Path, lease: Lease, plan: Mapping[str, Any]) -> dict[str, Any]:
        chosen, workdir = lease.command.checkpoint_dir, _workdir(lease)
        home = directory.parent / CHECKPOINTS
        return {
            "fairlead": KIND,
            **asdict(lease),
            "checkpoint_dir": str(home) if chosen is None else os.path.join(workdir, chosen, lease.job),
            "emulated": self._pace is not None,
            "pace": None if self._pace is None else [self._pace.get(gpu.type, 1.0) for gpu in lease.gpus],
            "ranks": [rank.gpus for rank in ranks_of(lease)],
            "plan": {
                "shell": ["/bin/bash", "-o", "pipefail"],
                "setup": lease.command.setup,
                "run": lease.command.run,
                "workdir": workdir,
                "env": self._environment(directory, lease),
                "ranks": [{}],
                "grace_s": lease.command.grace_s,
                "cgroups": {},  # the engine tracks processes in its own way
                **plan,
            },
        }

    def _environment(self, directory: Path, lease: Lease) -> dict[str, str]:
        env = passed_on() | {"PYTHONUNBUFFERED": "1", **lease.command.env}
        env |= {
            LEASE_VARIABLE: str(directory / shim.LEASE),
            REPORT_VARIABLE: str(directory / REPORT),
            REPORT_EVERY_VARIABLE: f"{self._report_every_s:g}",
            STOP_VARIABLE: str(directory / shim.ASKED),
            "FAIRLEAD_JOB": lease.job,
            "FAIRLEAD_GPUS": str(len(lease.gpus)),
        }
        return env | ({"FAIRLEAD_EMULATED": "1"} if self._pace is not None else {})


def passed_on() -> dict[str, str]:
    """What jobs see of the environment of the service."""
    return {name: os.environ[name] for name in PASSED_ON if name in os.environ}


def identity(root: Path, name: str) -> str:
    """A name that no other state directory has, made once and kept in a file of this name."""
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    path, draft = root / name, root / f"{name}.{os.getpid()}"
    if not path.exists():
        draft.write_text(secrets.token_hex(8), encoding="ascii")
        with suppress(FileExistsError):
            os.link(draft, path)
        draft.unlink()
    return path.read_text(encoding="ascii")


def _workdir(lease: Lease) -> str:
    return os.path.abspath(lease.command.workdir or os.environ.get("HOME", "/"))
