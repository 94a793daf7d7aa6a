"""Stability: what may stay, stays. A job keeps its GPUs for a while, and a move has to earn its cost."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fairlead.model.allocation import NOWHERE, Spot
from fairlead.model.arrays import BoolArray, IntArray
from fairlead.model.view import View


def settle(view: View, gpus: IntArray, order: IntArray, pinned: BoolArray) -> IntArray:
    """Grants j,t in which pinned jobs keep what they hold; what no longer fits gives way, last in `order` first."""
    if not pinned.any():
        return gpus
    settled = held_by(view, pinned)
    free = view.capacity - settled.sum(axis=0)  # t
    for j in order.tolist():
        if not pinned[j] and (gpus[j] <= free).all():
            settled[j] = gpus[j]
            free -= gpus[j]
    return settled


def settle_spots(view: View, spots: Sequence[Spot], pinned: BoolArray) -> dict[int, Spot]:
    """The spots that change. Pinned jobs keep theirs; who does not fit beside them stays put if it can, else waits."""
    wanted = {j: spot for j, spot in enumerate(spots) if spot != view.spots.get(j, NOWHERE) and not pinned[j]}
    if not pinned.any():
        return wanted
    free = view.node_free.copy()  # n
    for j in wanted:
        _take(free, view.spots.get(j, NOWHERE), -1)
    changed: dict[int, Spot] = {}
    for j, spot in wanted.items():
        if all(free[node] >= count for node, count in spot):
            changed[j] = spot
            _take(free, spot)
    for j in sorted(wanted.keys() & view.spots.keys() - changed.keys()):
        here = view.spots[j]
        if all(free[node] >= count for node, count in here):
            _take(free, here)
        else:
            changed[j] = NOWHERE
    return changed


def _take(free: IntArray, spot: Spot, sign: int = 1) -> None:
    for node, count in spot:
        free[node] -= sign * count


def drop_idle_moves(view: View, gpus: IntArray) -> IntArray:
    """A job that would change type for less than the move costs stays, if its old GPUs are still free.

    What is earned is counted over one round, the time for which the grant is certain.
    """
    running = np.flatnonzero(view.held_type >= 0)
    grant = gpus[running]  # rows of running jobs
    new = grant.argmax(axis=1)
    old, width = view.held_type[running], view.held_gpus[running]
    moving = (new != old) & (grant.max(axis=1, initial=0) == width) & (grant.sum(axis=1) == width)
    if not moving.any():
        return gpus
    running, new, old, width = running[moving], new[moving], old[moving], width[moving]
    earned = view.rate[running, new] * np.maximum(view.round_s - view.restart_s[running], 0.0)
    idle = earned <= view.rate[running, old] * view.round_s
    if not idle.any():
        return gpus
    gpus = gpus.copy()
    free = view.capacity - gpus.sum(axis=0)  # t
    for j, here, there, w in np.stack((running, old, new, width))[:, idle].T.tolist():
        if free[here] >= w:
            gpus[j, there], gpus[j, here] = 0, w
            free[there] += w
            free[here] -= w
    return gpus


def held_by(view: View, jobs: BoolArray) -> IntArray:
    """j,t  GPUs that these jobs hold now."""
    gpus = np.zeros((view.jobs, len(view.capacity)), dtype=np.int64)
    for j in np.flatnonzero(jobs & (view.held_gpus > 0)).tolist():
        for node, count in view.spots[j]:
            gpus[j, view.cluster.node_type[node]] += count
    return gpus
