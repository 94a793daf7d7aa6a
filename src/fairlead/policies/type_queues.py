"""One queue per GPU type: a job joins one when it arrives and stays in it. Shared by policies that work like that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.view import View


@dataclass(frozen=True, slots=True, eq=False)
class TypeQueues:
    """Which queue each job has joined, by the job's key."""

    job: IntArray  # j  ascending
    type: IntArray  # j


# choose(position in the view, backlog t in seconds, the job's time on each type t) -> type
Choose = Callable[[int, FloatArray, FloatArray], int]


def join(view: View, memory: TypeQueues | None, remaining_s: FloatArray, choose: Choose) -> TypeQueues:
    """New jobs join in order of arrival; each sees the backlog that those before it have left.

    Backlog is the time in which the type's GPUs, all of them, would do what is left of its queue. A type that is down for
    the moment counts as if it were up, since nobody changes queues.
    """
    type_of = np.full(view.jobs, -1)
    if memory is not None and memory.job.size and view.jobs:
        at = np.minimum(np.searchsorted(memory.job, view.job), len(memory.job) - 1)
        known = memory.job[at] == view.job
        type_of[known] = memory.type[at[known]]
    gpus = np.maximum(view.cluster.capacity, 1)  # t
    queued = np.flatnonzero(type_of >= 0)
    mine = type_of[queued]
    service = view.width[queued] * remaining_s[queued, mine]  # GPU-seconds
    backlog_s = np.bincount(mine, service, len(gpus)) / gpus  # t
    for j in np.flatnonzero((type_of < 0) & (view.rate > 0).any(axis=1)).tolist():
        t = choose(j, backlog_s, remaining_s[j])
        type_of[j] = t
        backlog_s[t] += view.width[j] * remaining_s[j, t] / gpus[t]
    return TypeQueues(view.job, type_of)


def remaining_times(view: View) -> FloatArray:
    """j,t  seconds that the job still takes on each type, inf where it cannot run.

    A job of unknown length counts as long as the others on average, and as one round if nobody says; one that has outrun
    what was declared is about to end.
    """
    assert view.total is not None, "a policy with queues by type declares that it knows lengths"
    assert view.done is not None
    left = np.maximum(view.total - view.done, 0.0)  # j  samples
    with np.errstate(divide="ignore", invalid="ignore"):
        seconds = np.where(view.rate > 0, left[:, None] / view.rate, np.inf)  # j,t
    unknown = np.isnan(left)
    if unknown.any():
        known = seconds[~unknown]
        usual_s = float(known[np.isfinite(known)].mean()) if np.isfinite(known).any() else view.round_s
        seconds[unknown] = np.where(view.rate[unknown] > 0, usual_s, np.inf)
    return seconds
