"""The pool of nodes: their free GPUs while jobs are placed one by one."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Sequence

import numpy as np

from fairlead.model.allocation import NOWHERE, Spot
from fairlead.model.arrays import IntArray
from fairlead.model.cluster import Cluster
from fairlead.numerics.spots import fits


class Pool:
    """The free GPUs (n) of a cluster; GPUs that are taken are not available to the next caller.

    Nodes of a type are grouped by the number of GPUs left, so that the best fit needs no search.
    """

    def __init__(self, cluster: Cluster, free: IntArray) -> None:
        self.free: list[int] = free.tolist()  # n
        self._cluster = cluster
        self._shelves: dict[int, list[list[int]]] = {}  # t -> GPUs left -> nodes, ascending

    def has(self, spot: Spot) -> bool:
        return fits(spot, self.free)

    def take(self, spot: Spot) -> None:
        for node, gpus in spot:
            self._set(node, self.free[node] - gpus)

    def give_back(self, spot: Spot) -> None:
        for node, gpus in spot:
            self._set(node, self.free[node] + gpus)

    def place(self, type_: int, gpus: int, last: Spot = NOWHERE) -> Spot:
        """Take the fullest node that fits; else the emptiest nodes one after another, and the best fit for the rest.

        Nodes of `last` are preferred among equally full ones. NOWHERE if the type has too few free GPUs.
        """
        shelves = self._shelves_of(type_)
        node = self._best_fit(shelves, gpus, last)
        if node is not None:
            self._set(node, self.free[node] - gpus)
            return ((node, gpus),)
        if gpus > self._left(shelves):
            return NOWHERE
        spot: list[tuple[int, int]] = []
        while gpus:
            node = self._best_fit(shelves, gpus, last)
            if node is None:
                node = self._emptiest(shelves, last)
            count = min(gpus, self.free[node])
            self._set(node, self.free[node] - count)
            spot.append((node, count))
            gpus -= count
        return tuple(sorted(spot))

    def place_evenly(self, type_: int, gpus: int, nodes: int, last: Spot = NOWHERE) -> Spot:
        """Take equally many GPUs on exactly this many nodes, the fullest that fit; NOWHERE if there are too few.

        Nodes of `last` are preferred among equally full ones.
        """
        each, before = gpus // nodes, {node for node, _ in last}
        fit = [n for n in self._cluster.nodes_of[type_] if self.free[n] >= each]
        if len(fit) < nodes:
            return NOWHERE
        fit.sort(key=lambda n: (self.free[n], n not in before, n))
        spot = tuple(sorted((node, each) for node in fit[:nodes]))
        self.take(spot)
        return spot

    def place_alone(self, type_: int, gpus: int) -> Spot:
        """Take as few empty nodes as can hold the gang, with all their GPUs; NOWHERE if too few are empty."""
        nodes = [n for n in sorted(self._cluster.nodes_of[type_]) if self.free[n] == self._cluster.node_gpus[n]]
        nodes.sort(key=lambda n: -self.free[n])
        spot = list[tuple[int, int]]()
        for node in nodes:
            if gpus <= 0:
                break
            spot.append((node, min(gpus, self.free[node])))
            gpus -= self.free[node]
        if gpus > 0:
            return NOWHERE
        self.take(tuple((node, self.free[node]) for node, _ in spot))
        return tuple(sorted(spot))

    def scatter(self, type_: int, gpus: int) -> Spot:
        """Take GPUs one by one from the node with the most left, as if nodes did not matter."""
        shelves = self._shelves_of(type_)
        if gpus > self._left(shelves):
            return NOWHERE
        spot: dict[int, int] = {}
        for _ in range(gpus):
            node = self._emptiest(shelves, NOWHERE)
            self._set(node, self.free[node] - 1)
            spot[node] = spot.get(node, 0) + 1
        return tuple(sorted(spot.items()))

    def place_on_fewer(self, type_: int, gpus: int, nodes: int) -> Spot:
        """Like `place`, but NOWHERE unless that needs fewer than `nodes` nodes."""
        spot = self.place(type_, gpus)
        if len(spot) < nodes:
            return spot
        self.give_back(spot)
        return NOWHERE

    def _shelves_of(self, type_: int) -> list[list[int]]:
        shelves = self._shelves.get(type_)
        if shelves is None:
            nodes = sorted(self._cluster.nodes_of[type_])
            left = [self.free[node] for node in nodes]
            shelves = self._shelves[type_] = [[] for _ in range(max(left, default=0) + 1)]
            for node, count in zip(nodes, left, strict=True):
                if count > 0:
                    shelves[count].append(node)
        return shelves

    @staticmethod
    def _left(shelves: list[list[int]]) -> int:
        return sum(count * len(nodes) for count, nodes in enumerate(shelves))

    def _emptiest(self, shelves: list[list[int]], last: Spot) -> int:
        count = next(count for count in range(len(shelves) - 1, 0, -1) if shelves[count])
        return self._one_of(shelves, count, last)

    def _best_fit(self, shelves: list[list[int]], gpus: int, last: Spot) -> int | None:
        for count in range(gpus, len(shelves)):
            if shelves[count]:
                return self._one_of(shelves, count, last)
        return None

    def _one_of(self, shelves: list[list[int]], count: int, last: Spot) -> int:
        """A node with this many GPUs left."""
        first, type_of = shelves[count][0], self._cluster.type_of
        for node, _ in last:
            if self.free[node] == count and type_of[node] == type_of[first]:
                return node
        return first

    def _set(self, node: int, count: int) -> None:
        before, self.free[node] = self.free[node], count
        shelves = self._shelves.get(self._cluster.type_of[node])
        if shelves is None:
            return
        if before > 0:
            shelves[before].remove(node)
        while len(shelves) <= count:
            shelves.append([])
        if count > 0:
            insort(shelves[count], node)


def neighbour_spots(nodes: Sequence[int], free: IntArray, gpus: int) -> list[Spot]:
    """Spots on neighbouring `nodes`, as few as can hold `gpus`, filled one after another from either end."""
    idle = free[list(nodes)]
    reach = np.concatenate(([0], np.cumsum(idle)))
    for count in range(1, len(nodes) + 1):
        first = np.flatnonzero(reach[count:] - reach[:-count] >= gpus)
        if first.size:
            rows = [list(nodes[at : at + count]) for at in first.tolist()]
            return list(dict.fromkeys(fill_nodes(way, free, gpus) for row in rows for way in (row, row[::-1])))
    return []


def fill_nodes(nodes: Sequence[int], free: IntArray, gpus: int) -> Spot:
    """The spot that takes what the nodes have left, one after another, up to `gpus`."""
    spot = []
    for node in nodes:
        count = min(gpus, int(free[node]))
        spot.append((node, count))
        gpus -= count
    return tuple(sorted(piece for piece in spot if piece[1]))


def free_after(free: IntArray, taken: Iterable[Spot] = (), given_back: Iterable[Spot] = ()) -> IntArray:
    """n  Free GPUs after some spots are taken and others are returned."""
    left: list[int] = free.tolist()  # single numbers of an array are slow to change
    for spot in taken:
        for node, gpus in spot:
            left[node] -= gpus
    for spot in given_back:
        for node, gpus in spot:
            left[node] += gpus
    return np.array(left, dtype=np.int64)
