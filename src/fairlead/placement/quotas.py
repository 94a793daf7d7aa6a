"""Limits of tenants by GPU type, held whatever the policy said. Without limits nothing here runs."""

from __future__ import annotations

import numpy as np

from fairlead.model.allocation import NOWHERE, Spot
from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.model.quotas import Quotas
from fairlead.model.view import View


def within_quotas(view: View, changed: dict[int, Spot], pinned: BoolArray) -> dict[int, Spot]:
    """What changes when every tenant keeps to its quotas.

        held_ut <= most_ut                                                           every tenant u, type t
        sum_u held_ut + sum_{v != u} max(kept_vt - held_vt, 0) <= capacity_t         for u to take more of t

    Pinned jobs stay, then those that run where they are stay, then who is to start starts, each in order of arrival and
    while the limits allow. A job whose new place is denied stays where it was if it can. GPUs that are then idle go
    to waiting jobs whose tenants may take them.
    """
    if view.quotas is None:
        return changed
    room = _Room(view, view.quotas)
    spots = {j: spot for j, spot in view.spots.items() if j not in changed}
    running = sorted(spots, key=lambda j: (not pinned[j], j))
    starting = sorted(j for j, spot in changed.items() if spot)
    kept: dict[int, Spot] = {}
    for j in running:
        if pinned[j] or room.has(j, spots[j]):
            room.take(j, spots[j])
            kept[j] = spots[j]
    for j in starting:
        place = next((spot for spot in (changed[j], view.spots.get(j, NOWHERE)) if spot and room.has(j, spot)), NOWHERE)
        room.take(j, place)
        kept[j] = place
    for j in range(view.jobs):
        if not kept.get(j, NOWHERE):
            here = view.spots.get(j, NOWHERE)
            kept[j] = here if here and room.has(j, here) else room.find(j)
            room.take(j, kept[j])
    return {j: spot for j, spot in kept.items() if spot != view.spots.get(j, NOWHERE)}


class _Room:
    """What is free while places are handed out one by one."""

    def __init__(self, view: View, quotas: Quotas) -> None:
        self._view, self._quotas = view, quotas
        self._node_type: list[int] = view.cluster.node_type.tolist()
        self._held: FloatArray = np.zeros_like(quotas.most)  # u,t  GPUs
        self._free: IntArray = view.node_free.copy()  # n
        for spot in view.spots.values():
            for node, count in spot:
                self._free[node] += count if view.node_up[node] else 0
        self._left: IntArray = view.capacity.copy()  # t  GPUs that nobody holds

    def has(self, j: int, spot: Spot) -> bool:
        return all(self._free[node] >= count for node, count in spot) and all(
            self._may(int(self._view.tenant[j]), t, gpus) for t, gpus in self._by_type(spot).items()
        )

    def take(self, j: int, spot: Spot) -> None:
        for node, count in spot:
            self._free[node] -= count
        for t, gpus in self._by_type(spot).items():
            self._held[self._view.tenant[j], t] += gpus
            self._left[t] -= gpus

    def find(self, j: int) -> Spot:
        """On its fastest type that has room: the fullest node that fits, else as few nodes as hold it."""
        width = int(self._view.width[j])
        for t in np.argsort(-self._view.rate[j], kind="stable").tolist():
            if self._view.rate[j, t] <= 0:
                break
            if self._left[t] >= width and self._may(int(self._view.tenant[j]), t, width):
                spot = self._on(t, width)
                if spot:
                    return spot
        return NOWHERE

    def _on(self, t: int, width: int) -> Spot:
        nodes = [n for n, type_ in enumerate(self._node_type) if type_ == t and self._free[n] > 0]
        fitting = [n for n in nodes if self._free[n] >= width]
        if fitting:
            return ((min(fitting, key=lambda n: (self._free[n], n)), width),)
        spot: list[tuple[int, int]] = []
        for n in sorted(nodes, key=lambda n: (-self._free[n], n)):
            count = min(int(self._free[n]), width)
            spot.append((n, count))
            width -= count
            if not width:
                return tuple(sorted(spot))
        return NOWHERE

    def _may(self, u: int, t: int, gpus: int) -> bool:
        waiting_for_owner = np.maximum(self._quotas.kept[:, t] - self._held[:, t], 0)
        others = float(waiting_for_owner.sum() - waiting_for_owner[u])
        return bool(self._held[u, t] + gpus <= self._quotas.most[u, t] and gpus + others <= self._left[t])

    def _by_type(self, spot: Spot) -> dict[int, int]:
        gpus: dict[int, int] = {}
        for node, count in spot:
            gpus[self._node_type[node]] = gpus.get(self._node_type[node], 0) + count
        return gpus
