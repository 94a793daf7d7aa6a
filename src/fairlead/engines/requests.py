"""Requests of users and operators to a running scheduler, and the inbox from which a live engine takes them.

A request has no time: the engine stamps the resulting events, so that the log has one clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from fairlead.model.cluster import NodeGroup
from fairlead.model.jobs import JobSpec
from fairlead.model.limits import TenantLimits
from fairlead.model.quotas import Quota


class Processes(StrEnum):
    """How often an engine starts a job's command for one lease."""

    ONE = "one"
    PER_NODE = "per-node"
    PER_GPU = "per-gpu"


@dataclass(frozen=True, slots=True)
class Command:
    """What a job executes. `setup` runs before `run` on every start, both by the shell and from `workdir`.

    A job that is asked to stop has `grace_s` to write a checkpoint. A `run` that ends with an error is started again
    up to `max_retries` times. `processes` may start it once for each node or GPU (`engines/ranks.py`). `warm` lists
    modules that a process may have imported before it becomes the job; empty if the job is always started afresh. Its
    processes together may use `memory_gib` of the machine's memory, where the engine can limit that. `foreign` is the id
    of a job that another system has and runs (Slurm, if its jobs are steered); such a command has nothing to run.
    """

    run: str
    setup: str | None = None
    workdir: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    checkpoint_dir: str | None = None
    grace_s: float = 30.0
    max_retries: int = 0
    processes: str = Processes.ONE
    warm: tuple[str, ...] = ()
    memory_gib: float | None = None
    foreign: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "warm", tuple(self.warm))  # JSON has only lists


@dataclass(frozen=True, slots=True)
class Submit:
    """`spec.arrival_s` is set by the engine when it takes the request."""

    spec: JobSpec
    command: Command


@dataclass(frozen=True, slots=True)
class Cancel:
    job: str


@dataclass(frozen=True, slots=True)
class Hold:
    job: str


@dataclass(frozen=True, slots=True)
class Release:
    job: str


@dataclass(frozen=True, slots=True)
class Drain:
    """No job runs on the node until it is resumed."""

    node: str


@dataclass(frozen=True, slots=True)
class Resume:
    node: str


@dataclass(frozen=True, slots=True)
class AddNode:
    """The node joins, or comes back after it was removed, perhaps with other GPUs."""

    node: str
    group: NodeGroup


@dataclass(frozen=True, slots=True)
class RemoveNode:
    """The node leaves at once; its jobs lose their GPUs as in a drain."""

    node: str


@dataclass(frozen=True, slots=True)
class SetTenant:
    tenant: str
    weight: float
    quotas: tuple[Quota, ...] = ()


@dataclass(frozen=True, slots=True)
class SetPolicy:
    """The loop ends after this one, so that it can be started again with the new policy."""

    policy: str
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SetLimits:
    """`tenant` is empty for the limits of every tenant without its own."""

    tenant: str
    limits: TenantLimits


Request = Submit | Cancel | Hold | Release | Drain | Resume | AddNode | RemoveNode | SetTenant | SetPolicy | SetLimits


class Inbox(Protocol):
    def take(self, timeout_s: float) -> list[Request] | None:
        """The next requests, after waiting up to `timeout_s` (perhaps infinity) for them; None if the loop must end."""
