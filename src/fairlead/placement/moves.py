"""Stability: a job keeps its GPUs for a while, and moves only if the gain exceeds the cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter

import numpy as np

from fairlead.model.allocation import NO_GRANTS, NOWHERE, Grants, Spot
from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.model.view import MIXED_TYPES, View
from fairlead.numerics import kernel
from fairlead.numerics.kernel import ints
from fairlead.placement.pool import Pool, free_after
from fairlead.placement.refill import refill

# A job is left alone for this many times its restart cost: once to restore, once to work, so that taking turns costs
# at most half of the time.
RESTARTS_WORTH = 2.0


def settle(view: View, grants: Grants, pinned: BoolArray) -> Grants:
    """Grants in which pinned jobs keep what they hold; what no longer fits is dropped, the last entries first."""
    if not pinned.any():
        return grants
    kept = held_by(view, np.flatnonzero(pinned))
    free: list[int] = left_over(view, kept).tolist()  # t
    fits: list[tuple[int, int, int]] = []
    entries = zip(grants.jobs.tolist(), grants.types.tolist(), grants.gpus.tolist(), strict=True)
    for j, of_job in groupby(entries, key=itemgetter(0)):
        wanted = list(of_job)
        if not pinned[j] and all(free[t] >= count for _, t, count in wanted):
            fits += wanted
            for _, t, count in wanted:
                free[t] -= count
    added = np.array(fits, dtype=np.int64).reshape(-1, 3)
    jobs, types, gpus = np.vstack((np.column_stack((kept.jobs, kept.types, kept.gpus)), added)).T
    return replace(grants, jobs=jobs, types=types, gpus=gpus)


def settle_spots(view: View, spots: Sequence[Spot], pinned: BoolArray) -> dict[int, Spot]:
    """The spots that change. Pinned jobs keep theirs; a job without room beside them stays if it can, else waits."""
    wanted = {j: spot for j, spot in enumerate(spots) if spot != view.spots.get(j, NOWHERE) and not pinned[j]}
    if not pinned.any():
        return wanted
    pool = Pool(view.cluster, free_after(view.node_free, given_back=(view.spots.get(j, NOWHERE) for j in wanted)))
    changed: dict[int, Spot] = {}
    for j, spot in wanted.items():
        if pool.has(spot):
            changed[j] = spot
            pool.take(spot)
    for j in sorted(wanted.keys() & view.spots.keys() - changed.keys()):
        here = view.spots[j]
        if pool.has(here):
            pool.take(here)
        else:
            changed[j] = NOWHERE
    return changed


def drop_idle_moves(view: View, grants: Grants) -> Grants:
    """Grants in which a job that would gain less than a move costs keeps its type, if its old GPUs are still free.

    The gain is counted over the time for which the job is certain to keep its new GPUs.
    """
    if kernel.kernel is not None:
        kept = np.empty(grants.types.shape, dtype=np.int64)
        entries = ints(grants.jobs), ints(grants.types), ints(grants.gpus)
        of_jobs = view.held_type, view.held_gpus, view.rate, view.restart_s
        changes = kernel.kernel.keep_idle(*entries, *of_jobs, view.capacity, kept, view.round_s, RESTARTS_WORTH)
        if changes >= 0:  # otherwise some job mixes types
            return replace(grants, types=kept) if changes else grants
    old = view.held_type[grants.jobs]
    mixing = jobs_that_mix(grants) | set(grants.jobs[old == MIXED_TYPES].tolist())
    if mixing:
        return _drop_idle_mixes(view, _drop_idle_changes(view, grants, mixing), mixing)
    return _drop_idle_changes(view, grants, mixing)


def pays(now: FloatArray | float, then: FloatArray | float, restart_s: FloatArray | float, round_s: float) -> BoolArray:
    """Whether a move from one rate to another pays off in the time for which the job is certain to stay."""
    kept_s = np.maximum(round_s, RESTARTS_WORTH * np.asarray(restart_s))
    return np.asarray(then * (kept_s - restart_s) > now * kept_s)


def _drop_idle_changes(view: View, grants: Grants, mixing: set[int]) -> Grants:
    """Drop moves from one type to another that do not pay."""
    jobs, new = grants.jobs, grants.types
    old = view.held_type[jobs]
    moving = ((old >= 0) & (old != new) & (view.held_gpus[jobs] == grants.gpus)).nonzero()[0]  # entries
    if not moving.size:
        return grants
    moving = moving[np.argsort(jobs[moving])]
    jobs, old, new = jobs[moving], old[moving], new[moving]
    idle = (~pays(view.rate[jobs, old], view.rate[jobs, new], view.restart_s[jobs], view.round_s)).nonzero()[0]
    if not idle.size:
        return grants
    free: list[int] = left_over(view, grants).tolist()  # t
    types = grants.types.copy()
    for entry, here, there in zip(moving[idle].tolist(), old[idle].tolist(), new[idle].tolist(), strict=True):
        width = int(grants.gpus[entry])
        if free[here] >= width and int(grants.jobs[entry]) not in mixing:
            types[entry] = here
            free[there] += width
            free[here] -= width
    return replace(grants, types=types) if (types != grants.types).any() else grants


def _drop_idle_mixes(view: View, grants: Grants, mixing: set[int]) -> Grants:
    """Drop moves from or to a mix of types that do not pay."""
    wanted: dict[int, dict[int, int]] = {}
    for j, t, count in zip(grants.jobs.tolist(), grants.types.tolist(), grants.gpus.tolist(), strict=True):
        wanted.setdefault(j, {})[t] = count
    free: list[int] = left_over(view, grants).tolist()  # t
    dropped = False
    for j in sorted(mixing):
        here, there = view.cluster.gpus_by_type(view.spots.get(j, NOWHERE)), wanted[j]
        if here == there or sum(here.values()) != sum(there.values()):
            continue
        now, then = view.rate_on(j, view.spots[j]), view.rate_on(j, view.cluster.compact_spot(there))
        if pays(now, then, view.restart_s[j], view.round_s):
            continue
        if all(free[t] + there.get(t, 0) >= count for t, count in here.items()):
            for t in here.keys() | there.keys():
                free[t] += there.get(t, 0) - here.get(t, 0)
            wanted[j], dropped = here, True
    if not dropped:
        return grants
    entries = [(j, t, count) for j, types in wanted.items() for t, count in sorted(types.items())]
    jobs, types, gpus = np.array(entries, dtype=np.int64).reshape(-1, 3).T
    return replace(grants, jobs=jobs, types=types, gpus=gpus)


def fill_gaps(view: View, wanted: Grants, after: Grants) -> Grants:
    """Additional grants: GPUs that pins and dropped moves leave unused go to jobs without any.

    Running jobs are first, then jobs that were `wanted` on other GPUs, in that order, then the others by arrival. GPUs
    on which no job was wanted stay idle.
    """
    if after is wanted:
        return NO_GRANTS
    gap = np.maximum(left_over(view, after) - left_over(view, wanted), 0)  # t
    if not gap.any():
        return NO_GRANTS
    place = np.full(view.jobs, len(wanted.jobs))  # j
    place[wanted.jobs[::-1]] = np.arange(len(wanted.jobs) - 1, -1, -1)  # the first entry of a job is written last
    without = np.ones(view.jobs, dtype=np.bool_)  # j
    without[after.jobs] = False
    waiting = np.flatnonzero(without)
    return refill(view, waiting, -place[waiting], gap)


def joined(one: Grants, other: Grants) -> Grants:
    """The entries of both, which are of different jobs, in this order."""
    if not one.jobs.size or not other.jobs.size:
        return one if one.jobs.size else other
    return Grants(
        np.concatenate((one.jobs, other.jobs)),
        np.concatenate((one.types, other.types)),
        np.concatenate((one.gpus, other.gpus)),
    )


def jobs_that_mix(grants: Grants) -> set[int]:
    """Jobs with entries of several types."""
    again = grants.jobs[1:] == grants.jobs[:-1]
    return set(grants.jobs[1:][again].tolist()) if again.any() else set()


def held_by(view: View, jobs: IntArray) -> Grants:
    """What these jobs hold now, as grants."""
    types = view.held_type[jobs]
    if (types >= 0).all():
        return Grants(jobs, types, view.held_gpus[jobs])
    spots = [(j, view.spots.get(j, NOWHERE)) for j in jobs.tolist()]
    held = [(j, t, gpus) for j, spot in spots for t, gpus in view.cluster.gpus_by_type(spot).items()]
    jobs, types, gpus = np.array(held, dtype=np.int64).reshape(-1, 3).T
    return Grants(jobs, types, gpus)


def left_over(view: View, grants: Grants) -> IntArray:
    """t  GPUs that no job is granted."""
    used = np.bincount(grants.types, grants.gpus, len(view.capacity))
    return view.capacity - used.astype(np.int64)
