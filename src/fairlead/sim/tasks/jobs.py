"""Jobs of a trace as rounds of tasks, with times from the same rates at which gangs run.

A gang of k GPUs of type g takes k b / r_g seconds for a step (b samples per GPU, r_g its rate). One GPU alone would compute
for b / r_1g seconds: that is the task, and the rest is synchronisation. The rate depends on the number of nodes, so the
synchronisation does too, and k equal GPUs have exactly the rate that a gang has on the same nodes (rates/spot.py).
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
from fairlead.placement.moves import RESTARTS_WORTH
from fairlead.rates.estimator import Estimator, allowed_types
from fairlead.rounds.loop import Settings, Switching
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
    task_s: FloatArray  # n  approximate duration of a task on the fastest type


def as_tasks(truth: Truth, believed: Estimator, settings: Settings, *, most: int = MOST_TASKS) -> TaskJobs:
    """The jobs as tasks: steps are grouped so that a task takes about `task_s` on the job's fastest type, for any length.

    A task is longer where a job must keep its GPUs longer: for `min_run_s`, and, if a switch is a restart, for twice the
    restart cost, as everywhere else. Every job counts as relaxed: its tasks may mix types.
    """
    cluster, jobs = truth.cluster, truth.jobs
    believed_times, real = _times_of(jobs, cluster, believed), _times_of(jobs, cluster, truth.rates)
    compute_s = np.array([T for T, _ in believed_times]).reshape(len(jobs), -1)  # n,g  of one step
    restarts = settings.switching is Switching.RESTART
    restart_s = np.array(truth.restart_s)  # n
    least_s = np.maximum(settings.task_s, settings.min_run_s)
    least_s = np.maximum(least_s, RESTARTS_WORTH * restart_s if restarts else 0.0)  # n
    fastest_s = compute_s.min(axis=1, initial=np.inf)
    scale = np.array([spec.gpus for spec in jobs], dtype=np.int64)
    steps = np.array([float(spec.steps or 0.0) for spec in jobs])
    group, task_s = _group(fastest_s, steps, scale, least_s, most)  # n  steps of a task, and its duration
    declared = np.array([float(spec.steps or 0.0) for spec in truth.declared()])
    per_step = np.array([truth.rates.samples_per_step(spec.model, spec.gpus) for spec in jobs]) / np.maximum(scale, 1)
    turn_s = restart_s if restarts else settings.task_switch * group * fastest_s

    fewest_of = {k: _fewest_nodes(k, cluster) for k in {spec.gpus for spec in jobs}}
    arrival_s = np.array([spec.arrival_s for spec in jobs])

    def known(times: Sequence[tuple[FloatArray, FloatArray]]) -> Known:
        T = np.array([T for T, _ in times]).reshape(compute_s.shape) * group[:, None]
        spread_s = _padded([S for _, S in times], len(cluster.types)) * group[:, None, None]
        fewest = np.array([fewest_of[spec.gpus] for spec in jobs]).reshape(compute_s.shape)
        S = np.take_along_axis(spread_s, np.minimum(fewest, spread_s.shape[2])[:, :, None] - 1, axis=2)[:, :, 0]
        return Known(
            weight=np.array([spec.weight for spec in jobs]),
            scale=scale,
            task_s=np.where(np.isinf(compute_s), np.inf, T),
            sync_s=S,
            gpus=cluster.capacity.astype(np.int64),
            switch_s=turn_s,
            restarts=restarts,
            node_of=nodes_of_gpus(cluster),
            spread_sync_s=spread_s,
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


def _times_of(jobs: Sequence[JobSpec], cluster: Cluster, rates: Estimator) -> list[tuple[FloatArray, FloatArray]]:
    """The times of each job's step, computed once for all jobs of one kind."""
    kinds = {(spec.model, spec.gpus, spec.types): spec for spec in jobs}
    times = {kind: _times(spec, cluster, rates) for kind, spec in kinds.items()}
    return [times[spec.model, spec.gpus, spec.types] for spec in jobs]


def _times(spec: JobSpec, cluster: Cluster, rates: Estimator) -> tuple[FloatArray, FloatArray]:
    """(t, t x N) computation of one step and its synchronisation on 1, 2 .. nodes; inf and 0 where the job cannot run.

    On N nodes the step takes as long as that of a gang on N nodes. Departs: if a gang on the fewest nodes has less than
    half the rate of its GPUs alone, the paper's assumption T >= S would not hold; T is then half of the step.
    """
    k, types = spec.gpus, len(cluster.types)
    batch = rates.samples_per_step(spec.model, k) / k
    most = max(1, min(k, len(cluster.nodes)))
    compute_s, sync_s = np.full(types, np.inf), np.zeros((types, most))
    fewest = _fewest_nodes(k, cluster)
    for t in allowed_types(spec, cluster):
        gang, alone = rates.at(spec.model, t, k, fewest[t]), rates.at(spec.model, t, 1, 1)
        if gang > 0:
            step_s = k * batch / gang
            compute_s[t] = step_s if k == 1 or alone <= 0 else min(max(batch / alone, step_s / 2), step_s)
            by_nodes = np.array([rates.at(spec.model, t, k, nodes) for nodes in range(1, most + 1)])  # N
            slower = np.where(by_nodes > 0, by_nodes, by_nodes[by_nodes > 0].min(initial=gang))
            sync_s[t] = np.maximum(k * batch / slower - compute_s[t], 0.0)
    return compute_s, sync_s


def _fewest_nodes(k: int, cluster: Cluster) -> list[int]:
    """t  the fewest nodes for k GPUs; if the type has too few of them, as many as it would need, and at least two."""
    capacity, largest = cluster.capacity.tolist(), cluster.largest_node.tolist()
    return [
        cluster.fewest_nodes(t, k) if k <= capacity[t] else max(2, -(-k // largest[t]))
        for t in range(len(cluster.types))
    ]


def _padded(tables: Sequence[FloatArray], types: int) -> FloatArray:
    """n,g,N  tables of different lengths in one array; a job never has tasks on more nodes than its own table has."""
    most = max((table.shape[1] for table in tables), default=1)
    padded = np.zeros((len(tables), types, most))
    for n, table in enumerate(tables):
        padded[n, :, : table.shape[1]] = table
        padded[n, :, table.shape[1] :] = table[:, -1:]
    return padded


def _group(
    fastest_s: FloatArray, steps: FloatArray, scale: IntArray, task_s: FloatArray, most: int
) -> tuple[FloatArray, FloatArray]:
    """Steps per task by job (n), and the durations of tasks that they aim at (n)."""
    while True:
        group = np.maximum(task_s / fastest_s, 1.0)
        tasks = float((_rounds(steps, group)[0] * scale).sum()) if len(steps) else 0.0
        if tasks <= most or (group >= steps).all():
            return group, task_s
        task_s = task_s * max(tasks / most, 1.05)


def _rounds(steps: FloatArray, group: FloatArray) -> tuple[IntArray, FloatArray]:
    """n  the number of rounds, and the size of the last one as a part of a round."""
    exact = steps / group
    rounds = np.maximum(np.ceil(exact * (1.0 - _WHOLE)), 1.0)
    return rounds.astype(np.int64), np.clip(exact - (rounds - 1.0), math.ulp(1.0), 1.0)
