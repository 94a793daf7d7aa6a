"""Limits of tenants by GPU type, applied to any policy's answer. Without limits nothing here runs."""

from __future__ import annotations

import numpy as np

from fairlead.model.allocation import NOWHERE, Grants, Spot
from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.model.quotas import Quotas
from fairlead.model.view import View
from fairlead.placement.pool import Pool, free_after
from fairlead.placement.refill import refill_order


def within_quotas(view: View, changed: dict[int, Spot], pinned: BoolArray) -> dict[int, Spot]:
    """The changes after every tenant's quotas are applied.

        held_ut <= most_ut                                                           every tenant u, type t
        sum_u held_ut + sum_{v != u} max(kept_vt - held_vt, 0) <= capacity_t         for u to take more of t

    Pinned jobs stay, then other running jobs stay, then jobs start, each in order of arrival and while the limits
    allow. A job whose new spot is denied keeps its old one if it can. Then tenants that hold less than their own
    quota reclaim it. GPUs that are still idle go to waiting jobs whose tenants may use them.
    """
    assert view.quotas is not None, "only called where there are limits"
    room = _QuotaRoom(view, view.quotas)
    spots = {j: spot for j, spot in view.spots.items() if j not in changed}
    running = sorted(spots, key=lambda j: (not pinned[j], j))
    starting = sorted(j for j, spot in changed.items() if spot)
    for j in running:
        if pinned[j] or room.has(j, spots[j]):
            room.take(j, spots[j])
    for j in starting:
        place = next((spot for spot in (changed[j], view.spots.get(j, NOWHERE)) if spot and room.has(j, spot)), NOWHERE)
        room.take(j, place)
    while _take_back(view, room, pinned):
        pass  # a gang that was displaced can leave its tenant below its own quota
    without = np.array([j for j in range(view.jobs) if j not in room.placed], dtype=np.int64)
    for j in refill_order(view, without, np.zeros(len(without))).tolist():
        room.place(j)
    before = view.spots
    return {
        j: room.placed.get(j, NOWHERE)
        for j in sorted(room.placed.keys() | before.keys())
        if room.placed.get(j, NOWHERE) != before.get(j, NOWHERE)
    }


def more_than(view: View, before: dict[int, Spot], after: dict[int, Spot]) -> Grants:
    """What the second set of changes grants beyond the first; negative where it grants less."""
    entries = []
    for j in sorted(before.keys() | after.keys()):
        here = view.spots.get(j, NOWHERE)
        old, new = view.cluster.gpus_by_type(before.get(j, here)), view.cluster.gpus_by_type(after.get(j, here))
        entries += [(j, t, new.get(t, 0) - old.get(t, 0)) for t in sorted(old.keys() | new.keys())]
    jobs, types, gpus = np.array([row for row in entries if row[2]], dtype=np.int64).reshape(-1, 3).T
    return Grants(jobs, types, gpus)


def _take_back(view: View, room: _QuotaRoom, pinned: BoolArray) -> bool:
    """Place waiting jobs, by arrival, within their tenants' own quotas, and displace borrowers where needed.

    Returns whether a job was placed. No tenant is placed beyond its own quota and none within it is displaced, so
    repeated calls terminate.
    """
    placed = False
    for j in range(view.jobs):
        if j in room.placed:
            continue
        for t in room.types_for(j):
            if room.is_own(j, t) and (room.place_on(j, t) or _reclaim(view, room, pinned, j, t)):
                placed = True
                break
    return placed


def _reclaim(view: View, room: _QuotaRoom, pinned: BoolArray, j: int, t: int) -> bool:
    """Displace borrowers of the type until the job fits: jobs that have not started yet first, then the newest."""
    u = int(view.tenant[j])
    lent = [
        v
        for v, spot in room.placed.items()
        if not pinned[v] and view.tenant[v] != u and t in view.cluster.gpus_by_type(spot)
    ]
    left: list[tuple[int, Spot]] = []
    for v in sorted(lent, key=lambda v: (room.placed[v] == view.spots.get(v), -v)):
        if not room.borrows(int(view.tenant[v]), t):
            continue
        left.append((v, room.leave(v)))
        if room.place_on(j, t):
            for w, spot in reversed(left):  # jobs whose GPUs were not needed after all
                if room.has(w, spot):
                    room.take(w, spot)
            return True
    for v, spot in reversed(left):
        room.take(v, spot)
    return False


