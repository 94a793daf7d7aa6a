"""Recounts what pre-emption costs in every hour of a journal, without anything of ours."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Protocol

HOUR_S = 3600.0
SAME = 1e-6  # relative, for sums in another order

Need = Callable[[bool, str], None]


class StoppedJob(Protocol):
    """A running job that a decision stops or moves."""

    @property
    def spec(self) -> dict[str, Any]: ...

    @property
    def holds(self) -> dict[str, int]: ...


def limits_of(settings: dict[str, Any]) -> tuple[float, float]:
    """GPU-seconds in an hour: in all, and for each tenant."""
    return settings.get("preemption_gpu_s", math.inf), settings.get("tenant_preemption_gpu_s", math.inf)


class PreemptionRecount:
    """The charges of the last hour, by decision: tenant -> GPU-seconds."""

    def __init__(self, header: dict[str, Any]) -> None:
        self.limits = limits_of(header["settings"])
        self.has_quotas = False  # what quotas take back counts, but is never denied
        self.is_measured = False  # restart costs are no longer those of the header
        self._restart_s: float | None = header["restart_s"]
        self._facts: dict[str, dict[str, Any]] = header["profile"]["facts"]
        self._decisions: list[tuple[float, dict[str, float]]] = []

    def check(self, now_s: float, stops: Sequence[StoppedJob], need: Need) -> None:
        """Count the stops of a decision: an hour costs no more than the limit, unless this decision alone does."""
        costs: dict[str, float] = defaultdict(float)
        for job in stops:
            costs[job.spec["tenant"]] += sum(job.holds.values()) * self._cost_s(job.spec["model"])
        self._decisions = [row for row in self._decisions if now_s - row[0] < HOUR_S]
        before = self._decisions
        self._decisions = [*before, (now_s, dict(costs))]
        if self.has_quotas or self.is_measured:
            return
        in_all, of_tenant = self.limits
        total = sum(costs.values())
        spent = sum(sum(row.values()) for _, row in before)
        need(not total or _is_within(spent, total, in_all), f"pre-emption costs {spent + total} of {in_all} in an hour")
        for tenant, cost in costs.items():
            spent = sum(row.get(tenant, 0.0) for _, row in before)
            need(
                not cost or _is_within(spent, cost, of_tenant),
                f"pre-emption costs {tenant} {spent + cost} of {of_tenant} in an hour",
            )

    def sums(self) -> list[tuple[float, float]]:
        """(limit, GPU-seconds charged in the last hour), in all and for each tenant."""
        tenants = {tenant for _, row in self._decisions for tenant in row}
        each = [sum(row.get(tenant, 0.0) for _, row in self._decisions) for tenant in sorted(tenants)]
        in_all, of_tenant = self.limits
        return [(in_all, sum(each)), *((of_tenant, spent) for spent in each)]

    def _cost_s(self, model: str) -> float:
        if self._restart_s is not None:
            return self._restart_s
        return float(self._facts.get(model, {}).get("restart_s", 0.0))


def _is_within(spent: float, cost: float, limit: float) -> bool:
    """One start may cost more than the limit if nothing was charged in the hour before."""
    return spent + cost <= limit * (1 + SAME) or not spent
