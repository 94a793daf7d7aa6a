"""Fractional shares become whole GPUs, round after round, with a memory of what is owed."""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, replace

import numpy as np

from fairlead.model.allocation import Grants, Shares
from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.model.view import View
from fairlead.placement.fill import fill_in_order
from fairlead.placement.moves import held_by, left_over

# Solvers answer to about 1e-9; a share closer than this to a whole number is that number.
WHOLE = 1e-6
# A job keeps its GPUs until another is owed this much more of its gang, in rounds: fewer moves at the same completion
# times, while every owner still gets its share within 1 % after 100 rounds (docs/decisions/0003-rounding.md).
STAY = 0.5
# Inside an owner attained service counts in turns of one GPU-hour, so that jobs do not change places every round.
TURN_GPU_S = 3600.0


@dataclass(frozen=True, slots=True)
class Deficits:
    """GPU-rounds owed to each owner by type: what its shares promised minus what it was granted."""

    owner_key: IntArray  # o  ascending
    gpus: FloatArray  # o,t

    def of(self, owner_key: IntArray, types: int) -> FloatArray:
        """Rows for these owners; a new owner is owed nothing, one that left is forgotten."""
        if owner_key is self.owner_key:
            return self.gpus
        owed = np.zeros((len(owner_key), types))
        if self.owner_key.size and owner_key.size:
            at = np.minimum(np.searchsorted(self.owner_key, owner_key), len(self.owner_key) - 1)
            known = self.owner_key[at] == owner_key
            owed[known] = self.gpus[at[known]]
        return owed


NOTHING_OWED = Deficits(np.empty(0, dtype=np.int64), np.empty((0, 0)))


def round_shares(view: View, shares: Shares, owed: Deficits, pinned: BoolArray) -> tuple[Grants, Deficits, bool]:
    """Grants of whole gangs, the new deficits, and whether the shares were met exactly.

    credit = share + deficit. The gang that is owed the largest part of itself (credit / width) goes first, where a job
    that sits there already counts `STAY` more; inside an owner the job with the least attained service. GPUs that
    are left go to jobs without any, most owed first, on their fastest type, and are charged to the deficit like all
    others. What even then stays idle lets jobs move up to a faster type; nobody is charged for what nobody wants.
    Pinned jobs keep what they hold. A deficit stays within what the owner's gangs could ever settle, so that an owner
    with nothing to run does not pile up claims.
    """
    one_each = _one_each(shares)
    credit = shares.gpus + owed.of(shares.owner_key, shares.gpus.shape[1])  # o,t  GPU-rounds
    kept = held_by(view, np.flatnonzero(pinned))
    left = credit - _by_owner(shares, kept) if kept.jobs.size else credit.copy()
    free: list[int] = left_over(view, kept).tolist()
    waits: list[bool] = (~pinned).tolist()
    serve = _serve_jobs if one_each else _serve_owners
    served = serve(view, shares, left, free, waits)
    if any(free) and any(waits):
        served += _refill(view, shares, left, free, waits)
    jobs, types = np.array(served, dtype=np.int64).reshape(-1, 2).T
    grants = Grants(
        np.concatenate((kept.jobs, jobs)),
        np.concatenate((kept.types, types)),
        np.concatenate((kept.gpus, view.width[jobs])),
    )
    granted = _by_owner(shares, grants)
    most = (shares.gpus.sum(axis=1) + 2 * _widest(view, shares, one_each))[:, None]
    owing = np.minimum(np.maximum(credit - granted, -most), most)
    owing[np.abs(owing) < WHOLE] = 0.0
    exact = not owing.any() and bool((np.abs(granted - shares.gpus) < WHOLE).all())
    return _move_up(view, grants, pinned), Deficits(shares.owner_key, owing), exact


def charge(owed: Deficits, shares: Shares, more: Grants) -> Deficits:
    """The deficits after more was granted."""
    return Deficits(owed.owner_key, owed.gpus - _by_owner(shares, more)) if more.jobs.size else owed


def _move_up(view: View, grants: Grants, pinned: BoolArray) -> Grants:
    """Jobs that hold a slower type than an idle one with room, the largest gain first, are given the idle one."""
    idle = left_over(view, grants)  # t
    if not idle.any():
        return grants
    jobs, types, width = grants.jobs, grants.types.copy(), grants.gpus
    fits = np.where(width[:, None] <= idle, view.rate[jobs], 0.0)  # entries,t
    gain = fits.max(axis=1, initial=0.0) / np.maximum(view.rate[jobs, types], 1e-300)
    better = np.flatnonzero((gain > 1.0) & ~pinned[jobs])
    for entry in better[np.lexsort((jobs[better], -gain[better]))].tolist():
        rate, old = view.rate[jobs[entry]], types[entry]
        there = int(np.where(idle >= width[entry], rate, 0.0).argmax())
        if idle[there] >= width[entry] and rate[there] > rate[old]:
            types[entry] = there
            idle[old] += width[entry]
            idle[there] -= width[entry]
    return replace(grants, types=types)


