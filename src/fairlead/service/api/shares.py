"""The GPUs that each tenant holds and those that its weight entitles it to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fairlead.service.api.documents import TenantShare
from fairlead.service.store.rows import NodeRow, TenantTerms, TenantUse


def tenant_shares(
    nodes: Sequence[NodeRow],
    tenants: Mapping[str, TenantTerms],
    uses: Mapping[str, TenantUse],
    spots: Sequence[tuple[str, Mapping[str, int]]],
) -> list[TenantShare]:
    """One row per tenant; `spots` are (tenant, GPUs by node) of every job that holds some.

    The four were read one after another, so `tenants` may lack a tenant whose first job arrived in between.
    """
    names = sorted({*tenants, *uses, *(owner for owner, _ in spots)})
    rows = {name: tenants.get(name, TenantTerms(name)) for name in names}
    use = {name: uses.get(name, TenantUse()) for name in names}
    up, held = gpus_up(nodes), _held(nodes, names, spots)
    active = {name for name in names if use[name].waiting + use[name].running}
    total = sum(rows[name].weight for name in active)
    return [
        TenantShare(
            tenant=name,
            weight=rows[name].weight,
            waiting=use[name].waiting,
            running=use[name].running,
            held=held[name],
            entitled={type_: gpus * rows[name].weight / total if name in active else 0.0 for type_, gpus in up.items()},
            gpu_hours=use[name].gpu_hours,
        )
        for name in names
    ]


def gpus_up(nodes: Iterable[NodeRow]) -> dict[str, int]:
    """GPUs by type on nodes that are up; every type of the cluster has an entry."""
    up: dict[str, int] = {}
    for node in nodes:
        up[node.type] = up.get(node.type, 0) + (node.gpus if node.up else 0)
    return up


def _held(
    nodes: Iterable[NodeRow], names: Iterable[str], spots: Iterable[tuple[str, Mapping[str, int]]]
) -> dict[str, dict[str, int]]:
    """Held GPUs by tenant and type."""
    type_of = {node.name: node.type for node in nodes}
    held: dict[str, dict[str, int]] = {name: {} for name in names}
    for owner, spot in spots:
        row = held[owner]
        for node, count in spot.items():
            if node in type_of:  # a node that joined in between is not
                row[type_of[node]] = row.get(type_of[node], 0) + count
    return held
