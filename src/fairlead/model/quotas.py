"""How many GPUs of a type a tenant may hold, with the terms of Kueue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.errors import InputError


@dataclass(frozen=True, slots=True)
class Quota:
    """A tenant's limits for one type: `nominal` GPUs belong to the tenant.

    It may hold `borrowing_limit` more while others do not use them, and others may hold up to `lending_limit` of its
    own while it does not use them. None = unlimited. Lent GPUs are returned in the first round in which a job of the
    tenant waits for them.
    """

    type: str
    nominal: int
    borrowing_limit: int | None = None
    lending_limit: int | None = None

    def __post_init__(self) -> None:
        for name in ("nominal", "borrowing_limit", "lending_limit"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise InputError(f"{name} of {self.type} is {value}; expected 0 or more GPUs")
        if self.lending_limit is not None and self.lending_limit > self.nominal:
            raise InputError(
                f"lending_limit of {self.type} is {self.lending_limit}; it cannot exceed the nominal {self.nominal}"
            )


@dataclass(frozen=True, slots=True, eq=False)
class Quotas:
    """All tenants' limits as columns."""

    most: FloatArray  # u,t  GPUs that the tenant may hold
    kept: FloatArray  # u,t  GPUs that no other tenant may hold, used or not
    own: FloatArray  # u,t  GPUs that others return at a round when the tenant wants them

    def may_hold(self, t: int, held: FloatArray, free: float) -> FloatArray:
        """u  GPUs of the type that each tenant may hold in total, if tenants hold `held` (u) and `free` are left.

        min(most_u, held_u + free - sum_{v != u} max(kept_v - held_v, 0))
        """
        kept_free = np.maximum(self.kept[:, t] - held, 0.0)
        return np.asarray(np.minimum(self.most[:, t], held + free - (kept_free.sum() - kept_free)))

    def ever_hold(self, u: int, capacity: IntArray) -> FloatArray:
        """t  GPUs that the tenant may hold if no other tenant holds any: those that are kept for others stay free."""
        kept_for_others = self.kept.sum(axis=0) - self.kept[u]
        return np.asarray(np.minimum(self.most[u], capacity - kept_for_others))


def quota_table(quotas_of: Mapping[int, Sequence[Quota]], tenants: int, types: Sequence[str]) -> Quotas | None:
    """All tenants' limits as columns; None if no tenant has a limit."""
    if not any(quotas_of.values()):
        return None
    most = np.full((tenants, len(types)), np.inf)
    kept, own = np.zeros_like(most), np.zeros_like(most)
    for u, quotas in quotas_of.items():
        for quota in quotas:
            t = types.index(quota.type)
            own[u, t] = quota.nominal
            if quota.borrowing_limit is not None:
                most[u, t] = quota.nominal + quota.borrowing_limit
            if quota.lending_limit is not None:
                kept[u, t] = quota.nominal - quota.lending_limit
    return Quotas(most, kept, own)