def _one_each(shares: Shares) -> bool:
    """Whether every owner is one job, in the same order."""
    jobs = len(shares.owner_of)
    return len(shares.owner_key) == jobs and bool((shares.owner_of == np.arange(jobs)).all())


def _by_owner(shares: Shares, grants: Grants) -> FloatArray:
    """o,t  GPUs granted."""
    owners, types = shares.gpus.shape
    cell = shares.owner_of[grants.jobs] * types + grants.types
    return np.bincount(cell, grants.gpus, owners * types).astype(np.float64).reshape(owners, types)


def _widest(view: View, shares: Shares, one_each: bool) -> IntArray:
    """o  the owner's widest gang."""
    if one_each:
        return view.width
    widest = np.zeros(len(shares.owner_key), dtype=np.int64)
    np.maximum.at(widest, shares.owner_of, view.width)
    return widest


def _serve_jobs(
    view: View, shares: Shares, credit: FloatArray, free: list[int], waits: list[bool]
) -> list[tuple[int, int]]:
    """Every owner is one job: serving one changes no other's claim, so one sort gives the order."""
    jobs, types = np.nonzero((np.minimum(credit, shares.gpus) > WHOLE) & (view.rate > 0))
    width = view.width[jobs]
    part = credit[jobs, types] / width + STAY * (view.held_type[jobs] == types)
    order = np.argsort(-part, kind="stable")  # ties: the earlier job, then the earlier type
    served: list[tuple[int, int]] = []
    unused = sum(free)
    for j, t, w in np.stack((jobs, types, width))[:, order].T.tolist():
        if waits[j] and w <= free[t]:
            free[t] -= w
            unused -= w
            waits[j] = False
            served.append((j, t))
            if not unused:
                break
    return served


def _serve_owners(
    view: View, shares: Shares, credit: FloatArray, free: list[int], waits: list[bool]
) -> list[tuple[int, int]]:
    """Owners with several jobs: after each gang the owner comes back with what it is still owed, which is left in `credit`."""
    queues = _Queues(view, shares.owner_of, waits)
    owners, types = np.nonzero((credit > WHOLE) & (shares.gpus > WHOLE))
    cells = zip(owners.tolist(), types.tolist(), strict=True)
    claims = [claim for o, t in cells if (claim := queues.claim(o, t, credit, free[t]))]
    claims.sort()
    served: list[tuple[int, int]] = []
    while claims:
        _, minus_owner, minus_type, j = claims.pop()
        o, t, w = -minus_owner, -minus_type, queues.width[j]
        if waits[j] and w <= free[t]:
            free[t] -= w
            credit[o, t] -= w
            waits[j] = False
            served.append((j, t))
        again = queues.claim(o, t, credit, free[t])
        if again is not None:
            insort(claims, again)
    return served


def _refill(
    view: View, shares: Shares, credit: FloatArray, free: list[int], waits: list[bool]
) -> list[tuple[int, int]]:
    """Leftover GPUs to jobs without any, most owed first, on the fastest type with room."""
    waiting = np.flatnonzero(waits)
    owed = credit.sum(axis=1)[shares.owner_of[waiting]] / view.width[waiting]
    first = waiting[np.lexsort((view.job[waiting], -owed))]
    jobs, types, _ = fill_in_order(first, view.width, view.rate, np.array(free))
    return list(zip(jobs.tolist(), types.tolist(), strict=True))


_Claim = tuple[float, int, int, int]  # part of the gang that is owed, -owner, -type, job


class _Queues:
    """Jobs of every owner, least attained service first; of those in the same turn the ones that run already."""

    def __init__(self, view: View, owner_of: IntArray, waits: list[bool]) -> None:
        self.width: list[int] = view.width.tolist()
        self._waits = waits  # shared with the caller, who clears it as jobs are served
        self._held: list[int] = view.held_type.tolist()
        self._runs: list[list[bool]] = (view.rate > 0).tolist()
        turn = view.attained_gpu_s // TURN_GPU_S
        order = np.lexsort((view.job, view.held_gpus == 0, turn, owner_of))
        self._jobs_of: dict[int, list[int]] = {}
        for o, j in zip(owner_of[order].tolist(), order.tolist(), strict=True):
            self._jobs_of.setdefault(o, []).append(j)

    def claim(self, o: int, t: int, credit: FloatArray, room: int) -> _Claim | None:
        """The owner's next job that fits on this type, with what is owed of its gang."""
        left = float(credit[o, t])
        if left <= WHOLE:
            return None
        for j in self._jobs_of.get(o, ()):
            if self._waits[j] and self._runs[j][t] and self.width[j] <= room:
                return (left / self.width[j] + STAY * (self._held[j] == t), -o, -t, j)
        return None
