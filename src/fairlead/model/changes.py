"""Planned changes to a cluster: nodes that join, leave, or lend some of their GPUs to others."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from fairlead.model.cluster import Cluster, NodeGroup, with_node, without_node
from fairlead.model.errors import InputError
from fairlead.model.words import did_you_mean


class ChangeKind(StrEnum):
    ADD = "add"
    REMOVE = "remove"
    USABLE = "usable"


@dataclass(frozen=True, slots=True)
class Change:
    """At `time_s` the node joins with the GPUs of `group`, leaves, or has `usable` GPUs for our jobs."""

    time_s: float
    kind: ChangeKind
    node: str
    group: NodeGroup | None = None
    usable: int = 0


def clusters_over_time(cluster: Cluster, changes: Iterable[Change]) -> list[Cluster]:
    """The initial cluster and the cluster after each change, in order of time. Raises if a change does not apply."""
    clusters = [cluster]
    for change in in_order(changes):
        try:
            clusters.append(_after(clusters[-1], change))
        except InputError as error:
            raise InputError(f"cluster change at {change.time_s:g} s: {error}") from None
    return clusters


def in_order(changes: Iterable[Change]) -> list[Change]:
    """The changes sorted by time; changes at the same instant keep the order in which they are listed."""
    return sorted(changes, key=lambda change: change.time_s)


def _after(cluster: Cluster, change: Change) -> Cluster:
    if change.kind is ChangeKind.ADD:
        assert change.group is not None, "a node that joins has GPUs"
        return with_node(cluster, change.node, change.group)
    present = [name for name, gpus in zip(cluster.nodes, cluster.node_gpus.tolist(), strict=True) if gpus]
    if change.node not in present:
        raise InputError(f'there is no node "{change.node}"; {did_you_mean(change.node, present)}')
    node = cluster.nodes.index(change.node)
    if change.kind is ChangeKind.REMOVE:
        return without_node(cluster, node)
    if not 0 <= change.usable <= cluster.node_gpus[node]:
        raise InputError(f"{change.usable} GPUs of {change.node} cannot be usable; it has {cluster.node_gpus[node]}")
    return cluster
