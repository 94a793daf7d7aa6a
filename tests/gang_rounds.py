"""Random rounds of gangs and GPU types, and the rules that every decision about one must obey."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.policies.fft import phi


class Round(NamedTuple):
    c: FloatArray  # j,i
    runs: BoolArray  # j,i
    d: IntArray  # j
    Y: IntArray  # i
    held: IntArray  # j


def random_round(gpus: int, types: int, jobs: int, seed: int) -> Round:
    """A round with lengths over three decades, ages up to 50 rounds, a third of the jobs behind, restarts of 0.05 to 0.5."""
    random = np.random.default_rng(seed)
    Y = np.full(types, gpus // types)
    d = random.choice([1, 2, 4, 8], jobs, p=[0.5, 0.2, 0.2, 0.1])
    theta = np.exp(
        np.cumsum(np.log(np.hstack([np.ones((jobs, 1)), random.uniform(0.8, 2.0, (jobs, types - 1))])), axis=1)
    )
    theta = theta / theta.min(axis=1, keepdims=True)
    rho = np.where(random.random(jobs) < 0.3, random.exponential(1.0, jobs), 0.0)
    last = random.integers(-1, types, jobs)
    moves = (last >= 0)[:, None] & (last[:, None] != np.arange(types))
    s = np.where(moves, random.uniform(0.05, 0.5, jobs)[:, None], 0.0)
    c = phi(random.uniform(0, 50, jobs), theta, np.exp(random.normal(2.0, 1.5, jobs)), d) + s - rho[:, None] * theta
    return Round(c, random.random((jobs, types)) < 0.95, d, Y, np.where(random.random(jobs) < 0.3, last, -1))


def check_sound(case: Round, type_of: IntArray) -> None:
    """Jobs run where they can, no type is oversubscribed, and no GPU is idle that a job could use."""
    ran = np.flatnonzero(type_of >= 0)
    assert case.runs[ran, type_of[ran]].all()
    free = case.Y - np.bincount(type_of[ran], case.d[ran], len(case.Y)).astype(np.int64)
    assert (free >= 0).all()
    waiting = type_of < 0
    assert not (case.runs[waiting] & (case.d[waiting][:, None] <= free)).any()
