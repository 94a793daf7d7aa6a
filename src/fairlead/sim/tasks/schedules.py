"""Task-level simulation: turns a rule or a list into a schedule. No policy is named here; rules are data.

Events are arrivals, ends of tasks and barriers. Synchronisation overlaps the GPU's next task, and takes longer if the
round ran on several nodes. A GPU that switches from one job to another first pays for the switch. Tasks are never interrupted; jobs are pre-empted between tasks.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.tasks import Instance, Rule, Schedule, weighted_completion_s
from fairlead.numerics.random import stream


def run_rule(instance: Instance, rule: Rule, pace: FloatArray | None = None) -> Schedule:
    """The schedule of a rule that dispatches after every event. Rows are in order of start.

    `pace` (m) is the duration of a task on a GPU relative to other GPUs of its type, which no rule knows.
    """
    from fairlead.sim.tasks import kernel  # numba is slow to import; only this simulator needs it

    known = instance.known
    columns = kernel.run_events(
        instance.arrival_s,
        instance.rounds,
        known.scale,
        known.task_s,
        known.sync_s,
        known.switch_s,
        known.gpus,
        rule.base,
        rule.slope,
        rule.by_round,
        known.weight,
        rule.unit,
        float(rule.growth),
        int(rule.queues),
        float(rule.promote),
        int(rule.choice),
        float(rule.sigma),
        known.task_s if rule.cost_s is None else rule.cost_s,
        blind_rank(instance),
        instance.last_part,
        _pace(instance, pace),
        float(np.median(known.fastest_s)) if known.jobs else 0.0,
        known.restarts,
        *_nodes(instance),
    )
    return Schedule(*columns[:6])


def run_list(instance: Instance, job: IntArray, *, earliest_finish: bool, pace: FloatArray | None = None) -> Schedule:
    """The schedule of rounds in a fixed order (a job's r-th occurrence is its r-th round), task by task.

    A task goes where it ends first, or to the GPU of any type that is free first. Gaps are not filled later.
    """
    from fairlead.sim.tasks import kernel

    known = instance.known
    columns = kernel.run_list(
        job,
        known.scale,
        known.task_s,
        known.sync_s,
        known.switch_s,
        instance.arrival_s,
        known.gpus,
        earliest_finish,
        blind_rank(instance),
        instance.rounds,
        instance.last_part,
        _pace(instance, pace),
        known.restarts,
        *_nodes(instance),
    )
    return Schedule(*columns)


def best_of(
    instance: Instance, candidates: Iterable[tuple[str, Rule | IntArray]], pace: FloatArray | None = None
) -> tuple[str, Schedule]:
    """The candidate (a rule, or a list for earliest finish) with the smallest sum of w C; ties go to the first."""
    best: tuple[float, str, Schedule] | None = None
    for name, candidate in candidates:
        schedule = (
            run_rule(instance, candidate, pace)
            if isinstance(candidate, Rule)
            else run_list(instance, candidate, earliest_finish=True, pace=pace)
        )
        total_s = weighted_completion_s(instance, schedule)
        if best is None or total_s < best[0]:
            best = total_s, name, schedule
    if best is None:
        raise ValueError("there are no candidates; wanted at least one rule or list")
    return best[1], best[2]


def _nodes(instance: Instance) -> tuple[IntArray, FloatArray]:
    """(m the node of each GPU, n,g,N synchronisation by nodes, empty if nodes do not matter)."""
    known = instance.known
    if not known.spread_sync_s.size:
        return np.zeros(int(known.gpus.sum()), dtype=np.int64), np.empty((0, 0, 0))
    return known.node_of, known.spread_sync_s


def _pace(instance: Instance, pace: FloatArray | None) -> FloatArray:
    return np.ones(int(instance.known.gpus.sum())) if pace is None else pace


def blind_rank(instance: Instance) -> IntArray:
    """m  the order of GPUs for a rule that does not see types; shuffled, because GPUs are numbered by type."""
    return stream(0, "order of GPUs").permutation(int(instance.known.gpus.sum()))
