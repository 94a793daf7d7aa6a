"""One decision of FFT at scale: CPU seconds of one thread, beside the target.

`python -m benchmarks.fft` prints the table. The paper's program takes 1.53 s for 1000 GPUs, 8 types and 4000 jobs.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from fairlead.model.arrays import FloatArray
from fairlead.model.cluster import NodeGroup, build_cluster
from fairlead.model.events import Arrived
from fairlead.model.jobs import JobSpec
from fairlead.numerics.gangs import assign
from fairlead.policies import REGISTRY
from fairlead.policies.fft import fft, phi
from fairlead.rates.estimator import TableEstimator
from fairlead.rates.profile import ModelFacts, Profile, Speed
from fairlead.rounds.look import look
from fairlead.rounds.state import State

GPUS = ("k80", "m60", "p100", "t4", "v100", "a10", "a100", "h100")
SEEDS = 3


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    gpus: int
    types: int
    jobs: int
    cpu_s: float  # the worst of the seeds
    target_s: float | None = None
    how: str = ""

    def __str__(self) -> str:
        target = "-" if self.target_s is None else format(self.target_s, ".1f")
        return f"{self.name:34} {self.gpus:5} {self.types:6} {self.jobs:5} {self.cpu_s:9.4f} {target:>7}  {self.how}"


HEADER = f"{'':34} {'GPUs':>5} {'types':>6} {'jobs':>5} {'cpu_s':>9} {'target':>7}  found by"


def run() -> list[Row]:
    """Every row, printed as it is measured."""
    print(HEADER)
    rows: list[Row] = []
    assign(
        np.ones((1, 1)),
        np.ones((1, 1), dtype=np.bool_),
        np.ones(1, dtype=np.int64),
        np.ones(1, dtype=np.int64),
        np.full(1, -1),
    )
    for gpus, types, jobs, target_s in (
        (512, 4, 200, None),
        (512, 4, 500, None),
        (2048, 4, 1000, None),
        (2048, 8, 1000, None),
        (1000, 8, 4000, 0.5),
    ):
        rows.append(_program(gpus, types, jobs, target_s))
        print(rows[-1])
        rows.append(_decision(gpus, types, jobs, target_s))
        print(rows[-1])
    return rows


def _program(gpus: int, types: int, jobs: int, target_s: float | None) -> Row:
    """Random costs: lengths over three decades, a third of the jobs behind, restarts of 0.05 to 0.5 rounds."""
    spent, how = [], []
    for seed in range(SEEDS):
        random = np.random.default_rng(seed)
        d = random.choice([1, 2, 4, 8], jobs, p=[0.5, 0.2, 0.2, 0.1])
        theta = _speeds(random, jobs, types)
        rho = np.where(random.random(jobs) < 0.3, random.exponential(1.0, jobs), 0.0)
        last = random.integers(-1, types, jobs)
        moves = (last >= 0)[:, None] & (last[:, None] != np.arange(types))
        s = np.where(moves, random.uniform(0.05, 0.5, jobs)[:, None], 0.0)
        W = np.exp(random.normal(2.0, 1.5, jobs))
        c = phi(random.uniform(0.0, 50.0, jobs), theta, W, d) + s - rho[:, None] * theta
        runs = random.random((jobs, types)) < 0.95
        started_s = time.process_time()
        how.append(assign(c, runs, d, np.full(types, gpus // types), last)[1])
        spent.append(time.process_time() - started_s)
    return Row("one round's program", gpus, types, jobs, max(spent), target_s, ", ".join(how))


def _decision(gpus: int, types: int, jobs: int, target_s: float | None) -> Row:
    """A whole decision from a state full of jobs: costs, program and memory; the second of two, with a memory."""
    spent, how = [], []
    for seed in range(SEEDS):
        state = _crowd(gpus, types, jobs, seed)
        memory = None
        for _ in range(2):
            view = look(state, REGISTRY["fft"], 300.0)
            started_s = time.process_time()
            grants, memory = fft(view, memory)
            cpu_s = time.process_time() - started_s
            state.pass_time(state.now_s + 300.0)
        spent.append(cpu_s)
        how.append(grants.answer.solver)
    return Row("  a decision, costs and memory", gpus, types, jobs, max(spent), target_s, ", ".join(how))


def _crowd(gpus: int, types: int, jobs: int, seed: int) -> State:
    random = np.random.default_rng(seed)
    models = [f"m{k}" for k in range(40)]
    rate = _speeds(random, len(models), types)
    speeds = Profile(
        "random",
        tuple(
            Speed(model, gpu, 1, 1, 1.0, float(rate[k, t]), "random")
            for k, model in enumerate(models)
            for t, gpu in enumerate(GPUS[:types])
        ),
        {model: ModelFacts(restart_s=float(random.uniform(15.0, 150.0))) for model in models},
    )
    cluster = build_cluster([NodeGroup(gpus // types // 8 or 1, gpu, 8) for gpu in GPUS[:types]])
    state = State(cluster, TableEstimator(speeds, cluster))
    width = random.choice([1, 2, 4, 8], jobs, p=[0.5, 0.2, 0.2, 0.1]).tolist()
    steps = (300.0 * np.exp(random.normal(2.0, 1.5, jobs))).tolist()
    for i, arrival_s in enumerate(np.sort(random.uniform(0.0, 15000.0, jobs)).tolist()):
        state.fold(Arrived(arrival_s, JobSpec(f"j{i}", "t", models[i % 40], arrival_s, width[i], steps[i])))
    state.pass_time(15000.0)
    return state


def _speeds(random: np.random.Generator, rows: int, types: int) -> FloatArray:
    """j,i  relative to the slowest type of each job."""
    steps = np.hstack([np.ones((rows, 1)), random.uniform(0.8, 2.0, (rows, types - 1))])
    speeds = np.exp(np.cumsum(np.log(steps), axis=1))
    return np.asarray(speeds / speeds.min(axis=1, keepdims=True))


if __name__ == "__main__":
    run()
