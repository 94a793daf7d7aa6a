"""A limit on what pre-emption costs, for any policy's answer: which running jobs may stop for which starts.

    sum of the costs of an hour <= limit,     cost of a job that stops or moves = its GPUs x its restart cost

both in all and by tenant. So that no gang waits forever, one start may cost more than the limit if nothing was charged
in the hour before; and what the start that has been held back longest lacks is reserved for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from fairlead.model.allocation import NOWHERE, Spot
from fairlead.model.arrays import BoolArray, FloatArray
from fairlead.model.pre_emption import PreemptionLimits
from fairlead.model.view import View
from fairlead.placement.pool import Pool
from fairlead.placement.shapes import refill_idle


class PreemptionBudget:
    """What pre-emption has cost in the last hour, with the decision so far. Scopes (s): each tenant, then all."""

    def __init__(self, view: View, limits: PreemptionLimits) -> None:
        tenants = len(view.tenant_weight)
        self._tenant = view.tenant
        self._cost: FloatArray = view.held_gpus * view.restart_s  # j  GPU-seconds
        self._closed: BoolArray = np.zeros(tenants + 1, dtype=np.bool_)  # s  reserved for an earlier start
        self.most: FloatArray = np.append(np.full(tenants, limits.tenant_gpu_s), limits.gpu_s)  # s
        self.spent: FloatArray = np.zeros(tenants + 1)  # s
        for _, tenant, gpu_s in view.pre_empted:
            self.spent[[tenant, -1]] += gpu_s

    def holds(self, rows: Iterable[int]) -> bool:
        """Whether all limits hold if these jobs stop."""
        need = self._need(rows)
        return bool(((self.spent + need <= self.most) | (need == 0)).all())

    def lacks(self, rows: Iterable[int]) -> BoolArray:
        """s  Where these jobs may not stop now. A scope in which nothing was charged lets any start through."""
        need = self._need(rows)
        beyond = (self.spent + need > self.most) & (self.spent > 0)
        return np.asarray((need > 0) & (beyond | (self._closed & np.isfinite(self.most))))

    def charge(self, rows: Iterable[int]) -> None:
        self.spent += self._need(rows)

    def close(self, scopes: BoolArray) -> None:
        """Charge nothing more to these scopes."""
        self._closed |= scopes

    def _need(self, rows: Iterable[int]) -> FloatArray:
        jobs = np.fromiter(rows, dtype=np.int64)
        need = np.zeros_like(self.spent)
        np.add.at(need, self._tenant[jobs], self._cost[jobs])
        need[-1] = self._cost[jobs].sum()
        return need


def within_limits(
    view: View, changed: Mapping[int, Spot], order: Sequence[int], budget: PreemptionBudget
) -> tuple[dict[int, Spot], list[BoolArray]]:
    """The changes that the budget has room for, and for each waiting job that is held back the scopes that lack something.

    `order` has the rows that start or move, the most urgent first. A job stops only for a start that needs its GPUs, or
    to move. A job that waits reserves what it lacks; one that only moves does not. GPUs that stay idle because of all
    this go to jobs that wait.
    """
    room, lacking = _RoomAfterStarts(view, changed), list[BoolArray]()
    for row in order:
        after = room.after_start_of(row)
        stops = after.left - room.left
        lacks = budget.lacks(stops)
        if not lacks.any():
            budget.charge(stops)
            room = after
        elif not view.held_gpus[row]:
            lacking.append(lacks)
            budget.close(lacks)
    allowed = {j: changed[j] if j in room.started else NOWHERE for j in sorted(room.started | room.left)}
    refill_idle(view, Pool(view.cluster, np.array(room.free)), allowed)
    return {j: spot for j, spot in sorted(allowed.items()) if spot != view.spots.get(j, NOWHERE)}, lacking


class _RoomAfterStarts:
    """Free GPUs of nodes after some of the starts of a decision, and the jobs that left their GPUs for them."""

    def __init__(self, view: View, changed: Mapping[int, Spot]) -> None:
        self._view, self._changed = view, changed
        self.free: list[int] = view.node_free.tolist()  # n
        self.left = set[int]()
        self.started = set[int]()
        self._leaving: dict[int, list[int]] = {}  # node -> rows, the first to leave first
        leaving = [j for j in changed if view.held_gpus[j]]
        for j in sorted(leaving, key=lambda j: (bool(changed[j]), -float(view.held_since_s[j]), -j)):
            for node, _ in view.spots[j]:
                self._leaving.setdefault(node, []).append(j)

    def after_start_of(self, row: int) -> _RoomAfterStarts:
        """The room after this start and those of the jobs that have to move for it."""
        after = object.__new__(_RoomAfterStarts)
        after._view, after._changed, after._leaving = self._view, self._changed, self._leaving
        after.free, after.left, after.started = self.free.copy(), self.left.copy(), self.started.copy()
        after._start(row)
        return after

    def _start(self, row: int) -> None:
        starts = [row]
        while starts:
            j = starts.pop()
            if j in self.started:
                continue
            self.started.add(j)
            self._leave(j)
            for node, count in self._changed[j]:
                for other in self._leaving.get(node, ()):
                    if self.free[node] >= count:
                        break
                    self._leave(other)
                    if self._changed[other]:
                        starts.append(other)
                self.free[node] -= count

    def _leave(self, j: int) -> None:
        if j in self.left:
            return
        spot = self._view.spots.get(j, NOWHERE)
        for node, count in spot:
            self.free[node] += count
        if spot:
            self.left.add(j)
