"""What can be seen of a Slurm from this machine and by this user, gathered once. Nothing is changed."""

from __future__ import annotations

import os
import pwd
import shutil
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from fairlead.engines.slurm.commands import Slurm, SlurmError
from fairlead.engines.slurm.config import SlurmConfig, SlurmPartition
from fairlead.engines.slurm.machines import SlurmNode

READING, RUNNING = ("squeue", "sinfo", "scontrol"), ("sbatch", "scancel")
LUA = "job_submit.lua"


@dataclass(frozen=True, slots=True)
class SlurmFacts:
    """`config` is None if the controller does not answer, and `trouble` says why."""

    commands: dict[str, bool]  # whether each is installed
    version: str  # of the commands
    user: str
    uid: int
    config: SlurmConfig | None = None
    trouble: str = ""
    ahead_s: float | None = None  # the controller's clock minus ours
    partitions: dict[str, SlurmPartition] = field(default_factory=dict)
    nodes: dict[str, SlurmNode] = field(default_factory=dict)
    admin_level: str = ""  # in the accounting, in lower case; empty if it is not known there
    accounting: str | None = None  # why the accounting does not answer; None if it does
    lua: str | None = None  # job_submit.lua, if it can be read here
    state: Path | None = None
    state_type: str = ""  # of its file system

    @property
    def slurm_conf(self) -> Path:
        """Where the configuration is, on the controller."""
        path = self.config.get("SLURM_CONF") if self.config is not None else ""
        return Path(path or "/etc/slurm/slurm.conf")


def gather(slurm: Slurm, state: Path | None = None) -> SlurmFacts:
    """Ask Slurm's commands. What does not answer is missing from the facts."""
    uid = os.geteuid()
    facts = SlurmFacts(
        commands={name: shutil.which(name) is not None for name in (*READING, *RUNNING)},
        version=_version(slurm),
        user=user_name(uid),
        uid=uid,
        state=state,
        state_type="" if state is None else file_system_type(state, _text(Path("/proc/self/mounts")) or ""),
    )
    try:
        config = slurm.config()
        now = datetime.now(UTC)
        facts = replace(facts, config=config, partitions=slurm.partitions(), nodes=slurm.nodes())
    except SlurmError as error:
        return replace(facts, trouble=str(error))
    trouble, level = _accounting(slurm, config, facts.user)
    return replace(
        facts,
        ahead_s=None if config.as_of is None else (config.as_of - now).total_seconds(),
        accounting=trouble,
        admin_level=level,
        lua=_text(facts.slurm_conf.parent / LUA),
    )


def user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def file_system_type(path: Path, mounts: str) -> str:
    """The type of the file system that a path is on, or will be on once it exists; `mounts` is /proc/mounts."""
    where, best, found = os.path.realpath(path), "", ""
    for line in mounts.splitlines():
        _, point, type_, *_ = [*line.split(), "", "", ""]
        point = point.replace("\\040", " ")
        if len(point) >= len(best) and (where == point or where.startswith(point.rstrip("/") + "/")):
            best, found = point, type_
    return found


def _version(slurm: Slurm) -> str:
    with suppress(SlurmError):
        return slurm.run("sinfo", "--version").strip().removeprefix("slurm").removeprefix("-wlm").strip()
    return ""


def _accounting(slurm: Slurm, config: SlurmConfig, user: str) -> tuple[str | None, str]:
    """Why the accounting does not answer, and the user's level of administration there."""
    if not config.get("AccountingStorageType").endswith("slurmdbd"):
        return "slurm.conf has no AccountingStorageType=accounting_storage/slurmdbd", ""
    try:
        output = slurm.run("sacctmgr", "-nP", "show", "user", user, "format=AdminLevel")
    except SlurmError as error:
        return str(error), ""
    return None, output.strip().lower()


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
