"""The nodes in the folded state: which are up, how many of their GPUs our jobs may use, and how many are free."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np

from fairlead.model.allocation import Spot
from fairlead.model.arrays import BoolArray, IntArray
from fairlead.model.cluster import Cluster, NodeGroup, with_node, without_node
from fairlead.model.errors import BrokenInvariantError
from fairlead.model.events import NodeAdded, NodeDown, NodeRemoved, NodeUp, NodeUsable

NodeEvent = NodeDown | NodeUp | NodeUsable | NodeAdded | NodeRemoved


_FEW = 64  # spots that are changed one by one, because columns of few numbers are slow


class Nodes:
    """The nodes of a state, mutable like it. Views share `up` and `capacity`, so these are replaced, never written to.

    0 <= held <= usable <= size holds for every node: an engine reports jobs as lost before it takes their GPUs away.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.first = cluster  # before any change
        self.cluster = cluster
        self.up: BoolArray = np.ones(len(cluster.nodes), dtype=np.bool_)
        self.usable: IntArray = cluster.node_gpus.copy()  # n  GPUs that our jobs may use; other users hold the rest
        self.free: IntArray = self.usable.copy()  # n  usable GPUs that no job holds, whether the node is up or not
        self.capacity: IntArray = cluster.capacity  # t  usable GPUs on nodes that are up
        self.peak: IntArray = cluster.capacity  # t  the largest number of GPUs so far, up or down
        self.up_gpus = cluster.total_gpus  # usable GPUs on nodes that are up
        self.types: list[int] = cluster.node_type.tolist()  # n
        self.up.flags.writeable = False

    def fold(self, event: NodeEvent) -> int:
        """Apply the event and return its node."""
        if isinstance(event, NodeAdded):
            self.add(event.name, NodeGroup(1, event.gpu, event.gpus, event.memory_gib))
            return self.cluster.nodes.index(event.name)
        if isinstance(event, NodeRemoved):
            self.remove(event.node)
        elif isinstance(event, NodeUsable):
            self.set_usable(event.node, event.gpus)
        else:
            self.set_up(event.node, up=isinstance(event, NodeUp))
        return event.node

    def set_up(self, node: int, *, up: bool) -> None:
        if not self.cluster.node_gpus[node]:
            raise BrokenInvariantError(f"node {self.cluster.nodes[node]} has left the cluster")
        if self.up[node] == up:
            raise BrokenInvariantError(f"node {self.cluster.nodes[node]} is {'up' if up else 'down'} already")
        self.up = self.up.copy()
        self.up[node] = up
        self._count()

    def set_usable(self, node: int, gpus: int) -> None:
        name, size = self.cluster.nodes[node], int(self.cluster.node_gpus[node])
        held = int(self.usable[node] - self.free[node])
        if not held <= gpus <= size:
            raise BrokenInvariantError(
                f"{gpus} GPUs of node {name} cannot be usable: jobs hold {held} of the {size} that it has"
            )
        self.usable[node], self.free[node] = gpus, gpus - held
        self._count()

    def add(self, name: str, group: NodeGroup) -> None:
        """Add a node at a new last position, or restore a removed node at its old one."""
        self.cluster = with_node(self.cluster, name, group)
        node = self.cluster.nodes.index(name)
        new = len(self.cluster.nodes) - len(self.up)
        self.usable, self.free = np.pad(self.usable, (0, new)), np.pad(self.free, (0, new))
        self.usable[node] = self.free[node] = group.gpus
        self.up = np.pad(self.up, (0, new))
        self.up[node] = True
        self._count()

    def remove(self, node: int) -> None:
        name, held = self.cluster.nodes[node], int(self.usable[node] - self.free[node])
        if not self.cluster.node_gpus[node]:
            raise BrokenInvariantError(f"node {name} has left already")
        if held:
            raise BrokenInvariantError(f"node {name} cannot leave while jobs hold {held} of its GPUs")
        self.cluster = without_node(self.cluster, node)
        self.usable[node] = self.free[node] = 0
        self.up = self.up.copy()
        self.up[node] = False
        self._count()

    def take(self, spots: Sequence[Spot]) -> None:
        self._add_free(spots, -1)
        if self.free.min() < 0:
            crowded = self.cluster.nodes[int(self.free.argmin())]
            raise BrokenInvariantError(f"more GPUs of node {crowded} are held than it has")

    def give_back(self, spots: Sequence[Spot]) -> None:
        self._add_free(spots, 1)

    def restore(self, cluster: Cluster, up: BoolArray, usable: IntArray, free: IntArray, peak: IntArray) -> None:
        """Replace everything by stored values."""
        self.cluster, self.up, self.usable, self.free, self.peak = cluster, up, usable, free, peak
        self._count()

    def _add_free(self, spots: Sequence[Spot], sign: int) -> None:
        if len(spots) <= _FEW:
            for spot in spots:
                for node, count in spot:
                    self.free[node] += sign * count
            return
        nodes, counts = np.array(list(chain.from_iterable(spots))).T
        np.add.at(self.free, nodes, sign * counts)

    def _count(self) -> None:
        self.types = self.cluster.node_type.tolist()
        new = len(self.cluster.types) - len(self.peak)
        self.peak = np.maximum(np.pad(self.peak, (0, new)), self.cluster.capacity)
        there = np.where(self.up, self.usable, 0)
        self.capacity = np.bincount(self.cluster.node_type, there, len(self.cluster.types)).astype(np.int64)
        self.up_gpus = int(there.sum())
        self.up.flags.writeable = self.capacity.flags.writeable = False
