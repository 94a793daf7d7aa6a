"""A mixed cluster: nodes, each with GPUs of one type."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fairlead.model.allocation import Spot
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.errors import InputError
from fairlead.model.gpus import MEMORY_GIB, is_gpu_name
from fairlead.model.words import did_you_mean

NODE_GPUS = 4  # GPUs per node in the short form `v100:36`, unless a suffix such as `x8` sets it
MOST_NODES = 1_000_000
MOST_GPUS_PER_NODE = 1024


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """`count` identical nodes, called `<name or gpu>-1`, `-2`, ..., or exactly as `hosts` lists them."""

    count: int
    gpu: str
    gpus: int
    memory_gib: float | None = None
    name: str | None = None
    hosts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not is_gpu_name(self.gpu):
            raise InputError(f'GPU type "{self.gpu}" is not a name; write it in lower case, such as v100 or a100-80')
        _check_whole("count", self.count, MOST_NODES)
        _check_whole("gpus", self.gpus, MOST_GPUS_PER_NODE)
        if self.hosts and (self.name is not None or len(self.hosts) != self.count):
            raise InputError("hosts are the names of all nodes of a group; leave out count and name")
        if self.memory_gib is None and self.gpu not in MEMORY_GIB:
            raise InputError(
                f'the memory of GPU type "{self.gpu}" is unknown (if the name is right, add memory_gib to its nodes '
                "in a cluster file); "
                f"{did_you_mean(self.gpu, MEMORY_GIB)}"
            )
        if self.memory_gib is not None and not (math.isfinite(self.memory_gib) and 0 < self.memory_gib <= 1e5):
            raise InputError(f"memory_gib is {self.memory_gib}; wanted a number above 0")

    @property
    def memory(self) -> float:
        return MEMORY_GIB[self.gpu] if self.memory_gib is None else self.memory_gib


@dataclass(frozen=True, slots=True)
class Cluster:
    """The cluster as columns by type (t) and by node (n). A change makes a new value.

    Positions are permanent: nodes and types are only appended, and a node that was removed keeps its position without
    GPUs, so that references by position stay valid. A type is a GPU model with a memory size: the same model with two
    memory sizes is two types, `v100` and `v100-32gib`, which share the speeds of `gpu[t]`.
    """

    types: tuple[str, ...]  # t
    gpu: tuple[str, ...]  # t  name under which speeds are known
    memory_gib: FloatArray  # t
    nodes: tuple[str, ...]  # n
    node_type: IntArray  # n
    node_gpus: IntArray  # n
    type_of: tuple[int, ...] = field(init=False)  # n  `node_type` as plain numbers, for single look-ups
    nodes_of: tuple[tuple[int, ...], ...] = field(init=False)  # t  nodes, the largest first
    capacity: IntArray = field(init=False)  # t  GPUs
    largest_node: IntArray = field(init=False)  # t  GPUs; 1 where no node is left, because GPUs are divided by it

    def __post_init__(self) -> None:
        capacity = np.bincount(self.node_type, weights=self.node_gpus, minlength=len(self.types)).astype(np.int64)
        largest = np.ones(len(self.types), dtype=np.int64)
        np.maximum.at(largest, self.node_type, self.node_gpus)
        object.__setattr__(self, "type_of", tuple(self.node_type.tolist()))
        object.__setattr__(self, "nodes_of", _largest_first(self.node_type, self.node_gpus, len(self.types)))
        object.__setattr__(self, "capacity", capacity)
        object.__setattr__(self, "largest_node", largest)
        for array in (self.memory_gib, self.node_type, self.node_gpus, capacity, largest):
            array.flags.writeable = False

    @property
    def total_gpus(self) -> int:
        return int(self.node_gpus.sum())

    def fewest_nodes(self, type_: int, gpus: int) -> int:
        """The number of nodes of the type, largest first, that hold these GPUs; one more than exist if too few."""
        sizes = self.node_gpus[list(self.nodes_of[type_])]
        return int(np.searchsorted(sizes.cumsum(), gpus)) + 1

    def gpus_by_type(self, spot: Spot) -> dict[int, int]:
        counts: dict[int, int] = {}
        for node, gpus in spot:
            t = self.type_of[node]
            counts[t] = counts.get(t, 0) + gpus
        return counts

    def compact_spot(self, gpus_by_type: Mapping[int, int]) -> Spot:
        """The fewest nodes that hold these GPUs on an empty cluster, largest first; capped where a type has too few."""
        spot: list[tuple[int, int]] = []
        for t, gpus in gpus_by_type.items():
            for node in self.nodes_of[t]:
                if gpus <= 0:
                    break
                spot.append((node, min(gpus, int(self.node_gpus[node]))))
                gpus -= spot[-1][1]
        return tuple(sorted(spot))


def build_cluster(groups: Sequence[NodeGroup]) -> Cluster:
    """The cluster with nodes in the order of the groups and types in the order in which they first appear."""
    if not groups:
        raise InputError("the cluster has no nodes; list at least one group such as {count: 2, gpu: v100, gpus: 4}")
    kinds: dict[tuple[str, float], int] = {}
    labels: list[str] = []
    names: list[str] = []
    taken: dict[str, int] = {}
    node_type: list[int] = []
    node_gpus: list[int] = []
    for group in groups:
        kind = (group.gpu, group.memory)
        if kind not in kinds:
            kinds[kind] = len(kinds)
            labels.append(group.gpu if group.gpu not in labels else f"{group.gpu}-{group.memory:g}gib")
        names += group.hosts or _numbered(group.name or labels[kinds[kind]], group.count, taken)
        node_type += [kinds[kind]] * group.count
        node_gpus += [group.gpus] * group.count
    if len(set(names)) != len(names):
        raise InputError(
            "two nodes of the cluster have the same name; give every group a different name, and list a host once"
        )
    return Cluster(
        types=tuple(labels),
        gpu=tuple(gpu for gpu, _ in kinds),
        memory_gib=np.array([memory for _, memory in kinds]),
        nodes=tuple(names),
        node_type=np.array(node_type, dtype=np.int64),
        node_gpus=np.array(node_gpus, dtype=np.int64),
    )


def _numbered(label: str, count: int, taken: dict[str, int]) -> list[str]:
    """The next names of nodes with this label; `taken` counts those before."""
    first = taken.get(label, 0) + 1
    taken[label] = first + count - 1
    return [f"{label}-{i}" for i in range(first, first + count)]


def with_node(cluster: Cluster, name: str, group: NodeGroup) -> Cluster:
    """The cluster with one more node, or with a removed node restored, perhaps with different GPUs."""
    if name in cluster.nodes and cluster.node_gpus[cluster.nodes.index(name)]:
        raise InputError(f'the cluster has a node "{name}" already; remove it first to change its GPUs')
    kinds = list(zip(cluster.gpu, cluster.memory_gib.tolist(), strict=True))
    kind = (group.gpu, group.memory)
    if kind not in kinds:
        label = group.gpu if group.gpu not in cluster.types else f"{group.gpu}-{group.memory:g}gib"
        cluster = replace(
            cluster,
            types=(*cluster.types, label),
            gpu=(*cluster.gpu, group.gpu),
            memory_gib=np.append(cluster.memory_gib, group.memory),
        )
        kinds.append(kind)
    if name not in cluster.nodes:
        cluster = replace(
            cluster,
            nodes=(*cluster.nodes, name),
            node_type=np.append(cluster.node_type, 0),
            node_gpus=np.append(cluster.node_gpus, 0),
        )
    return _with_gpus(cluster, cluster.nodes.index(name), kinds.index(kind), group.gpus)


def without_node(cluster: Cluster, node: int) -> Cluster:
    return _with_gpus(cluster, node, int(cluster.node_type[node]), 0)


def _with_gpus(cluster: Cluster, node: int, type_: int, gpus: int) -> Cluster:
    node_type, node_gpus = cluster.node_type.copy(), cluster.node_gpus.copy()
    node_type[node], node_gpus[node] = type_, gpus
    return replace(cluster, node_type=node_type, node_gpus=node_gpus)


def parse_short_form(text: str) -> Cluster:
    """The cluster `v100:36,p100:36x8`: GPUs by type, in nodes of 4 or the size after `x`; the last holds the rest."""
    groups: list[NodeGroup] = []
    for part in text.split(","):
        gpu, _, rest = part.strip().partition(":")
        total_text, _, size_text = rest.partition("x")
        try:
            total, size = int(total_text), int(size_text or NODE_GPUS)
        except ValueError:
            raise InputError(
                f'cluster "{text}": "{part}" is not TYPE:GPUS or TYPE:GPUSxNODESIZE, such as v100:36x8'
            ) from None
        _check_whole("gpus", total, MOST_NODES)
        _check_whole("node size", size, MOST_GPUS_PER_NODE)
        if total >= size:
            groups.append(NodeGroup(total // size, gpu.lower(), size))
        if total % size:
            groups.append(NodeGroup(1, gpu.lower(), total % size))
    return build_cluster(groups)


def _largest_first(node_type: IntArray, node_gpus: IntArray, types: int) -> tuple[tuple[int, ...], ...]:
    """t  Nodes that have GPUs, the largest first."""
    order = np.lexsort((-node_gpus, node_type))
    order = order[node_gpus[order] > 0]
    ends = np.searchsorted(node_type[order], np.arange(types + 1))
    return tuple(tuple(order[ends[t] : ends[t + 1]].tolist()) for t in range(types))


def _check_whole(name: str, value: int, most: int) -> None:
    if not 1 <= value <= most:
        raise InputError(f"{name} is {value}; wanted a whole number from 1 to {most}")
