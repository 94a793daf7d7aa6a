"""Rounding of fractional shares to whole GPUs, round after round, with a memory of what is owed."""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, replace

import numpy as np

from fairlead.model.allocation import NO_GRANTS, Grants, Shares
from fairlead.model.arrays import NO_JOBS, BoolArray, FloatArray, IntArray
from fairlead.model.view import View
from fairlead.numerics import kernel
from fairlead.numerics.kernel import floats, ints
from fairlead.placement.moves import held_by, joined, left_over
from fairlead.placement.pooling import pooled
from fairlead.placement.refill import refill

# Solvers are accurate to about 1e-9; a share closer than this to a whole number is that number.
WHOLE = 1e-6
# A job keeps its GPUs until another is owed this much more of its gang, in rounds: fewer moves at the same completion
# times, while every owner still gets its share within 1 % after 100 rounds (docs/decisions/0003-rounding.md).
STAY = 0.5
# A job whose restart takes time stays longer: until its restart is this part of what it is ahead by, or it is ahead by
# the most rounds that others are made to wait for that (docs/decisions/0216-longer-turns.md).
RESTART_PART = 0.0125
LONGEST_STAY = 6.0
# Among an owner's jobs attained service counts in steps of one GPU-hour, so that they do not swap every round.
TURN_GPU_S = 3600.0


@dataclass(frozen=True, slots=True, eq=False)
class Deficits:
    """GPU-rounds owed to each owner by type: what its shares promised minus what it was granted."""

    owner_key: IntArray  # o  ascending
    gpus: FloatArray  # o,t
    claims: Claims | None = None  # claims of the current shares, which often hold for many rounds

    def of(self, owner_key: IntArray, types: int) -> FloatArray:
        """Rows for these owners. New owners and new types are owed nothing; owners that left are forgotten."""
        if owner_key is self.owner_key and self.gpus.shape[1] == types:
            return self.gpus
        owed = np.zeros((len(owner_key), types))
        if self.owner_key.size and owner_key.size:
            at = np.minimum(np.searchsorted(self.owner_key, owner_key), len(self.owner_key) - 1)
            known = self.owner_key[at] == owner_key
            owed[known, : self.gpus.shape[1]] = self.gpus[at[known]]
        return owed


NOTHING_OWED = Deficits(np.empty(0, dtype=np.int64), np.empty((0, 0)))


def round_shares(view: View, shares: Shares, owed: Deficits, pinned: BoolArray) -> tuple[Grants, Deficits, bool]:
    """Grants of whole gangs, the new deficits, and whether the shares were met exactly, so that the next round would
    grant the same.

    credit = share + deficit. The gang that is owed the largest part of itself (credit / width) is first, where a job
    that already holds the type counts `stays` more, and may be that far ahead of its share; among an owner's jobs the
    one with the least attained service is first. GPUs that are left go to jobs without any, running jobs first and
    where they are, then those owed most, on their fastest type, and are charged like all others. GPUs that are still
    idle let jobs move up to a faster type without a charge. Pinned jobs keep what they hold. A deficit stays within
    what the owner's gangs could settle, so that an owner with nothing to run does not accumulate claims.
    """
    rounded = None if kernel.kernel is None else _round_compiled(view, shares, owed, pinned)
    return _round(view, shares, owed, pinned) if rounded is None else rounded


def _round(view: View, shares: Shares, owed: Deficits, pinned: BoolArray) -> tuple[Grants, Deficits, bool]:
    claims = owed.claims
    if claims is None or claims.shares is not shares or claims.job is not view.job:
        claims = Claims.of(view, shares)
    shares = replace(shares, gpus=claims.gpus)
    credit = shares.gpus + owed.of(shares.owner_key, shares.gpus.shape[1])  # o,t  GPU-rounds
    kept, left = NO_GRANTS, credit.copy()
    if np.count_nonzero(pinned):
        kept = held_by(view, pinned.nonzero()[0])
        left -= _by_owner(shares, kept)
    free: list[int] = left_over(view, kept).tolist()
    waits: list[bool] = (~pinned).tolist()
    stay = stays(view)
    if claims.one_each:
        served = _serve_jobs(view, claims, left, stay, free, waits)
    else:
        served = _serve_owners(view, shares, left, stay, free, waits)
    grants = joined(kept, served)
    if any(free) and any(waits):
        waiting = np.flatnonzero(waits)
        owed_gangs = left.sum(axis=1)[shares.owner_of[waiting]] / view.width[waiting]
        grants = joined(grants, refill(view, waiting, owed_gangs, np.array(free), stay=True))
    granted = _by_owner(shares, grants)
    most = claims.most + (float(stay.max(initial=STAY)) - STAY) * claims.widest
    owing = np.minimum(np.maximum(credit - granted, -most), most)
    owing[np.abs(owing) < WHOLE] = 0.0
    exact = not np.count_nonzero(np.abs(granted - shares.gpus) >= WHOLE)
    return _move_up(view, grants, pinned, claims.fastest), Deficits(shares.owner_key, owing, claims), exact


