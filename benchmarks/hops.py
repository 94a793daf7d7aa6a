"""Hops at scale: CPU seconds of one decision on one thread, value against the bound of the linear program, idle GPUs.

`python -m benchmarks.hops` prints the table. Each instance is decided twice: with an empty cluster, and one round later
when every job that was placed holds its GPUs. Instances marked as learnt know the speeds of single nodes, so that nearly all
differ; "of bound" then is against nodes that are alike inside a group. The last rows are the worst decision of a whole simulated run with hidden
node speeds, where nodes differ and stage 1 leaves the most open.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import numpy as np

from fairlead.model.arrays import IntArray
from fairlead.model.cluster import Cluster, NodeGroup, build_cluster
from fairlead.model.decision import Cause, Decision
from fairlead.model.events import Arrived, Started
from fairlead.model.jobs import JobSpec
from fairlead.model.view import View
from fairlead.numerics.spots import SpotPlan
from fairlead.policies import find_round_policy
from fairlead.policies.hops import hops, queue_order, window
from fairlead.policies.hops_planner import Planner, free_for_planning
from fairlead.rates.age import latency_ratio
from fairlead.rates.estimator import TableEstimator
from fairlead.rates.profile import ModelFacts, Profile, Speed
from fairlead.rates.three_layer import ThreeLayer
from fairlead.rounds.look import look
from fairlead.rounds.state import State
from fairlead.studies.papers.hops.experiment import ABLATION, run_one
from fairlead.studies.papers.hops.jobs import HopsJobs, large_cluster, workload

ROUND_S = 540.0
TYPES = ("1080ti", "titanxp", "v100", "a100", "p100", "k80", "t4", "h100")


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    gpus: int
    jobs: int
    cpu_s: float  # of one decision, all plans
    target_s: float
    of_bound: float | None  # value of the first plan / bound of its linear program
    idle: float  # GPUs left idle while jobs wait

    def __str__(self) -> str:
        share = "-" if self.of_bound is None else f"{self.of_bound:.4f}"
        return f"{self.name:34} {self.gpus:5} {self.jobs:5} {self.cpu_s:8.3f} {self.target_s:7.1f} {share:>9} {self.idle:5.1f}"


HEADER = f"{'':34} {'GPUs':>5} {'jobs':>5} {'cpu_s':>8} {'target':>7} {'of bound':>9} {'idle':>5}"
INSTANCES = (  # types, nodes, GPUs of a node, jobs, seconds wanted
    (4, 64, 8, 500, 1.0),
    (4, 128, 4, 500, 1.0),
    (4, 256, 8, 1000, 3.0),
    (8, 256, 8, 1000, 3.0),
)


def run() -> list[Row]:
    """Every row, printed as it is measured."""
    print(HEADER)
    rows: list[Row] = []
    _measure(*instance(2, 4, 4, 8, seed=0), "", 1.0)  # the solver's import is not ours to count
    _measure(*instance(2, 4, 4, 8, seed=0, learnt=True), "", 1.0)
    for types, nodes, size, jobs, target_s in INSTANCES:
        for learnt in (False, True):
            for seed in (1, 2):
                made = instance(types, nodes, size, jobs, seed, learnt=learnt)
                name = f"{nodes} x {size}, {types} types{', learnt' if learnt else ''}, seed {seed}"
                rows += _measure(*made, name, target_s)
    for seed in (0, 1):
        rows.append(_worst_of_a_run(seed))
        print(rows[-1])
    return rows


def _worst_of_a_run(seed: int) -> Row:
    """The 512 GPUs of `fairlead reproduce hops` with 500 jobs."""
    cluster, jobs = large_cluster(), 500
    trace = workload(seed, jobs, 100.0, HopsJobs("narrow", 1.0, 0.25))  # the same jobs as in earlier measurements
    numbers = run_one(cluster, trace, ABLATION["hops-late, rounds only"], seed)
    return Row(
        f"worst of a run, seed {seed}", cluster.total_gpus, jobs, numbers["decision_s"], 1.0, None, numbers["idle"]
    )


def instance(types: int, nodes: int, size: int, jobs: int, seed: int, *, learnt: bool = False) -> tuple[Cluster, State]:
    """Jobs of 24 models that have waited for log-normal times; up to 8 allowed widths from 1 to 16.

    With `learnt` every job was seen on four nodes, whose hidden speeds are 0.75-1.05, with 2 % of noise.
    """
    rng = np.random.default_rng(seed)
    cluster = build_cluster([NodeGroup(nodes // types, gpu, size, 16.0) for gpu in TYPES[:types]])
    speed = np.cumprod(rng.uniform(1.0, 1.8, (24, types)), axis=1)
    profile = Profile(
        "made up",
        tuple(
            Speed(f"m{m}", gpu, 1, 1, 1.0, float(speed[m, t]), "made up")
            for m in range(24)
            for t, gpu in enumerate(TYPES[:types])
        ),
        {f"m{m}": ModelFacts(restart_s=30.0, spread=float(rng.uniform(0.5, 0.98))) for m in range(24)},
    )
    table = TableEstimator(profile, cluster)
    learner = ThreeLayer(table, cluster)
    factor = np.random.default_rng(seed + 100).uniform(0.75, 1.05, nodes)
    state = State(cluster, learner if learnt else table)
    wait_s = np.sort(np.minimum(1800.0 * np.exp(rng.standard_normal(jobs)), 40_000.0))[::-1]
    for i in range(jobs):
        count = int(rng.integers(1, 9))
        widths = tuple(sorted(rng.choice(16, count, replace=False) + 1))
        width = int(widths[count // 2])
        samples = 3600.0 * float(np.exp(rng.standard_normal())) * width
        spec = JobSpec(
            f"j{i}",
            "t",
            f"m{int(rng.integers(24))}",
            40_000.0 - float(wait_s[i]),
            width,
            samples,
            tuple(map(int, widths)),
        )
        state.fold(Arrived(spec.arrival_s, spec))
        for node in rng.choice(nodes, 4, replace=False).tolist() if learnt else ():
            rate = table.at(spec.model, int(cluster.node_type[node]), 1, 1) * factor[node] * rng.normal(1.0, 0.02)
            learner.observe(i, spec.model, ((node, 1),), float(rate))
    state.pass_time(40_000.0)
    return cluster, state


def _measure(cluster: Cluster, state: State, name: str, target_s: float) -> list[Row]:
    rows = []
    for when in ("empty", "running"):
        view = _view(state)
        first = _first_plan(view)
        view = _view(state)
        start_s = time.process_time()
        placement, _ = hops(view, None)
        cpu_s = time.process_time() - start_s
        used = sum(gpus for spot in placement.spots for _, gpus in spot)
        waits = any(not spot for spot in placement.spots)
        idle = cluster.total_gpus - used if waits else 0
        share = first.value / first.bound if math.isfinite(first.bound) and first.bound > 0 else None
        rows.append(Row(f"{name}, {when}", cluster.total_gpus, state.active, cpu_s, target_s, share, idle))
        if name:
            print(rows[-1])
        started: IntArray = np.array([j for j, spot in enumerate(placement.spots) if spot], dtype=np.int64)
        if when == "empty":
            spots = tuple(placement.spots[j] for j in started.tolist())
            now_s = state.now_s
            state.fold(Decision(now_s, Cause.ROUND, started[:0], started, spots, now_s, ""))
            resume_s = np.full(len(started), now_s)
            state.fold(Started(now_s, started, np.ones(len(started)), resume_s, measured=False))
            state.pass_time(now_s + ROUND_S)
    return rows


def _first_plan(view: View) -> SpotPlan:
    """Alone, with its value and the bound on it."""
    prior = latency_ratio(view)
    planner = Planner(view, prior)
    free = free_for_planning(view, np.zeros(view.jobs, dtype=np.bool_))
    return planner.plan(window(queue_order(prior), planner.least, int(free.sum())), free)


def _view(state: State) -> View:
    return look(state, find_round_policy("hops"), ROUND_S)


if __name__ == "__main__":
    run()
