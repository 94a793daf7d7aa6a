"""Task-level simulation: a rule or a list in, a schedule out. No policy is named here; rules are data.

Events are arrivals, ends of tasks and barriers. Synchronisation overlaps the GPU's next task. A GPU that turns from one
job to another first pays the switch. Tasks are never interrupted; jobs give way between tasks.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.tasks import Instance, Rule, Schedule, weighted_completion_s
from fairlead.numerics.random import stream


def run_rule(given: Instance, rule: Rule, pace: FloatArray | None = None) -> Schedule:
    """Dispatch by the rule after every event. Rows are in the order of starts.

    `pace` (m) tells how many times as long a task takes on a GPU as on others of its type, which no rule knows.
    """
    from fairlead.sim.tasks import kernel  # numba: half a second that only this simulator pays

    known = given.known
    columns = kernel.run_events(
        known.arrival_s,
        given.rounds,
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
        blind_rank(given),
        given.last_part,
        _pace(given, pace),
        float(np.median(known.fastest_s)) if known.jobs else 0.0,
    )
    return Schedule(*columns[:6])


def run_list(given: Instance, job: IntArray, *, earliest_finish: bool, pace: FloatArray | None = None) -> Schedule:
    """Rounds in a fixed order (a job's r-th mention is its r-th round), task by task.

    A task goes where it ends first, or on the GPU that is free first, whatever its type. Holes are not filled later.
    """
    from fairlead.sim.tasks import kernel

    known = given.known
    columns = kernel.run_list(
        job,
        known.scale,
        known.task_s,
        known.sync_s,
        known.switch_s,
        known.arrival_s,
        known.gpus,
        earliest_finish,
        blind_rank(given),
        given.rounds,
        given.last_part,
        _pace(given, pace),
    )
    return Schedule(*columns)


def best_of(
    given: Instance, candidates: Iterable[tuple[str, Rule | IntArray]], pace: FloatArray | None = None
) -> tuple[str, Schedule]:
    """The candidate (a rule, or a list for earliest finish) with the smallest sum of w C; the first one among equals."""
    found: tuple[float, str, Schedule] | None = None
    for name, candidate in candidates:
        schedule = (
            run_rule(given, candidate, pace)
            if isinstance(candidate, Rule)
            else run_list(given, candidate, earliest_finish=True, pace=pace)
        )
        total_s = weighted_completion_s(given, schedule)
        if found is None or total_s < found[0]:
            found = total_s, name, schedule
    if found is None:
        raise ValueError("there is nothing to choose from")
    return found[1], found[2]


def _pace(given: Instance, pace: FloatArray | None) -> FloatArray:
    return np.ones(int(given.known.gpus.sum())) if pace is None else pace


def blind_rank(given: Instance) -> IntArray:
    """m  the order in which a rule that does not see types meets equal GPUs: shuffled, or it would see them after all."""
    return stream(0, "order of GPUs").permutation(int(given.known.gpus.sum()))
