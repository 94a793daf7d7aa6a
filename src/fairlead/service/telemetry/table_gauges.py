"""Gauges from rows of the tables: jobs, GPUs, shares of tenants."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from fairlead.model.public_job import PHASE_NAMES
from fairlead.service.store.rows import NodeRow
from fairlead.service.telemetry import families as f
from fairlead.service.telemetry.exposition import Labels
from fairlead.service.telemetry.log_tally import TenantLabels


def summed(rows: Iterable[tuple[Labels, float]]) -> dict[Labels, float]:
    """The sum of the values of each combination of labels, because several tenants may share one."""
    sums: dict[Labels, float] = {}
    for labels, value in rows:
        sums[labels] = sums.get(labels, 0.0) + value
    return sums


def largest(rows: Iterable[tuple[Labels, float]]) -> dict[Labels, float]:
    most: dict[Labels, float] = {}
    for labels, value in rows:
        most[labels] = max(most.get(labels, -math.inf), value)
    return most


def jobs_gauge(states: Mapping[tuple[str, str], int], labels: TenantLabels) -> dict[Labels, float]:
    """Every tenant has all states, so that a number that becomes 0 does not disappear."""
    tenants = sorted({tenant for tenant, _ in states})
    zero = (((phase, labels.label(tenant)), 0.0) for tenant in tenants for phase in PHASE_NAMES)
    counts = (((phase, labels.label(tenant)), float(count)) for (tenant, phase), count in states.items())
    return summed((*zero, *counts))


def held_by_type(nodes: Iterable[NodeRow], held: Iterable[tuple[str, Mapping[str, int]]]) -> dict[tuple[str, str], int]:
    """Held GPUs by tenant and type."""
    type_of = {node.name: node.type for node in nodes}
    counts: dict[tuple[str, str], int] = {}
    for tenant, spot in held:
        for node, count in spot.items():
            if node in type_of:  # a node that joined between two reads is not
                key = tenant, type_of[node]
                counts[key] = counts.get(key, 0) + count
    return counts


def gpu_gauges(nodes: Iterable[NodeRow], held: Mapping[tuple[str, str], int]) -> dict[str, dict[Labels, float]]:
    """GPUs and nodes by type and state."""
    gpus: dict[Labels, float] = {}
    counted: dict[Labels, float] = {}
    used: dict[str, float] = {}
    for (_, type_), count in held.items():
        used[type_] = used.get(type_, 0.0) + count
    for node in nodes:
        for state in ("held", "free", "down", "drained", "others"):
            gpus.setdefault((node.type, state), 0.0)
        for state in ("up", "down", "drained"):
            counted.setdefault((node.type, state), 0.0)
        state = "up" if node.up else "drained" if node.drained else "down"
        counted[node.type, state] += 1
        if node.up:
            gpus[node.type, "free"] += node.free
            gpus[node.type, "others"] += node.gpus - node.free
        else:
            gpus[node.type, state] += node.gpus
    for type_ in {type_ for type_, _ in gpus}:
        ours = min(used.get(type_, 0.0), gpus[type_, "others"])
        gpus[type_, "held"] = ours
        gpus[type_, "others"] -= ours
    return {f.GPUS.name: gpus, f.NODES.name: counted}


def fragmented_gauge(nodes: Iterable[NodeRow], widths: Mapping[int, int]) -> dict[Labels, float]:
    """Free GPUs on nodes that have fewer than min(d, size) of them, on average over the widths d of waiting jobs."""
    total = sum(widths.values())
    fragments: dict[Labels, float] = {}
    shapes: dict[tuple[str, int, int], int] = {}
    for node in nodes:
        fragments.setdefault((node.type,), 0.0)
        if node.up and node.free:
            shape = node.type, node.free, node.gpus
            shapes[shape] = shapes.get(shape, 0) + 1
    for (type_, free, size), count in shapes.items():
        too_wide = sum(jobs for width, jobs in widths.items() if free < min(width, size))
        fragments[(type_,)] += count * free * too_wide / total if total else 0.0
    return fragments


def share_gauges(
    nodes: Iterable[NodeRow],
    states: Mapping[tuple[str, str], int],
    weights: Mapping[str, float],
    held: Mapping[tuple[str, str], int],
    labels: TenantLabels,
) -> dict[str, dict[Labels, float]]:
    """What tenants hold, are entitled to and borrow, by type. A tenant counts while it has jobs that wait or hold GPUs."""
    up: dict[str, int] = {}
    for node in nodes:
        up[node.type] = up.get(node.type, 0) + (node.gpus if node.up else 0)
    holding = {tenant for tenant, _ in held}
    active = {tenant for (tenant, phase), count in states.items() if phase == "waiting" and count} | holding
    total = sum(weights.get(tenant, 1.0) for tenant in active)
    tenants = sorted({tenant for tenant, _ in states})
    entitled = {
        (tenant, type_): gpus * weights.get(tenant, 1.0) / total if tenant in active else 0.0
        for tenant in tenants
        for type_, gpus in up.items()
    }

    def labelled(values: Mapping[tuple[str, str], float]) -> dict[Labels, float]:
        return summed(((labels.label(tenant), type_), value) for (tenant, type_), value in values.items())

    has = {key: float(held.get(key, 0)) for key in entitled}
    return {
        f.TENANT_HELD.name: labelled(has),
        f.TENANT_ENTITLED.name: labelled(entitled),
        f.TENANT_BORROWED.name: labelled({key: max(has[key] - entitled[key], 0.0) for key in entitled}),
    }