def _round_compiled(
    view: View, shares: Shares, owed: Deficits, pinned: BoolArray
) -> tuple[Grants, Deficits, bool] | None:
    """The same in one call; None where an owner has several jobs, or a pinned job several types."""
    if shares.gpus.shape != view.rate.shape:
        return None
    entries = np.empty((3, view.jobs), dtype=np.int64)
    owing = np.empty((view.jobs, len(view.capacity)))
    result = kernel.kernel.round_jobs(
        floats(shares.gpus),
        ints(shares.owner_of),
        ints(shares.owner_key),
        owed.owner_key,
        floats(owed.gpus),
        view.job,
        view.width,
        view.rate,
        view.ideal_rate,
        view.held_type,
        view.held_gpus,
        view.restart_s,
        pinned,
        view.capacity,
        *entries,
        owing,
        RESTART_PART * view.round_s,
        WHOLE,
        STAY,
        LONGEST_STAY,
    )
    if result is None:
        return None
    count, exact = result
    return Grants(*entries[:, :count]), Deficits(shares.owner_key, owing), bool(exact)


def stays(view: View) -> FloatArray:
    """j  How many rounds of its gang a job may be ahead of the others before it makes room for them."""
    return np.clip(view.restart_s / (RESTART_PART * view.round_s), STAY, LONGEST_STAY)


def charge(owed: Deficits, shares: Shares, more: Grants) -> Deficits:
    """The deficits after additional grants."""
    return replace(owed, gpus=owed.gpus - _by_owner(shares, more)) if more.jobs.size else owed


@dataclass(frozen=True, slots=True, eq=False)
class Claims:
    """What rounding derives from shares alone, before it considers deficits."""

    shares: Shares  # as the policy returned them
    gpus: FloatArray  # o,t  the same after tenants have moved what one owner cannot use to another
    job: IntArray  # j  `job` of the view
    one_each: bool  # every owner is one job, in the same order
    widest: IntArray  # o,1  width of the owner's widest gang
    most: FloatArray  # o,1  GPU-rounds that may be owed if no job stays longer than `STAY`
    fastest: FloatArray  # j  rate on the best type and the fewest nodes, which does not change when jobs move
    # Cells (owner, type) with a share on which the job runs, if every owner is one job.
    cells: IntArray  # c  in the table of shares, row by row
    types: IntArray  # c
    jobs: IntArray  # c
    width: IntArray  # c
    rows: list[tuple[int, int, int]]  # c  job, type, width

    @classmethod
    def of(cls, view: View, shares: Shares) -> Claims:
        one_each, divided = _one_each(shares), shares
        if not one_each:
            shares = replace(shares, gpus=pooled(view, shares))
        widest = _widest(view, shares, one_each)[:, None]
        most = shares.gpus.sum(axis=1)[:, None] + 2 * widest
        cells = ((shares.gpus > WHOLE) & (view.rate > 0)).ravel().nonzero()[0] if one_each else NO_JOBS
        jobs, types = np.divmod(cells, shares.gpus.shape[1])
        width = view.width[jobs]
        rows = list(zip(jobs.tolist(), types.tolist(), width.tolist(), strict=True))
        return cls(
            divided,
            shares.gpus,
            view.job,
            one_each,
            widest,
            most,
            view.ideal_rate.max(axis=1, initial=0.0),
            cells,
            types,
            jobs,
            width,
            rows,
        )


def _move_up(view: View, grants: Grants, pinned: BoolArray, fastest: FloatArray) -> Grants:
    """Grants in which jobs on a slower type than an idle one with room get the idle one, the largest gain first."""
    idle = left_over(view, grants)  # t
    if not np.count_nonzero(idle):
        return grants
    slow = ((view.rate[grants.jobs, grants.types] < fastest[grants.jobs]) & ~pinned[grants.jobs]).nonzero()[0]
    if not slow.size:
        return grants
    jobs, types = grants.jobs[slow], grants.types[slow]
    rate, now = view.rate[jobs], view.rate[jobs, types]  # entries,t  entries
    gain = np.where(grants.gpus[slow, None] <= idle, rate, 0.0).max(axis=1) / np.maximum(now, 1e-300)
    better = (gain > 1.0).nonzero()[0]
    if not better.size:
        return grants
    moved = grants.types.copy()
    for place in better[np.lexsort((jobs[better], -gain[better]))].tolist():
        width, old = grants.gpus[slow[place]], types[place]
        there = int(np.where(idle >= width, rate[place], 0.0).argmax())
        if idle[there] >= width and rate[place, there] > now[place]:
            moved[slow[place]] = there
            idle[old] += width
            idle[there] -= width
    return replace(grants, types=moved)


