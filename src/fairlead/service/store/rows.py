"""Rows that the store returns, other than those of jobs (model/public_job.py). The API sends them unchanged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fairlead.model.limits import BUILT_IN, NO_LIMITS, TenantLimits
from fairlead.model.quotas import Quota


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node with its GPUs, and the number of them that are free; a drained node is not up."""

    name: str
    type: str
    gpus: int
    free: int
    up: bool
    drained: bool = False  # by an operator, until it is resumed


@dataclass(frozen=True, slots=True)
class GpuHolder:
    """A job that holds GPUs, and how many on each node."""

    id: str
    name: str
    tenant: str
    phase: str
    nodes: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class TenantTerms:
    """A tenant's weight, quotas and limits; the defaults apply to tenants without settings."""

    name: str
    weight: float = 1.0
    quotas: tuple[Quota, ...] = ()
    limits: TenantLimits = NO_LIMITS  # its own
    applied: TenantLimits = BUILT_IN  # its own, or else those of every tenant
    stored_bytes: int | None = None  # of its checkpoints; null unless they are limited


@dataclass(frozen=True, slots=True)
class TenantUse:
    """The numbers of a tenant's jobs that wait and that hold GPUs, and its GPU-hours so far."""

    waiting: int = 0
    running: int = 0
    gpu_hours: float = 0.0


@dataclass(frozen=True, slots=True)
class ArchivedJob:
    """A job that is in the archive only: how and when it ended, and the number of its segment."""

    id: str
    phase: str
    end_s: float | None
    segment: int


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """An entry of the audit log: who changed what, and when."""

    number: int
    time_s: float
    actor: str
    action: str
    target: str
    detail: dict[str, Any]
