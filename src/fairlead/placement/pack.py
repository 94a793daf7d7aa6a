"""The placers, which turn grants into nodes, and their protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from fairlead.model.allocation import NOWHERE, Grants, Spot
from fairlead.model.arrays import BoolArray, IntArray
from fairlead.model.errors import BrokenInvariantError
from fairlead.model.view import View
from fairlead.numerics import kernel
from fairlead.placement.moves import jobs_that_mix, pays
from fairlead.placement.pool import Pool, free_after


class Placer(Protocol):
    """Turns grants into nodes: new spots for the jobs (positions in the view) that change; NOWHERE = return all GPUs.

    The laws: a job that is not in the result keeps its spot; a pinned job is never in the result; a spot holds exactly
    the GPUs by type that its job was granted, on nodes that are up and have them free after other jobs have left; a job
    for which the nodes offer only a spot on which it does not run waits. The same view and grants give the same result.
    """

    def __call__(self, view: View, grants: Grants, pinned: BoolArray) -> dict[int, Spot]: ...


def pack(view: View, grants: Grants, pinned: BoolArray) -> dict[int, Spot]:
    """Place each gang on as few nodes as possible, and gather spread gangs later where that pays.

    Gangs that lose speed over several nodes are placed first and those that lose none last (data- and tensor-parallel
    jobs before pipeline-parallel ones: ICS 2025), wide gangs first in both groups. Of equally good nodes a job gets
    those on which it last ran. A spread job that could now run on fewer nodes moves there if that gains more than it
    costs while the job is certain to stay, jobs with the cheapest moves first.
    """
    return _place(view, grants, pinned, _compact, gather=True)


def keep(view: View, grants: Grants, pinned: BoolArray) -> dict[int, Spot]:
    """Like `pack`, but no job moves only to be on fewer nodes."""
    return _place(view, grants, pinned, _compact, gather=False)


def strict(view: View, grants: Grants, pinned: BoolArray) -> dict[int, Spot]:
    """Like `keep`, but a gang waits until it fits on as few nodes as an empty cluster would need for it.

    Its GPUs stay idle meanwhile: this shows what a scheduler loses that decides without looking at nodes.
    """
    return _place(view, grants, pinned, _compact, gather=False, fewest=True)


def whole(view: View, grants: Grants, pinned: BoolArray) -> dict[int, Spot]:
    """Like `strict`, and a gang that is wider than a node has its nodes to itself (SOSP 2023).

    The GPUs that it leaves over on them stay idle.
    """
    return _place(view, grants, pinned, _compact, gather=False, fewest=True, alone=True)


def scatter(view: View, grants: Grants, pinned: BoolArray) -> dict[int, Spot]:
    """Place gangs without regard to nodes, to measure the benefit of packing."""
    return _place(view, grants, pinned, _scattered, gather=False)


PLACERS: dict[str, Placer] = {"pack": pack, "keep": keep, "strict": strict, "whole": whole, "scatter": scatter}

_Choose = Callable[[Pool, int, int, Spot], Spot]  # (pool, type, GPUs, last spot of the job) -> its spot


def _compact(pool: Pool, type_: int, gpus: int, last: Spot) -> Spot:
    return pool.place(type_, gpus, last)


def _scattered(pool: Pool, type_: int, gpus: int, last: Spot) -> Spot:
    return pool.scatter(type_, gpus)


def _place(
    view: View,
    grants: Grants,
    pinned: BoolArray,
    choose: _Choose,
    *,
    gather: bool,
    fewest: bool = False,
    alone: bool = False,
) -> dict[int, Spot]:
    mixing = jobs_that_mix(grants)
    stays = _stays(view, grants, mixing)  # entries
    kept = grants.jobs[stays]
    leaves = view.held_gpus > 0  # j
    leaves[kept] = False
    leaving: list[int] = leaves.nonzero()[0].tolist()
    spread = _spread(view, kept, pinned) if gather else []
    if not leaving and not spread and np.count_nonzero(stays) == len(stays):
        return {}
    changed: dict[int, Spot] = dict.fromkeys(leaving, NOWHERE)
    free = free_after(view.node_free, given_back=[view.spots[j] for j in leaving])
    entries = _in_order(view, grants, ~stays)
    if kernel.kernel is not None and choose is _compact and not (fewest or alone or mixing):
        _place_compiled(view, free, entries, changed)
        entries = []
    pool = Pool(view.cluster, free)
    if alone:
        _close_nodes(view, pool, kept)
    for gpus, j, t in entries:
        on_whole_nodes = alone and gpus > view.cluster.largest_node[t]
        spot = pool.place_alone(t, gpus) if on_whole_nodes else choose(pool, t, gpus, view.last_spot(j))
        if not spot and alone:
            continue  # GPUs that it was granted are left over next to other gangs, or no node is empty
        if not spot:
            raise BrokenInvariantError(_CROWDED)
        runs = len(spot) == 1 or j in mixing or view.rate_on(j, spot)
        if not runs or (fewest and len(spot) > _fewest_nodes(view, t, gpus)):
            pool.give_back(spot)  # it does not run spread like this, or must not, and waits for a better gap
            continue
        changed[j] = tuple(sorted((*changed[j], *spot))) if changed.get(j) else spot
    for j in sorted(mixing & changed.keys()):
        if changed[j] and not view.rate_on(j, changed[j]):
            pool.give_back(changed[j])
            changed[j] = NOWHERE
    for j in sorted(_would_pay(view, spread), key=lambda j: float(view.restart_s[j])):
        better = pool.place_on_fewer(int(view.held_type[j]), int(view.held_gpus[j]), len(view.spots[j]))
        if not better:
            continue
        if pays(view.rate_on(j, view.spots[j]), view.rate_on(j, better), view.restart_s[j], view.round_s):
            changed[j] = better
        else:
            pool.give_back(better)
    return changed


_CROWDED = "more GPUs were granted than the nodes of the type have free"


def _place_compiled(view: View, free: IntArray, entries: list[tuple[int, int, int]], changed: dict[int, Spot]) -> None:
    """Place the entries as `Pool.place` would, one after another, into `changed`; `free` (n) becomes what is left."""
    gpus, jobs, types = np.array(entries, dtype=np.int64).reshape(-1, 3).T.copy()
    last = [view.last_spot(j) for _, j, _ in entries]
    spots = kernel.kernel.place_gangs(
        free, view.cluster.node_type, len(view.capacity), gpus, jobs, types, last, view.rate_on
    )
    for (_, j, _), spot in zip(entries, spots, strict=True):
        if spot is None:
            raise BrokenInvariantError(_CROWDED)
        if spot:
            changed[j] = spot


def _close_nodes(view: View, pool: Pool, kept: IntArray) -> None:
    """Take what is free next to gangs on several nodes."""
    for j in kept[view.held_nodes[kept] > 1].tolist():
        pool.take(tuple((node, pool.free[node]) for node, _ in view.spots[j]))


def _would_pay(view: View, spread: list[int]) -> list[int]:
    """Those of the spread jobs for which a move would pay if it made them as fast as on the fewest nodes."""
    if not spread:
        return []
    jobs = np.array(spread)
    types = view.held_type[jobs]
    worth = pays(view.rate[jobs, types], view.ideal_rate[jobs, types], view.restart_s[jobs], view.round_s)
    chosen: list[int] = jobs[worth | (view.held_gpus[jobs] != view.width[jobs])].tolist()
    return chosen


def _stays(view: View, grants: Grants, mixing: set[int]) -> BoolArray:
    """Entries of jobs that are granted exactly what they hold."""
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


def _in_order(view: View, grants: Grants, which: BoolArray) -> list[tuple[int, int, int]]:
    """(GPUs, job, type) of these entries: gangs that slow down when spread first, then by width, job and type."""
    gpus, jobs, types = grants.gpus[which], grants.jobs[which], grants.types[which]
    entries = zip(gpus.tolist(), jobs.tolist(), types.tolist(), strict=True)
    ranked = sorted((not _minds(view, j, t, count), -count, j, t) for count, j, t in entries)
    return [(-less, j, t) for _, less, j, t in ranked]


def _minds(view: View, j: int, t: int, gpus: int) -> bool:
    """Whether such a gang is slower on two nodes than on one, if a node had that many GPUs."""
    return gpus > 1 and view.rate_at(j, t, gpus, 2) < view.rate_at(j, t, gpus, 1)


def _fewest_nodes(view: View, type_: int, gpus: int) -> int:
    return int(-(-gpus // view.cluster.largest_node[type_]))


def _spread(view: View, kept: IntArray, pinned: BoolArray) -> list[int]:
    """Kept jobs that are on more nodes of their type than they need, in arrival order."""
    several = kept[view.held_nodes[kept] > 1]
    if not several.size:
        return []
    several = several[(view.held_type[several] >= 0) & ~pinned[several]]
    fewest = -(-view.held_gpus[several] // view.cluster.largest_node[view.held_type[several]])
    spread: list[int] = np.sort(several[view.held_nodes[several] > fewest]).tolist()
    return spread
