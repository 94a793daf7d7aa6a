"""Why a tenant holds less than its private slice at one instant, by causes that follow from its jobs and its limits."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray

SAME = 1e-9  # GPUs; less is rounding


@dataclass(frozen=True, slots=True, eq=False)
class Instant:
    """Tenants (u) that want more, with their jobs that wait (i)."""

    slice_gpus: FloatArray  # u,t  the private slice
    held: FloatArray  # u,t  GPUs
    may_hold: FloatArray  # u,t  the limit that quotas set
    worth: FloatArray  # u,t  mean speedup of its active jobs
    missing: FloatArray  # u  value of the slice less the value of what it holds
    tenant: IntArray  # i  row of its tenant
    width: IntArray  # i
    usable: FloatArray  # i,t  1 where the job runs


@dataclass(frozen=True, slots=True, eq=False)
class Shortfall:
    """u  What is missing from the slice, by cause; the columns add up to what is missing where that is positive."""

    few_jobs: FloatArray
    unusable_types: FloatArray
    quotas: FloatArray
    whole_gangs: FloatArray
    turns: FloatArray  # it could have had more, and others had it


def split_shortfall(now: Instant) -> Shortfall:
    """The slice is cut down step by step to what the waiting jobs could have had of it, in this order:

        room_t    = max(slice_t - held_t, 0)                 GPUs of the slice that the tenant does not hold
        few jobs  : room in all types  <= GPUs that all its waiting jobs ask for
        types     : room_t <= GPUs that its waiting jobs that run on t ask for
        quotas    : room_t <= limit_t - held_t
        gangs     : room_t <= whole multiples of the narrowest waiting gang that runs on t
        turns     : the rest

    Each step is worth mean speedup x GPUs, as a part of the value of all the room; that part of what is missing is
    attributed to its cause.
    """
    users, types = now.held.shape
    asked, narrowest = np.zeros((users, types)), np.full((users, types), np.inf)
    np.add.at(asked, now.tenant, now.width[:, None] * now.usable)
    np.minimum.at(narrowest, now.tenant, np.where(now.usable > 0, now.width[:, None], np.inf))
    room = np.where(now.worth > 0, np.maximum(now.slice_gpus - now.held, 0.0), 0.0)  # u,t
    total, wanted = room.sum(axis=1), np.bincount(now.tenant, now.width, users)
    part = np.minimum(1.0, wanted / np.where(total > 0, total, 1.0))
    steps = [room, room * part[:, None]]
    steps.append(np.minimum(steps[-1], asked))
    steps.append(np.minimum(steps[-1], np.maximum(now.may_hold - now.held, 0.0)))
    gangs = np.where(np.isfinite(narrowest), np.floor((room + SAME) / narrowest) * np.minimum(narrowest, 1e12), 0.0)
    steps.append(np.minimum(steps[-1], gangs))
    worth = [(now.worth * step).sum(axis=1) for step in steps]
    missing = np.maximum(now.missing, 0.0)
    scale = np.divide(missing, worth[0], out=np.zeros_like(missing), where=worth[0] > 0)
    causes = [(one - other) * scale for one, other in pairwise(worth)]
    few_jobs, unusable_types, quotas, whole_gangs = causes
    return Shortfall(few_jobs, unusable_types, quotas, whole_gangs, turns=missing - sum(causes))
