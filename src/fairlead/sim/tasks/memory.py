"""Fast task switching as a model: which jobs' model data stay in a GPU's memory between their tasks.

The sequence of a GPU is known, so models can be kept according to the tasks that follow. Contexts are warm, and a task
releases memory during its backward pass (early cleaning), so the memory of the previous task is free in time; a switch to
a job whose data are resident then copies nothing.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

import numpy as np

from fairlead.model.arrays import BoolArray, FloatArray
from fairlead.model.tasks import Instance, Schedule


class Keep(StrEnum):
    NOTHING = "nothing"  # PipeSwitch: every switch copies the model
    LAST_USED = "last used"  # the most recently finished models that fit
    SPECULATIVE = "speculative"  # the next task's model first, then the most recent ones that have a later task


def residency(
    instance: Instance, schedule: Schedule, model_gib: FloatArray, room_gib: FloatArray, keep: Keep
) -> tuple[BoolArray, BoolArray]:
    """(whether a row switches its GPU to another job, whether that job's model is resident), by row of the schedule.

    `model_gib` is by job, `room_gib` by type: the memory for models, besides the needs of the running task itself.
    """
    turns, resident = np.zeros(len(schedule), dtype=np.bool_), np.zeros(len(schedule), dtype=np.bool_)
    order = np.lexsort((schedule.start_s, schedule.gpu))
    edges = np.flatnonzero(np.diff(schedule.gpu[order])) + 1
    size = model_gib.tolist()
    for rows in np.split(order, edges):
        if not len(rows):
            continue
        room = float(room_gib[instance.type_of[schedule.gpu[rows[0]]]])
        jobs = schedule.job[rows].tolist()
        to_come = _last_use(jobs)
        recent: list[int] = []  # resident models, the most recently used last
        for i, (row, n) in enumerate(zip(rows.tolist(), jobs, strict=True)):
            turns[row] = i > 0 and jobs[i - 1] != n
            resident[row] = turns[row] and n in recent
            recent = [*(other for other in recent if other != n), n]
            recent = _kept(recent, jobs[i + 1] if i + 1 < len(jobs) else -1, i, to_come, size, room, keep)
    return turns, resident


def with_switch_costs(
    instance: Instance, schedule: Schedule, turns: BoolArray, resident: BoolArray, hit_s: FloatArray, miss_s: FloatArray
) -> Instance:
    """The instance with each job's mean switch cost in this schedule; for a job that never switches it is that of a miss."""
    count = np.bincount(schedule.job[turns], minlength=instance.jobs)
    hits = np.bincount(schedule.job[resident], minlength=instance.jobs)
    part = np.divide(hits, count, out=np.zeros(instance.jobs), where=count > 0)
    return replace(instance, known=replace(instance.known, switch_s=part * hit_s + (1.0 - part) * miss_s))


def _kept(
    recent: list[int], following: int, now: int, to_come: dict[int, int], size: list[float], room: float, keep: Keep
) -> list[int]:
    if keep is Keep.NOTHING:
        return []
    first = recent[::-1]
    if keep is Keep.SPECULATIVE:
        first = [n for n in first if to_come[n] > now]
        first.sort(key=lambda n: n != following)  # stable: the others stay in order of recency
    kept: list[int] = []
    for n in first:
        if size[n] <= room:
            kept.append(n)
            room -= size[n]
    return [n for n in recent if n in kept]


def _last_use(jobs: list[int]) -> dict[int, int]:
    return {n: i for i, n in enumerate(jobs)}
