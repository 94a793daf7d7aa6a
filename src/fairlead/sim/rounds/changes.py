"""Planned changes of the simulated cluster: nodes join, leave, and lend GPUs to others."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fairlead.model.changes import Change, ChangeKind, in_order
from fairlead.model.events import NodeAdded, NodeRemoved, NodeUsable
from fairlead.sim.truth import Truth


class Changes:
    """The remaining changes of a plan. Each change also updates the cluster of the truth."""

    def __init__(self, changes: Sequence[Change], since_s: float = -math.inf) -> None:
        self._left = [change for change in in_order(changes) if change.time_s > since_s]

    @property
    def next_s(self) -> float:
        return self._left[0].time_s if self._left else math.inf

    def pop(self, truth: Truth) -> NodeAdded | NodeRemoved | NodeUsable:
        change = self._left.pop(0)
        if change.kind is ChangeKind.ADD:
            assert change.group is not None, "a node that joins has GPUs"
            truth.add_node(change.node, change.group)
            group = change.group
            return NodeAdded(change.time_s, change.node, group.gpu, group.gpus, group.memory)
        node = truth.cluster.nodes.index(change.node)
        if change.kind is ChangeKind.REMOVE:
            truth.remove_node(node)
            return NodeRemoved(change.time_s, node)
        truth.usable[node] = change.usable
        return NodeUsable(change.time_s, node, change.usable)
