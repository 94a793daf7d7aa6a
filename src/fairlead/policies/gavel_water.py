"""Gavel's water filling: max-min level by level, over jobs or over tenants and then their jobs (OSDI 2020)."""

from __future__ import annotations

import math

import numpy as np

from fairlead.model.allocation import Level, Shares
from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.model.view import View
from fairlead.numerics.isolated import isolated_shares
from fairlead.numerics.levels import Gangs, Weigh, fill_water
from fairlead.policies.kept_shares import KeptShares, keep
from fairlead.policies.policy import RoundPolicy
from fairlead.policies.ranges import Word

INSIDE = ("fair", "fifo")


def gavel_waterfill(view: View, memory: KeptShares | None) -> tuple[Shares, KeptShares]:
    """Max-min relative to the isolated share; jobs limited by types that have run out stop, the others rise further.

    With u_j the speed of a job that has every type to itself, all rise by w_j u_j at once. This is the lexicographic
    max-min: no job could have more except at the cost of a job that has no more, per weight.
    Departs: Gavel determines the limited jobs by a mixed-integer program after each step; here they follow from prices.
    """
    if memory is not None and memory.still_holds(view):
        return memory.shares, memory
    group, first = _groups(view, view.alike)
    weight = view.weight[first]
    return _fill(view, group, first, lambda stopped: np.where(stopped, 0.0, weight))


def gavel_hierarchical(view: View, memory: KeptShares | None, *, inside: str = "fair") -> tuple[Shares, KeptShares]:
    """The same over tenants by their weights, and inside a tenant over its jobs: `fair` by the jobs' weights, or `fifo`.

    w_j = w_tenant w_j / (weights of the tenant's jobs that still rise); with `fifo`, the first of them has all of it. What
    a stopped job cannot use goes to other jobs of its tenant first, and to other tenants when none of these rises.
    """
    if memory is not None and memory.still_holds(view):
        return memory.shares, memory
    kind = view.alike * (int(view.tenant.max(initial=0)) + 1) + view.tenant if inside == "fair" else view.job
    group, first = _groups(view, kind)
    tenant, weight = view.tenant[first], view.weight[first] * np.bincount(group)
    jobs = np.bincount(group)

    def fair(stopped: BoolArray) -> FloatArray:
        part = np.where(stopped, 0.0, weight)
        whole = np.bincount(tenant, part, len(view.tenant_weight))[tenant]
        return np.asarray(view.tenant_weight[tenant] * part / np.where(whole > 0, whole, 1.0) / jobs)

    def fifo(stopped: BoolArray) -> FloatArray:
        part = np.zeros(len(tenant))
        rising = np.flatnonzero(~stopped)
        heads = rising[np.unique(tenant[rising], return_index=True)[1]]  # groups are jobs in order of arrival
        part[heads] = view.tenant_weight[tenant[heads]]
        return part

    return _fill(view, group, first, fair if inside == "fair" else fifo, inherit=True)


def _fill(
    view: View, group: IntArray, first: IntArray, weigh: Weigh, *, inherit: bool = False
) -> tuple[Shares, KeptShares]:
    gangs = Gangs.of(view.rate[first], view.width[first], np.bincount(group), view.capacity)
    unit = np.asarray(gangs.capacity @ gangs.rate / gangs.width)  # g  speed with every type to itself
    dead = ~gangs.alive

    def weigh_alive(stopped: BoolArray) -> FloatArray:
        """Weights of the groups that can run, as parts of all weights."""
        all_stopped = dead.copy()
        all_stopped[gangs.alive] = stopped
        weight = weigh(all_stopped)[gangs.alive]
        return np.asarray(weight / max(float(weight.sum()), 1e-300))

    part = fill_water(gangs, unit, weigh_alive, inherit=inherit) if gangs.alive.any() else None
    if part is None:
        alone = isolated_shares(view.rate > 0, view.width, view.capacity, view.weight)
        kept = keep(view, alone, math.inf, "equal shares")
    else:
        kept = keep(view, gangs.shares(part)[group], math.inf, "optimal")
    return kept.shares, kept


def _groups(view: View, kind: IntArray) -> tuple[IntArray, IntArray]:
    """The group of each job (j) and the first job of each group (g), in order of their first jobs."""
    _, first, group = np.unique(kind, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    return place[group], first[order]


POLICIES = (
    RoundPolicy(
        name="gavel-waterfill",
        summary="Max-min relative to the isolated share, level by level: jobs at a limit stop, the others rise further.",
        paper="Gavel (OSDI 2020), max-min with water filling",
        level=Level.SHARES,
        allocate=gavel_waterfill,
        remembers=(KeptShares,),
    ),
    RoundPolicy(
        name="gavel-hierarchical",
        summary="Water filling over tenants by weight, and inside each tenant over its jobs, fair or first in first out.",
        paper="Gavel (OSDI 2020), hierarchical",
        level=Level.SHARES,
        allocate=gavel_hierarchical,
        remembers=(KeptShares,),
        ranges={"inside": Word(*INSIDE)},
    ),
)
