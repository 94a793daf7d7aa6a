"""Comparative advantage in the choice of a GPU: what a second on each type costs the other jobs that could use it.

Earliest finish alone sends every job to the fastest type. With prices, a job goes where it gains more than others do.
"""

from __future__ import annotations

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.tasks import Known
from fairlead.numerics.solve import LinearProgram, Optimal, columns_from_entries, solve

# Strength of comparative advantage on traces: at 0.5 a job leaves a fast GPU idle if few compete (docs/decisions/0034).
MILD_ADVANTAGE = 0.25


def comparative(known: Known, strength: float) -> FloatArray:
    """n,g  T[n,g] V_g^strength, V_g = geometric mean of p/T[.,g] over the jobs up to n.

    A type that is fast for all jobs is expensive, so a job takes it only if it gains more than the others. 0 means T.
    """
    if strength == 0.0 or not known.jobs:
        return known.task_s
    runs = np.isfinite(known.task_s)
    speed = np.log(known.fastest_s[:, None] / known.task_s, out=np.zeros_like(known.task_s), where=runs)
    mean = np.cumsum(speed, axis=0) / np.maximum(np.cumsum(runs, axis=0), 1)  # over the jobs that run on the type
    return np.asarray(known.task_s * np.exp(strength * mean))


def priced(known: Known, tasks: IntArray, strength: float = 1.0) -> FloatArray:
    """n,g  T[n,g] u_g^strength, where u_g is the price of a second on type g.

    u are the duals of (c2) in   min t,  sum_g z[n,g] = K_n,  (c2) sum_n T[n,g] z[n,g] <= count_g t:
    a type is expensive if it saves much time for the jobs that would use it. The most expensive type has u = 1.
    """
    N, G = known.task_s.shape
    runs = np.isfinite(known.task_s).ravel()
    T = np.where(runs, known.task_s.ravel(), 0.0)
    z = np.arange(N * G)
    of, kind = np.divmod(z, G)
    start, index, value = columns_from_entries(
        row=np.concatenate([of, N + kind, N + np.arange(G)]),
        column=np.concatenate([z, z, np.full(G, N * G)]),
        value=np.concatenate([np.ones(N * G), T, -known.gpus.astype(np.float64)]),
        columns=N * G + 1,
    )
    cost = np.zeros(N * G + 1)
    cost[-1] = 1.0
    row_low = np.concatenate([tasks.astype(np.float64), np.full(G, -np.inf)])
    row_high = np.concatenate([tasks.astype(np.float64), np.zeros(G)])
    nothing, most = np.zeros(N * G + 1), np.append(np.where(runs, np.inf, 0.0), np.inf)
    outcome = solve(LinearProgram(cost, nothing, most, row_low, row_high, start, index, value))
    if not isinstance(outcome, Optimal):
        return known.task_s
    price = np.abs(outcome.row_dual[N:])
    return np.asarray(known.task_s * np.maximum(price / price.max(), 1e-3) ** strength)
