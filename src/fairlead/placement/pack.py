"""Grants become nodes: a job stays where it is if it can, a gang goes on as few nodes as possible, best fit."""

from __future__ import annotations

from bisect import insort

import numpy as np

from fairlead.model.allocation import Spot
from fairlead.model.arrays import BoolArray, IntArray
from fairlead.model.errors import BrokenInvariantError
from fairlead.model.view import View
from fairlead.placement.moves import held_by


def pack(view: View, gpus: IntArray, pinned: BoolArray, scatter: bool = False) -> dict[int, Spot]:
    """New spots for the jobs (positions in the view) whose grant differs from what they hold; () = give all back.

    Wide gangs first. A spread job that could now sit on fewer nodes moves there if the next round earns more than the
    move costs; a pinned one, whose grant is what it holds, stays.
    """
    running = np.flatnonzero(view.held_gpus)
    stays = _kept(view, gpus, running)
    wanted, types = np.nonzero(gpus)
    if stays.all() and len(wanted) == len(running) and not _spread(view, running[~pinned[running]]):
        return {}
    kept = np.zeros(view.jobs, dtype=np.bool_)
    kept[running[stays]] = True
    free = view.node_free.copy()  # n
    changed: dict[int, Spot] = {}
    for j in running[~stays].tolist():
        changed[j] = ()
        for node, count in view.spots[j]:
            free[node] += count
    free[~view.node_up] = 0
    pools: dict[int, _Pool] = {}

    def pool(t: int) -> _Pool:
        if t not in pools:
            pools[t] = _Pool(np.flatnonzero(view.cluster.node_type == t), free)
        return pools[t]

    fresh = np.flatnonzero(~kept[wanted])
    wanted, types = wanted[fresh], types[fresh]
    counts = gpus[wanted, types]
    widest_first = np.argsort(-counts, kind="stable")
    for j, t, count in np.stack((wanted, types, counts))[:, widest_first].T.tolist():
        spot = pool(t).scatter(count) if scatter else pool(t).take(count)
        if len(spot) > 1 and count == gpus[j].sum() and not view.rate_at(j, t, count, len(spot)):
            pool(t).give_back(spot)  # it does not run spread like that: it waits for a better gap
            continue
        changed[j] = tuple(sorted((*changed[j], *spot))) if changed.get(j) else spot
    for j in [] if scatter else _spread(view, running[stays & ~pinned[running]]):
        here = pool(int(view.held_type[j]))
        better = here.take_if_fewer(int(view.held_gpus[j]), len(view.spots[j]))
        if better and _worth_moving(view, j, len(better)):
            changed[j] = better
        elif better:
            here.give_back(better)
    return changed


def _kept(view: View, gpus: IntArray, running: IntArray) -> BoolArray:
    """Which of the running jobs are granted just what they hold."""
    grant, held, width = gpus[running], view.held_type[running], view.held_gpus[running]
    one_type = held >= 0
    there = grant[np.arange(len(running)), held]  # -1 and -2 pick a wrong column, which `one_type` undoes
    kept: BoolArray = one_type & (there == width) & (grant.sum(axis=1) == width)
    if not one_type.all():
        mine = held_by(view, view.held_type < 0)[running]
        kept |= ~one_type & (mine == grant).all(axis=1)
    return kept


def _spread(view: View, kept: IntArray) -> list[int]:
    """Kept jobs that sit on more nodes of their type than they need, in arrival order."""
    wide = kept[(view.held_gpus[kept] > 1) & (view.held_type[kept] >= 0)]
    if not wide.size:
        return []
    fewest = -(-view.held_gpus[wide] // view.cluster.largest_node[view.held_type[wide]])
    return [j for j, least in zip(wide.tolist(), fewest.tolist(), strict=True) if len(view.spots[j]) > least]


def _worth_moving(view: View, j: int, nodes: int) -> bool:
    t, width = int(view.held_type[j]), int(view.held_gpus[j])
    now, then = view.rate_at(j, t, width, len(view.spots[j])), view.rate_at(j, t, width, nodes)
    return then * (view.round_s - float(view.restart_s[j])) > now * view.round_s


class _Pool:
    """Free GPUs on the nodes of one type, by how many a node has left."""

    def __init__(self, nodes: IntArray, free: IntArray) -> None:
        self._free: dict[int, int] = dict(zip(nodes.tolist(), free[nodes].tolist(), strict=True))
        self._nodes: list[list[int]] = [[] for _ in range(max(self._free.values(), default=0) + 1)]
        for node, count in self._free.items():
            self._nodes[count].append(node)

    def take(self, gpus: int) -> Spot:
        """One node, the fullest that fits; else the emptiest nodes one after another, and best fit for the rest."""
        spot: list[tuple[int, int]] = []
        while gpus:
            node = self._best_fit(gpus)
            if node is None:
                node = self._emptiest()
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

    def _emptiest(self) -> int:
        for nodes in reversed(self._nodes[1:]):
            if nodes:
                return nodes[0]
        raise BrokenInvariantError("more GPUs were granted than the nodes of the type have free")

    def _best_fit(self, gpus: int) -> int | None:
        for nodes in self._nodes[gpus:]:
            if nodes:
                return nodes[0]
        return None

    def _set(self, node: int, count: int) -> None:
        self._nodes[self._free[node]].remove(node)
        self._free[node] = count
        while len(self._nodes) <= count:
            self._nodes.append([])
        insort(self._nodes[count], node)
