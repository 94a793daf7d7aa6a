"""One queue per GPU type, for policies in which a job joins a queue when it arrives and stays in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.view import View


@dataclass(frozen=True, slots=True, eq=False)
class TypeQueues:
    """The queue of each job, by the job's key."""

    job: IntArray  # j  ascending
    type: IntArray  # j


# choose(position in the view, backlog t in seconds, the job's time on each type t) -> type
Choose = Callable[[int, FloatArray, FloatArray], int]


def join(view: View, memory: TypeQueues | None, remaining_s: FloatArray, choose: Choose) -> TypeQueues:
    """The queues after new jobs have joined in order of arrival, each of which sees the backlog of the jobs before it.

    The backlog is the time in which all GPUs of the type would finish its queue. A type that is down at the
    moment counts as up, because jobs do not change queues.
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

    A job of unknown length counts as long as the others on average, or as one round if no length is known; a job that has
    exceeded its declared length is about to end.
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
