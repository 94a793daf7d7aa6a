"""A random cluster full of jobs at one moment, for measuring a single decision at scale."""

from __future__ import annotations

import numpy as np

from fairlead.model.arrays import FloatArray
from fairlead.model.cluster import NodeGroup, build_cluster
from fairlead.model.events import Arrived
from fairlead.model.jobs import JobSpec
from fairlead.rates.estimator import TableEstimator
from fairlead.rates.profile import ModelFacts, Profile, Speed
from fairlead.rounds.state import State

GPUS = ("k80", "m60", "p100", "t4", "v100", "a10", "a100", "h100")
MODELS = 40


def crowd(gpus: int, types: int, jobs: int, seed: int) -> State:
    """A state in which no job runs yet; lengths span three decades, widths are 1 to 8."""
    random = np.random.default_rng(seed)
    models = [f"m{k}" for k in range(MODELS)]
    rate = random_speeds(random, len(models), types)
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
        state.fold(Arrived(arrival_s, JobSpec(f"j{i}", "t", models[i % MODELS], arrival_s, width[i], steps[i])))
    state.pass_time(15000.0)
    return state


def random_speeds(random: np.random.Generator, rows: int, types: int) -> FloatArray:
    """j,i  speeds relative to the slowest type of each job."""
    steps = np.hstack([np.ones((rows, 1)), random.uniform(0.8, 2.0, (rows, types - 1))])
    speeds = np.exp(np.cumsum(np.log(steps), axis=1))
    return np.asarray(speeds / speeds.min(axis=1, keepdims=True))
