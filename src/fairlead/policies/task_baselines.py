"""Hare's baselines at task level: gangs in three orders, tasks without regard to types, one GPU per job.

A gang key orders jobs, the smallest first. It receives the service of the job so far, and knows lengths only if it was
made from an `Instance`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.tasks import Choice, Instance, Known, Rule

# (job, rounds done, GPU-seconds held) -> sort key
GangKey = Callable[[int, int, float], tuple[float, int]]
STAY = 1e12  # seconds: larger than any key, so that a job that has started goes first


def fifo(known: Known) -> GangKey:
    """First come, first served (Gavel_FIFO in the paper)."""
    return lambda n, done, held_s: (0.0, n)


def srtf(instance: Instance) -> GangKey:
    """Shortest remaining time first: remaining rounds at (p_n + s_n), by weight."""
    known = instance.known
    round_s = ((known.fastest_s + known.quickest_sync_s) / known.weight).tolist()
    rounds = instance.rounds.tolist()
    return lambda n, done, held_s: ((rounds[n] - done) * round_s[n], n)


def two_dimensional_las(known: Known, *, first_tasks: float = 16.0, growth: float = 4.0, queues: int = 7) -> GangKey:
    """Tiresias: queues by GPU-seconds held (gang size x time), first come first served inside a queue."""
    unit = first_tasks * float(np.median(known.task_s))
    weight = known.weight.tolist()

    def key(n: int, done: int, held_s: float) -> tuple[float, int]:
        level, edge = 0, unit
        while held_s / weight[n] >= edge and level < queues - 1:
            level, edge = level + 1, edge * growth
        return float(level), n

    return key


def by_size(instance: Instance) -> GangKey:
    """Jobs by weighted size, K_n times the mean task time over all GPUs: the order of `homogeneous` for gangs."""
    known = instance.known
    size = (instance.tasks * (known.task_s @ known.gpus / known.gpus.sum()) / known.weight).tolist()
    return lambda n, done, held_s: (size[n], n)


def homogeneous(instance: Instance) -> Rule:
    """Sched_Homo: tasks of a round in parallel, jobs by weighted size, all GPUs treated as equal, no pre-emption.

    Departs: the paper names the algorithm (MobiHoc 2020) but not its details; the size is K_n times the mean task time.
    """
    known = instance.known
    mean_s = known.task_s @ known.gpus / known.gpus.sum()
    return Rule(instance.tasks * mean_s / known.weight, np.full(instance.jobs, -STAY), choice=Choice.LONGEST_IDLE)


def match_jobs(size_s: FloatArray, free_in_s: FloatArray) -> tuple[IntArray, IntArray]:
    """AlloX (EuroSys 2020): (GPU, place from the end) of each waiting job; the sum of completion times is least.

    `size_s` (j,m) is a job's time on a GPU. A job that is l-th from the end of a GPU's queue delays l jobs, including
    itself, by its size, and waits for the job that runs there now:  cost = l size_s[j,m] + free_in_s[m]. As in the paper,
    weights are not used.
    """
    from fairlead.numerics.matching import match

    jobs, gpus = size_s.shape
    # Queues of fast GPUs are longer than the mean. If the last place is used, more places are added.
    places = min(jobs, 4 * -(-jobs // gpus) + 4)
    while True:
        behind = np.arange(1, places + 1)
        cost = size_s[:, :, None] * behind + free_in_s[:, None]
        column = match(np.ascontiguousarray(cost.reshape(jobs, gpus * places)))
        gpu, place = np.divmod(column, places)
        if places == jobs or place.max() < places - 1:
            return gpu, place + 1
        places = min(jobs, 2 * places)
