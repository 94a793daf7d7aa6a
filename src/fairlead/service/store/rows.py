"""Rows that the store returns, beside those of jobs (model/public_job.py). The API sends them as they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fairlead.model.quotas import Quota


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node with its GPUs, and how many of them no job holds."""

    name: str
    type: str
    gpus: int
    free: int
    up: bool


@dataclass(frozen=True, slots=True)
class TenantTerms:
    """A tenant's weight and limits; the defaults are those of a tenant for which nothing was set."""

    name: str
    weight: float = 1.0
    quotas: tuple[Quota, ...] = ()


@dataclass(frozen=True, slots=True)
class TenantUse:
    """How many jobs of a tenant wait and hold GPUs, and its GPU-hours so far."""

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