def _one_each(shares: Shares) -> bool:
    """Whether every owner is one job, in the same order."""
    jobs = len(shares.owner_of)
    return len(shares.owner_key) == jobs and bool((shares.owner_of == np.arange(jobs)).all())


def _by_owner(shares: Shares, grants: Grants) -> FloatArray:
    """o,t  GPUs that are granted."""
    owners, types = shares.gpus.shape
    cell = shares.owner_of[grants.jobs] * types + grants.types
    return np.bincount(cell, grants.gpus, owners * types).astype(np.float64).reshape(owners, types)


def _widest(view: View, shares: Shares, one_each: bool) -> IntArray:
    """o  The width of the owner's widest gang."""
    if one_each:
        return view.width
    widest = np.zeros(len(shares.owner_key), dtype=np.int64)
    np.maximum.at(widest, shares.owner_of, view.width)
    return widest


def _serve_jobs(
    view: View, claims: Claims, credit: FloatArray, stay: FloatArray, free: list[int], waits: list[bool]
) -> Grants:
    """Grants where every owner is one job: serving one changes no other claim, so one sort gives the order."""
    owed = credit.ravel().take(claims.cells)  # c
    held = view.held_type.take(claims.jobs) == claims.types  # c
    part = owed / claims.width + stay.take(claims.jobs) * held
    eligible = np.where(held, part, owed) > WHOLE
    part[~eligible] = -np.inf
    order = (-part).argsort(kind="stable")  # ties: the earlier job, then the earlier type
    served: list[int] = []  # c
    unused = sum(free)
    for c in order[: np.count_nonzero(eligible)].tolist():
        j, t, w = claims.rows[c]
        if waits[j] and w <= free[t]:
            free[t] -= w
            unused -= w
            waits[j] = False
            served.append(c)
            if not unused:
                break
    at = np.array(served, dtype=np.int64)
    return Grants(claims.jobs.take(at), claims.types.take(at), claims.width.take(at))


def _serve_owners(
    view: View, shares: Shares, credit: FloatArray, stay: FloatArray, free: list[int], waits: list[bool]
) -> Grants:
    """Grants where owners have several jobs: after each gang the owner claims what it is still owed, in `credit`."""
    queues = _Queues(view, shares.owner_of, stay, waits)
    owners, types = np.nonzero((shares.gpus > WHOLE) & ((credit > WHOLE) | queues.held_cells(shares)))
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
    jobs, types = np.array(served, dtype=np.int64).reshape(-1, 2).T
    return Grants(jobs, types, view.width[jobs])


_Claim = tuple[float, int, int, int]  # part of the gang that is owed, -owner, -type, job


class _Queues:
    """Jobs of every owner, least attained service first; at the same level of service, running jobs first."""

    def __init__(self, view: View, owner_of: IntArray, stay: FloatArray, waits: list[bool]) -> None:
        self.width: list[int] = view.width.tolist()
        self._view = view
        self._stay: list[float] = stay.tolist()
        self._waits = waits  # shared with the caller, which clears it as jobs are served
        self._held: list[int] = view.held_type.tolist()
        self._runs: list[list[bool]] = (view.rate > 0).tolist()
        turn = view.attained_gpu_s // TURN_GPU_S
        order = np.lexsort((view.job, view.held_gpus == 0, turn, owner_of))
        self._jobs_of: dict[int, list[int]] = {}
        for o, j in zip(owner_of[order].tolist(), order.tolist(), strict=True):
            self._jobs_of.setdefault(o, []).append(j)

    def held_cells(self, shares: Shares) -> BoolArray:
        """o,t  Whether a job of the owner holds the type."""
        held = np.zeros(shares.gpus.shape, dtype=np.bool_)
        jobs = (self._view.held_type >= 0).nonzero()[0]
        held[shares.owner_of[jobs], self._view.held_type[jobs]] = True
        return held

    def claim(self, o: int, t: int, credit: FloatArray, room: int) -> _Claim | None:
        """The owner's next job that fits on this type, with what is owed of its gang; if nothing is, one that stays."""
        left = float(credit[o, t])
        for j in self._jobs_of.get(o, ()):
            if self._waits[j] and self._runs[j][t] and self.width[j] <= room:
                stays = self._stay[j] if self._held[j] == t else 0.0
                if left / self.width[j] + stays > WHOLE and (stays or left > WHOLE):
                    return (left / self.width[j] + stays, -o, -t, j)
        return None
