"""Rows that the store returns, other than those of jobs (model/public_job.py). The API sends them unchanged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fairlead.model.quotas import Quota


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node with its GPUs, and the number of them that are free."""

    name: str
    type: str
    gpus: int
    free: int
    up: bool


@dataclass(frozen=True, slots=True)
class TenantTerms:
    """A tenant's weight and limits; the defaults apply to tenants without settings."""

    name: str
    weight: float = 1.0
    quotas: tuple[Quota, ...] = ()


@dataclass(frozen=True, slots=True)
class TenantUse:
    """The numbers of a tenant's jobs that wait and that hold GPUs, and its GPU-hours so far."""

    waiting: int = 0
    running: int = 0
    gpu_hours: float = 0.0


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """An entry of the audit log: who changed what, and when."""

    number: int
    time_s: float
    actor: str
    action: str
    target: str
    detail: dict[str, Any]
