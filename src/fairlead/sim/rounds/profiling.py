"""The cost of measuring new models before they are scheduled, for any policy (ICS 2025)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from fairlead.model.allocation import Spot
from fairlead.model.cluster import Cluster
from fairlead.rates.estimator import allowed_rates
from fairlead.sim.truth import Truth


@dataclass(frozen=True, slots=True)
class Trial:
    """The measurement of a model on `gpus` GPUs of one type, from `start_s` to `end_s`."""

    start_s: float
    end_s: float
    type: int
    gpus: int


@dataclass(frozen=True, slots=True)
class Profiling:
    """All trials of a run, and when each job may be scheduled. Neither depends on the schedule."""

    ready_s: tuple[float, ...]  # j
    trials: tuple[Trial, ...]  # by start

    @property
    def gpu_s(self) -> float:
        return sum(trial.gpus * (trial.end_s - trial.start_s) for trial in self.trials)


def plan(truth: Truth) -> Profiling:
    """The trials of new models, one after another in order of arrival, at their width on every type that they can use.

    Each trial takes `profiling_s`. The type with the most memory comes first: it shows on which types the model does not
    fit, and those are never tried. A model is measured once at each width, and the profile is kept for later jobs. Jobs
    are identified by their order, so a job behind a new model waits for it.
    """
    each_s, cluster = truth.world.profiling_s, truth.cluster
    if not each_s:
        return Profiling(tuple(spec.arrival_s for spec in truth.jobs), ())
    largest_first = np.argsort(-cluster.memory_gib, kind="stable").tolist()
    known: set[tuple[str, int]] = set()
    free_s = 0.0
    ready_s: list[float] = []
    trials: list[Trial] = []
    for spec in truth.jobs:
        free_s = max(free_s, spec.arrival_s)
        if (spec.model, spec.gpus) not in known:
            known.add((spec.model, spec.gpus))
            runs = allowed_rates(spec, cluster, truth.rates) > 0  # t
            for t in largest_first:
                if runs[t]:
                    trials.append(Trial(free_s, free_s + each_s, t, spec.gpus))
                    free_s += each_s
        ready_s.append(free_s)
    return Profiling(tuple(ready_s), tuple(trials))


def in_the_way(trial: Trial, cluster: Cluster, held: Iterable[tuple[int, Spot]]) -> list[int]:
    """Jobs that pause for a trial. It takes the emptiest nodes of its type: free GPUs first, then those of jobs in order."""
    nodes = np.flatnonzero(cluster.node_type == trial.type).tolist()
    free = {node: int(cluster.node_gpus[node]) for node in nodes}
    on_node: dict[int, list[tuple[int, int]]] = {node: [] for node in nodes}
    for j, spot in held:
        for node, count in spot:
            if node in free:
                free[node] -= count
                on_node[node].append((j, count))
    paused: set[int] = set()
    need = trial.gpus
    for node in sorted(nodes, key=lambda node: (-free[node], node)):
        take = min(need, int(cluster.node_gpus[node]))
        short = take - free[node]
        for j, count in on_node[node]:
            if short > 0:
                paused.add(j)
                short -= count
        need -= take
        if not need:
            break
    return sorted(paused)
