"""Jobs of a trace as rounds of tasks, with times from the same rates at which gangs run.

A gang of k GPUs of type g takes k b / r_g seconds for a step (b samples per GPU, r_g its rate). One GPU alone would compute
for b / r_1g seconds: that is the task, and the rest is synchronisation. So k equal GPUs have exactly the gang's rate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.cluster import Cluster
from fairlead.model.jobs import JobSpec
from fairlead.model.tasks import Instance, Known
from fairlead.rates.estimator import Estimator, allowed_types
from fairlead.sim.truth import Truth

MOST_TASKS = (
    3_000_000  # of a run; if there would be more, steps are grouped further, so that a run takes about a minute
)
_WHOLE = 1e-9  # relative distance at which steps count as a whole number of rounds


@dataclass(frozen=True, slots=True, eq=False)
class TaskJobs:
    """`believed` is what can be known (declared lengths, assumed speeds), `true` what happens; both have the same tasks."""

    believed: Instance
    true: Instance
    pace: FloatArray  # m  duration of a task on a GPU relative to other GPUs of its type
    samples: FloatArray  # n  of one task
    task_s: float  # approximate duration of a task on the fastest type


def as_tasks(
    truth: Truth, believed: Estimator, *, task_s: float, switch: float, switch_s: float | None, most: int = MOST_TASKS
) -> TaskJobs:
    """The jobs as tasks: steps are grouped so that a task takes about `task_s` on the job's fastest type, for any length.

    Every job counts as relaxed: its tasks may mix types. `switch` is the cost of a GPU's switch to another job as a part
    of a task; `switch_s` is the same in seconds, for all jobs.
    """
    cluster, jobs = truth.cluster, truth.jobs
    believed_times = [_times(spec, cluster, believed) for spec in jobs]
    real = [_times(spec, cluster, truth.rates) for spec in jobs]
    compute_s = np.array([T for T, _ in believed_times]).reshape(len(jobs), -1)  # n,g  of one step
    fastest_s = compute_s.min(axis=1, initial=np.inf)
    scale = np.array([spec.gpus for spec in jobs], dtype=np.int64)
    steps = np.array([float(spec.steps or 0.0) for spec in jobs])
    group, task_s = _group(fastest_s, steps, scale, task_s, most)  # n  steps of a task
    declared = np.array([float(spec.steps or 0.0) for spec in truth.declared()])
    per_step = np.array([truth.rates.samples_per_step(spec.model, spec.gpus) for spec in jobs]) / np.maximum(scale, 1)
    turn_s = switch * group * fastest_s if switch_s is None else np.full(len(jobs), switch_s)

    arrival_s = np.array([spec.arrival_s for spec in jobs])

    def known(times: Sequence[tuple[FloatArray, FloatArray]]) -> Known:
        T = np.array([T for T, _ in times]).reshape(compute_s.shape) * group[:, None]
        S = np.array([S for _, S in times]).reshape(compute_s.shape) * group[:, None]
        return Known(
            weight=np.array([spec.weight for spec in jobs]),
            scale=scale,
            task_s=np.where(np.isinf(compute_s), np.inf, T),
            sync_s=S,
            gpus=cluster.capacity.astype(np.int64),
            switch_s=turn_s,
        )

    return TaskJobs(
        believed=_instance(known(believed_times), arrival_s, declared, group),
        true=_instance(known(real), arrival_s, steps, group),
        pace=1.0 / np.array(truth.factor)[nodes_of_gpus(cluster)],
        samples=per_step * group,
        task_s=task_s,
    )


def _instance(known: Known, arrival_s: FloatArray, steps: FloatArray, group: FloatArray) -> Instance:
    rounds, last = _rounds(steps, group)
    return Instance(known, rounds, arrival_s, last)


def nodes_of_gpus(cluster: Cluster) -> IntArray:
    """m  the node of each GPU; GPUs are numbered type by type."""
    by_type = np.argsort(cluster.node_type, kind="stable")
    return np.asarray(np.repeat(by_type, cluster.node_gpus[by_type]))


def _times(spec: JobSpec, cluster: Cluster, rates: Estimator) -> tuple[FloatArray, FloatArray]:
    """(t, t) computation and synchronisation of one step, inf and 0 on types where the job cannot run.

    Departs: if a gang has less than half the rate of its GPUs alone, the paper's assumption T >= S would not hold; T is
    then half of the step.
    """
    k = spec.gpus
    batch = rates.samples_per_step(spec.model, k) / k
    compute_s, sync_s = np.full(len(cluster.types), np.inf), np.zeros(len(cluster.types))
    for t in allowed_types(spec, cluster):
        nodes = (
            cluster.fewest_nodes(t, k) if k <= cluster.capacity[t] else max(2, -(-k // int(cluster.largest_node[t])))
        )
        gang, alone = rates.at(spec.model, t, k, nodes), rates.at(spec.model, t, 1, 1)
        if gang > 0:
            step_s = k * batch / gang
            compute_s[t] = step_s if k == 1 or alone <= 0 else min(max(batch / alone, step_s / 2), step_s)
            sync_s[t] = step_s - compute_s[t]
    return compute_s, sync_s


def _group(
    fastest_s: FloatArray, steps: FloatArray, scale: IntArray, task_s: float, most: int
) -> tuple[FloatArray, float]:
    """Steps per task by job (n), and the duration of a task that they aim at."""
    while True:
        group = np.maximum(task_s / fastest_s, 1.0)
        tasks = float((_rounds(steps, group)[0] * scale).sum()) if len(steps) else 0.0
        if tasks <= most or (group >= steps).all():
            return group, task_s
        task_s *= max(tasks / most, 1.05)


def _rounds(steps: FloatArray, group: FloatArray) -> tuple[IntArray, FloatArray]:
    """n  the number of rounds, and the size of the last one as a part of a round."""
    exact = steps / group
    rounds = np.maximum(np.ceil(exact * (1.0 - _WHOLE)), 1.0)
    return rounds.astype(np.int64), np.clip(exact - (rounds - 1.0), math.ulp(1.0), 1.0)
