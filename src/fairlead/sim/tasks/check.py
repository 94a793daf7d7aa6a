"""Is a task-level schedule possible? Told from its columns alone, with nothing of the simulator that made it."""

from __future__ import annotations

import numpy as np

from fairlead.model.arrays import FloatArray
from fairlead.model.tasks import Instance, Schedule, row_parts

SLACK_S = 1e-6  # float sums along a chain of a million tasks stay far below


def violations(given: Instance, schedule: Schedule, pace: FloatArray | None = None) -> list[str]:
    """What is wrong, one sentence per kind of mistake; empty if the schedule can be carried out.

    `pace` (m) tells how many times as long a task takes on a GPU as on others of its type.
    """
    known, found = given.known, []
    wanted = np.repeat(np.arange(given.jobs), given.tasks)
    if not np.array_equal(np.sort(schedule.job), wanted):
        return ["a job has too many or too few tasks"]
    gpus = int(known.gpus.sum())
    if len(schedule) and (schedule.gpu.min() < 0 or schedule.gpu.max() >= gpus):
        return [f"a GPU number is outside 0..{gpus - 1}"]
    rows = np.lexsort((schedule.task, schedule.round, schedule.job))
    within = np.arange(len(rows)) - np.repeat(np.cumsum(given.tasks) - given.tasks, given.tasks)  # 0 .. K-1 in its job
    k = known.scale[wanted]
    if not (np.array_equal(schedule.round[rows], within // k) and np.array_equal(schedule.task[rows], within % k)):
        return ["a round does not have each of its k tasks once"]
    if (schedule.start_s < known.arrival_s[schedule.job] - SLACK_S).any():
        found.append("a task starts before its job arrives")
    return (
        found
        + _gpu_violations(given, schedule, np.ones(gpus) if pace is None else pace)
        + _barrier_violations(given, schedule)
    )


def _gpu_violations(given: Instance, schedule: Schedule, pace: FloatArray) -> list[str]:
    known, found = given.known, []
    rows = np.lexsort((schedule.end_s, schedule.start_s, schedule.gpu))
    gpu, job = schedule.gpu[rows], schedule.job[rows]
    start_s, end_s = schedule.start_s[rows], schedule.end_s[rows]
    follows = np.concatenate([[False], gpu[1:] == gpu[:-1]])[: len(rows)]  # not the first one on its GPU
    if (start_s[1:] < end_s[:-1] - SLACK_S)[follows[1:]].any():
        found.append("two tasks overlap on a GPU")
    turned = follows & np.concatenate([[False], job[1:] != job[:-1]])[: len(rows)]
    work_s = known.task_s[job, given.type_of[gpu]] * row_parts(given, schedule)[rows] * pace[gpu]
    least_s = work_s + np.where(turned, known.switch_s[job], 0.0)
    if (end_s - start_s < least_s - SLACK_S).any():
        found.append("a task is shorter than its switch and its computation")
    return found


def _barrier_violations(given: Instance, schedule: Schedule) -> list[str]:
    known = given.known
    first = np.cumsum(given.rounds) - given.rounds  # n  where its rounds begin in a list of all rounds
    place = first[schedule.job] + schedule.round
    in_s = np.full(int(given.rounds.sum()), -np.inf)
    sync_s = known.sync_s[schedule.job, given.type_of[schedule.gpu]] * row_parts(given, schedule)
    np.maximum.at(in_s, place, schedule.end_s + sync_s)
    later = schedule.round > 0
    early = schedule.start_s[later] < in_s[place[later] - 1] - SLACK_S
    return ["a round starts before all gradients of the one before are in"] if early.any() else []