class _QuotaRoom:
    """The pool of nodes with the limits of tenants, and which jobs have been placed there."""

    def __init__(self, view: View, quotas: Quotas) -> None:
        self._view, self._quotas = view, quotas
        whole = free_after(view.node_free, given_back=view.spots.values())
        self._pool = Pool(view.cluster, np.where(view.node_up, whole, 0))
        self._held: FloatArray = np.zeros_like(quotas.most)  # u,t  GPUs
        self._left: IntArray = view.capacity.copy()  # t  GPUs that no job holds
        self.placed: dict[int, Spot] = {}  # j

    def has(self, j: int, spot: Spot) -> bool:
        by_type = self._view.cluster.gpus_by_type(spot)
        return self._pool.has(spot) and all(self._may(j, t, gpus) for t, gpus in by_type.items())

    def take(self, j: int, spot: Spot) -> None:
        if spot:
            self._pool.take(spot)
            self._count(j, spot)

    def leave(self, j: int) -> Spot:
        """Remove the job and return its spot."""
        spot = self.placed.pop(j)
        self._pool.give_back(spot)
        self._add(j, spot, -1)
        return spot

    def is_own(self, j: int, t: int) -> bool:
        """Whether the job's tenant stays within its own quota of the type with this job."""
        u = self._view.tenant[j]
        return bool(self._held[u, t] + self._view.width[j] <= self._quotas.own[u, t])

    def borrows(self, u: int, t: int) -> bool:
        return bool(self._held[u, t] > self._quotas.own[u, t])

    def types_for(self, j: int) -> list[int]:
        """The types on which the job runs, the fastest first."""
        rate = self._view.rate[j]
        return [t for t in np.argsort(-rate, kind="stable").tolist() if rate[t] > 0]

    def place_on(self, j: int, t: int) -> bool:
        """Place the job on its current spot if that is free and of the type, else anywhere on the type."""
        here, width = self._view.spots.get(j, NOWHERE), int(self._view.width[j])
        if self._view.cluster.gpus_by_type(here) == {t: width} and self.has(j, here):
            self.take(j, here)
        elif self._may(j, t, width):
            self._count(j, self._place_where_it_runs(j, t, width))
        return j in self.placed

    def _place_where_it_runs(self, j: int, t: int, width: int) -> Spot:
        """Like a placer: a spot over several nodes on which the job does not run is no spot."""
        exact = int(self._view.exact_nodes[j])
        if exact:
            return self._pool.place_evenly(t, width, exact)
        spot = self._pool.place(t, width)
        if len(spot) > 1 and not self._view.rate_on(j, spot):
            self._pool.give_back(spot)
            return NOWHERE
        return spot

    def place(self, j: int) -> None:
        """Place the job on its current spot if that is free, else on its fastest type with room."""
        here = self._view.spots.get(j, NOWHERE)
        if here and self.has(j, here):
            self.take(j, here)
        else:
            any(self.place_on(j, t) for t in self.types_for(j))

    def _count(self, j: int, spot: Spot) -> None:
        if spot:
            self.placed[j] = spot
            self._add(j, spot, 1)

    def _add(self, j: int, spot: Spot, sign: int) -> None:
        for t, gpus in self._view.cluster.gpus_by_type(spot).items():
            self._held[self._view.tenant[j], t] += sign * gpus
            self._left[t] -= sign * gpus

    def _may(self, j: int, t: int, gpus: int) -> bool:
        u = int(self._view.tenant[j])
        may = self._quotas.may_hold(t, self._held[:, t], float(self._left[t]))
        return bool(self._held[u, t] + gpus <= may[u])
