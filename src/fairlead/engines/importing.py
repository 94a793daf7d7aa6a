"""The nodes of an engine that knows them, as a cluster."""

from __future__ import annotations

from collections.abc import Mapping

from fairlead.model.cluster import Cluster, NodeGroup, build_cluster

ANY = "gpu"  # the alias that names GPUs whose type the engine does not know


def grouped(gpus: Mapping[str, tuple[str, int]]) -> Cluster:
    """The cluster of nodes with these types and numbers of GPUs. Nodes with the same ones become one group."""
    hosts: dict[tuple[str, int], list[str]] = {}
    for name, type_and_count in gpus.items():
        hosts.setdefault(type_and_count, []).append(name)
    return build_cluster(
        [NodeGroup(len(names), gpu, count, hosts=tuple(names)) for (gpu, count), names in hosts.items()]
    )
