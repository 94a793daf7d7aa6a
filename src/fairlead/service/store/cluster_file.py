"""The cluster file at a restart: its difference from the file of the previous start becomes requests.

Nodes that were added or removed while the service ran are left alone: changes by file and changes by command are both
kept. The last file is stored as cluster.json; without it, the cluster of the log's header was the last one.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from fairlead.engines.requests import AddNode, RemoveNode, Request
from fairlead.model.cluster import Cluster, NodeGroup
from fairlead.rounds.journal import Header, cluster_from_json, cluster_to_json
from fairlead.service.store.directory import StateDirectory, describe_differences, is_new, stored_header


@dataclass(frozen=True, slots=True)
class Difference:
    """`lines` are for the operator; `requests` bring the cluster in line with the file."""

    lines: tuple[str, ...]
    requests: tuple[Request, ...]


def difference(directory: StateDirectory, stored: Header, cluster: Cluster) -> Difference:
    before, now = _groups(last_cluster(directory, stored)), _groups(cluster)
    gone = [name for name, group in before.items() if now.get(name) != group]
    new = [name for name, group in now.items() if before.get(name) != group]
    requests: tuple[Request, ...] = (*(RemoveNode(name) for name in gone), *(AddNode(name, now[name]) for name in new))
    return Difference(
        tuple(describe_differences(last_cluster(directory, stored), cluster)) if requests else (), requests
    )


def remember(directory: StateDirectory, cluster: Cluster) -> None:
    unfinished = directory.cluster_file.with_suffix(".new")
    with unfinished.open("w", encoding="utf-8") as file:
        json.dump(cluster_to_json(cluster), file)
        file.flush()
        os.fsync(file.fileno())
    unfinished.rename(directory.cluster_file)


def known_cluster(state: Path) -> Cluster | None:
    """The cluster of the previous start; None if there was none."""
    directory = StateDirectory(state)
    if not state.exists() or is_new(directory):
        return None
    return last_cluster(directory, stored_header(directory))


def last_cluster(directory: StateDirectory, stored: Header) -> Cluster:
    if not directory.cluster_file.exists():
        return stored.cluster
    return cluster_from_json(json.loads(directory.cluster_file.read_text(encoding="utf-8")))


def _groups(cluster: Cluster) -> dict[str, NodeGroup]:
    """The nodes by name, each as a group of one."""
    return {
        name: NodeGroup(1, cluster.gpu[t], gpus, float(cluster.memory_gib[t]))
        for name, t, gpus in zip(cluster.nodes, cluster.type_of, cluster.node_gpus.tolist(), strict=True)
    }
