"""What a tenant may use of the service besides GPUs: places in the queue, submissions, and space on disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from fairlead.model.errors import InputError

EVERY_TENANT = ""  # the name under which the limits of tenants without their own are set
MOST = 10**15


@dataclass(frozen=True, slots=True)
class TenantLimits:
    """The limits of a tenant; None where the limit for every tenant applies, and there where nothing is limited."""

    max_queued: int | None = None  # jobs that wait or are held
    max_submits: int | None = None  # jobs submitted within a minute
    log_bytes: int | None = None  # of the log of one lease
    checkpoint_bytes: int | None = None  # of all checkpoints that the service stores for the tenant's jobs

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and not 0 <= value <= MOST:
                raise InputError(f"{field.name} is {value}; wanted a whole number from 0 to {MOST}")

    def over(self, other: TenantLimits) -> TenantLimits:
        """These limits, and `other` where nothing is set."""
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        return TenantLimits(**{name: getattr(other, name) if value is None else value for name, value in own.items()})


NO_LIMITS = TenantLimits()
# Large enough for any queue that we know, and small enough that one tenant cannot fill memory or a disk by a mistake.
BUILT_IN = TenantLimits(max_queued=100_000, log_bytes=1 << 30)


def limits_of(tenant: str, settings: Mapping[str, TenantLimits]) -> TenantLimits:
    """The limits that apply to a tenant: its own, then those of every tenant, then the built-in ones."""
    return settings.get(tenant, NO_LIMITS).over(settings.get(EVERY_TENANT, NO_LIMITS)).over(BUILT_IN)
