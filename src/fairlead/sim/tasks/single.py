"""One GPU per job: the tasks of a round run one after another, from the first round to the last without pre-emption."""

from __future__ import annotations

import heapq
from collections.abc import Callable

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.tasks import Instance, Schedule

# (size by job and GPU, seconds until each GPU is free) -> (GPU, place from the end of its queue) of each job
MatchJobs = Callable[[FloatArray, FloatArray], tuple[IntArray, IntArray]]


def run_single(instance: Instance, plan: MatchJobs) -> Schedule:
    """The schedule with one GPU per job.

    At every arrival and completion with an idle GPU and waiting jobs, plan again and start the first job of each queue.
    """
    known, type_of = instance.known, instance.type_of
    # j,g  a round is k tasks and the synchronisation of the last one; the others overlap
    size_s = instance.rounds[:, None] * (known.scale[:, None] * known.task_s + known.sync_s)
    by_gpu = size_s[:, type_of]
    free_s, last_job = np.zeros(len(type_of)), np.full(len(type_of), -1)
    events = [(float(arrival), n) for n, arrival in enumerate(instance.arrival_s)]
    heapq.heapify(events)
    waiting: list[int] = []
    parts: list[Schedule] = []
    while events:
        now = events[0][0]
        while events and events[0][0] <= now:
            _, n = heapq.heappop(events)
            if n >= 0:
                waiting.append(n)
        if not waiting or not (free_s <= now).any():
            continue
        jobs = np.array(waiting)
        gpu, place = plan(by_gpu[jobs], np.maximum(free_s - now, 0.0))
        for m in np.unique(gpu).tolist():
            if free_s[m] > now:
                continue
            mine = np.flatnonzero(gpu == m)
            n = int(jobs[mine[np.argmax(place[mine])]])
            waiting.remove(n)
            turn_s = float(known.switch_s[n]) if last_job[m] >= 0 else 0.0
            parts.append(_one_job(instance, n, m, now, turn_s))
            last_job[m] = n
            # The GPU is free for another job while the last gradients are being sent.
            free_s[m] = parts[-1].end_s[-1]
            heapq.heappush(events, (float(free_s[m]), -1))
    return _joined(parts)


def _one_job(instance: Instance, n: int, m: int, start_s: float, turn_s: float) -> Schedule:
    known = instance.known
    g = int(instance.type_of[m])
    k, T, S = int(known.scale[n]), float(known.task_s[n, g]), float(known.sync_s[n, g])
    round_, task = np.divmod(np.arange(instance.tasks[n]), k)
    begin_s = start_s + turn_s + round_ * (k * T + S) + task * T
    end_s = begin_s + T
    begin_s[0] = start_s
    return Schedule(np.full(len(task), n), round_, task, np.full(len(task), m), begin_s, end_s)


def _joined(parts: list[Schedule]) -> Schedule:
    names = ("job", "round", "task", "gpu", "start_s", "end_s")
    return Schedule(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))
