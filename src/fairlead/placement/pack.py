"""Grants become nodes: a job stays where it is if it can, a gang goes on as few nodes as possible, best fit."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator

import numpy as np

from fairlead.model.allocation import NOWHERE, Grants, Spot
from fairlead.model.arrays import BoolArray, IntArray
from fairlead.model.errors import BrokenInvariantError
from fairlead.model.view import View
from fairlead.placement.moves import jobs_that_mix, pays


def pack(view: View, grants: Grants, pinned: BoolArray, scatter: bool = False) -> dict[int, Spot]:
    """New spots for the jobs (positions in the view) whose grant differs from what they hold; () = give all back.

    Gangs that lose speed over several nodes go first and those that lose none last (data- and tensor-parallel jobs before
    pipeline-parallel ones: ICS 2025), each wide ones first. Of equally good nodes a job gets those that it last ran on. A
    spread job that could now sit on fewer nodes moves there if that earns more than it costs while the job is sure to
    stay, the cheapest to move first; a pinned one, whose grant is what it holds, stays.
    """
    mixing = jobs_that_mix(grants)
    stays = _stays(view, grants, mixing)  # entries
    kept = grants.jobs[stays]
    leaves = view.held_gpus > 0  # j
    leaves[kept] = False
    leaving: list[int] = leaves.nonzero()[0].tolist()
    spread = [] if scatter else _spread(view, kept, pinned)
    if not leaving and not spread and np.count_nonzero(stays) == len(stays):
        return {}
    free: list[int] = view.node_free.tolist()  # n
    changed: dict[int, Spot] = dict.fromkeys(leaving, NOWHERE)
    for j in leaving:
        for node, count in view.spots[j]:
            free[node] += count
    pools: dict[int, _Pool] = {}

    def pool(t: int) -> _Pool:
        if t not in pools:
            pools[t] = _Pool(((view.cluster.node_type == t) & view.node_up).nonzero()[0].tolist(), free)
        return pools[t]

    for count, j, t in _in_order(view, grants, ~stays):
        spot = pool(t).scatter(count) if scatter else pool(t).take(count, view.last_spot(j))
        if len(spot) > 1 and j not in mixing and not view.rate_on(j, spot):
            pool(t).give_back(spot)  # it does not run spread like that: it waits for a better gap
            continue
        changed[j] = tuple(sorted((*changed[j], *spot))) if changed.get(j) else spot
    for j in sorted(mixing & changed.keys()):
        if changed[j] and not view.rate_on(j, changed[j]):
            for node, count in changed[j]:
                pool(int(view.cluster.node_type[node])).give_back(((node, count),))
            changed[j] = NOWHERE
    for j in sorted(spread, key=lambda j: float(view.restart_s[j])):
        here = pool(int(view.held_type[j]))
        better = here.take_if_fewer(int(view.held_gpus[j]), len(view.spots[j]))
        if better and pays(view.rate_on(j, view.spots[j]), view.rate_on(j, better), view.restart_s[j], view.round_s):
            changed[j] = better
        elif better:
            here.give_back(better)
    return changed


def _stays(view: View, grants: Grants, mixing: set[int]) -> BoolArray:
    """Entries of jobs that are granted just what they hold."""
    held = view.held_type[grants.jobs]
    stays: BoolArray = (held == grants.types) & (view.held_gpus[grants.jobs] == grants.gpus)
    if mixing:
        wanted: dict[int, dict[int, int]] = {j: {} for j in mixing}
        for entry, (j, t) in enumerate(zip(grants.jobs.tolist(), grants.types.tolist(), strict=True)):
            if j in mixing:
                wanted[j][t] = int(grants.gpus[entry])
        for j, types in wanted.items():
            stays[grants.jobs == j] = types == view.cluster.gpus_by_type(view.spots.get(j, NOWHERE))
    return stays


def _in_order(view: View, grants: Grants, which: BoolArray) -> Iterator[tuple[int, int, int]]:
    """(GPUs, job, type) of these entries: who minds being spread, then the wider, the earlier job, the earlier type."""
    gpus, jobs, types = grants.gpus[which], grants.jobs[which], grants.types[which]
    entries = list(zip(gpus.tolist(), jobs.tolist(), types.tolist(), strict=True))
    minds = np.fromiter((_minds(view, j, t, count) for count, j, t in entries), np.bool_, len(entries))
    order = np.lexsort((types, jobs, -gpus, ~minds))
    return (entries[entry] for entry in order.tolist())


def _minds(view: View, j: int, t: int, gpus: int) -> bool:
    """Whether such a gang is slower on two nodes than on one, had one so many GPUs."""
    return gpus > 1 and view.rate_at(j, t, gpus, 2) < view.rate_at(j, t, gpus, 1)


def _spread(view: View, kept: IntArray, pinned: BoolArray) -> list[int]:
    """Kept jobs that sit on more nodes of their type than they need, in arrival order."""
    several = kept[view.held_nodes[kept] > 1]
    if not several.size:
        return []
    several = several[(view.held_type[several] >= 0) & ~pinned[several]]
    fewest = -(-view.held_gpus[several] // view.cluster.largest_node[view.held_type[several]])
    spread: list[int] = np.sort(several[view.held_nodes[several] > fewest]).tolist()
    return spread


class _Pool:
    """Free GPUs on the nodes of one type, by how many a node has left."""

    def __init__(self, nodes: list[int], free: list[int]) -> None:
        self._free = {node: free[node] for node in nodes}
        self._nodes: list[list[int]] = [[] for _ in range(max(self._free.values(), default=0) + 1)]
        for node, count in self._free.items():
            self._nodes[count].append(node)

    def take(self, gpus: int, last: Spot = NOWHERE) -> Spot:
        """One node, the fullest that fits; else the emptiest nodes one after another, and best fit for the rest.

        Of equally full ones a node of `last`.
        """
        node = self._best_fit(gpus, last)
        if node is not None:
            self._set(node, self._free[node] - gpus)
            return ((node, gpus),)
        spot: list[tuple[int, int]] = []
        while gpus:
            node = self._best_fit(gpus, last)
            if node is None:
                node = self._emptiest(last)
            count = min(gpus, self._free[node])
            self._set(node, self._free[node] - count)
            spot.append((node, count))
            gpus -= count
        return tuple(sorted(spot))

    def scatter(self, gpus: int) -> Spot:
        """One GPU after another from the node with the most left, as if nodes did not matter."""
        spot: dict[int, int] = {}
        for _ in range(gpus):
            node = self._emptiest()
            self._set(node, self._free[node] - 1)
            spot[node] = spot.get(node, 0) + 1
        return tuple(sorted(spot.items()))

    def take_if_fewer(self, gpus: int, nodes: int) -> Spot | None:
        """Like take, but only where free GPUs alone allow fewer nodes."""
        if sum(self._free.values()) < gpus:
            return None
        spot = self.take(gpus)
        if len(spot) < nodes:
            return spot
        self.give_back(spot)
        return None

    def give_back(self, spot: Spot) -> None:
        for node, count in spot:
            self._set(node, self._free[node] + count)

    def _emptiest(self, last: Spot = NOWHERE) -> int:
        for count in range(len(self._nodes) - 1, 0, -1):
            if self._nodes[count]:
                return self._one_of(count, last)
        raise BrokenInvariantError("more GPUs were granted than the nodes of the type have free")

    def _best_fit(self, gpus: int, last: Spot) -> int | None:
        for count in range(gpus, len(self._nodes)):
            if self._nodes[count]:
                return self._one_of(count, last)
        return None

    def _one_of(self, count: int, last: Spot) -> int:
        """A node with so many GPUs left."""
        return next((node for node, _ in last if self._free.get(node) == count), self._nodes[count][0])

    def _set(self, node: int, count: int) -> None:
        self._nodes[self._free[node]].remove(node)
        self._free[node] = count
        while len(self._nodes) <= count:
            self._nodes.append([])
        insort(self._nodes[count], node)
