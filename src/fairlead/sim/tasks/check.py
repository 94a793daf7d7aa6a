"""Checks whether a task-level schedule is feasible, from its columns alone and without the simulator's code."""

from __future__ import annotations

import numpy as np

from fairlead.model.arrays import FloatArray
from fairlead.model.tasks import Instance, Schedule, row_parts, row_sync_s

SLACK_S = 1e-6  # rounding errors along a chain of a million tasks stay far below


def violations(instance: Instance, schedule: Schedule, pace: FloatArray | None = None) -> list[str]:
    """What is wrong, one sentence for each kind of mistake; empty if the schedule is feasible.

    `pace` (m) is the duration of a task on a GPU relative to other GPUs of its type.
    """
    known, mistakes = instance.known, []
    expected = np.repeat(np.arange(instance.jobs), instance.tasks)
    if not np.array_equal(np.sort(schedule.job), expected):
        return ["a job has too many or too few tasks"]
    gpus = int(known.gpus.sum())
    if len(schedule) and (schedule.gpu.min() < 0 or schedule.gpu.max() >= gpus):
        return [f"a GPU number is outside 0..{gpus - 1}"]
    rows = np.lexsort((schedule.task, schedule.round, schedule.job))
    within = np.arange(len(rows)) - np.repeat(
        np.cumsum(instance.tasks) - instance.tasks, instance.tasks
    )  # 0 .. K-1 in its job
    k = known.scale[expected]
    if not (np.array_equal(schedule.round[rows], within // k) and np.array_equal(schedule.task[rows], within % k)):
        return ["a round does not have each of its k tasks once"]
    if (schedule.start_s < instance.arrival_s[schedule.job] - SLACK_S).any():
        mistakes.append("a task starts before its job arrives")
    return (
        mistakes
        + _gpu_violations(instance, schedule, np.ones(gpus) if pace is None else pace)
        + _barrier_violations(instance, schedule)
    )


def _gpu_violations(instance: Instance, schedule: Schedule, pace: FloatArray) -> list[str]:
    known, mistakes = instance.known, []
    rows = np.lexsort((schedule.end_s, schedule.start_s, schedule.gpu))
    gpu, job = schedule.gpu[rows], schedule.job[rows]
    start_s, end_s = schedule.start_s[rows], schedule.end_s[rows]
    follows = np.concatenate([[False], gpu[1:] == gpu[:-1]])[: len(rows)]  # not the first one on its GPU
    if (start_s[1:] < end_s[:-1] - SLACK_S)[follows[1:]].any():
        mistakes.append("two tasks overlap on a GPU")
    other = np.concatenate([[True], (gpu[1:] != gpu[:-1]) | (job[1:] != job[:-1])])[: len(rows)]
    turned = other & (schedule.round[rows] > 0 if known.restarts else follows)
    work_s = known.task_s[job, instance.type_of[gpu]] * row_parts(instance, schedule)[rows] * pace[gpu]
    least_s = work_s + np.where(turned, known.switch_s[job], 0.0)
    if (end_s - start_s < least_s - SLACK_S).any():
        mistakes.append("a task is shorter than its switch and its computation")
    return mistakes


def _barrier_violations(instance: Instance, schedule: Schedule) -> list[str]:
    first = np.cumsum(instance.rounds) - instance.rounds  # n  where the job's rounds begin in a list of all rounds
    place = first[schedule.job] + schedule.round
    in_s = np.full(int(instance.rounds.sum()), -np.inf)
    np.maximum.at(in_s, place, schedule.end_s + row_sync_s(instance, schedule))
    later = schedule.round > 0
    early = schedule.start_s[later] < in_s[place[later] - 1] - SLACK_S
    return ["a round starts before all gradients of the one before are in"] if early.any() else []
