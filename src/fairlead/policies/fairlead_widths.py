"""How many GPUs each elastic job should have in a round, before types are chosen."""

from __future__ import annotations

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.view import View
from fairlead.rates.configurations import Kinds

Increment = tuple[float, int, int, int]  # (-worth per GPU, job, step, GPUs)


def widths_of_round(view: View, worth: FloatArray, change: FloatArray) -> tuple[IntArray, FloatArray]:
    """j  the GPUs of each job, and j,t its samples/s with them.

    The cluster is seen as one pool. GPUs go where one more is worth most, until the pool is used up: with speed S_j(w)
    relative to that at the reference width, each on the fastest type, a step from w to w' is worth

        worth_j (S_j(w') - S_j(w)) / (w' - w)    per GPU,

    or what the step before it is worth, if that is less. A job that gets nothing keeps its smallest width, in case that
    a gap is left for it. A width that a running job does not have counts `change` (j), the part of a round that a
    restart takes, less. Only elastic jobs have a choice; a job that must stay has the width that it holds.
    """
    width, rate = view.width.copy(), view.rate
    elastic = _elastic(view)
    if not elastic.any():
        return width, rate
    kinds, rate, speeds = Kinds(view), rate.copy(), {}
    for k in np.unique(kinds.of[elastic]).tolist():
        speeds[k] = {w: _rates(view, kinds, k, w) for w in kinds.widths[k]}
    steps = [
        step for j in range(view.jobs) for step in _steps(view, j, float(worth[j]), change[j], kinds, speeds, elastic)
    ]
    left, reached = int(view.capacity.sum()), [0] * view.jobs
    for _, j, step, gpus in sorted(steps):
        if gpus <= left and reached[j] == step:
            reached[j], left = step + 1, left - gpus
    for j in np.flatnonzero(elastic).tolist():
        kind = int(kinds.of[j])
        width[j] = kinds.widths[kind][max(reached[j] - 1, 0)]
        if view.pinned is not None and view.pinned[j]:
            width[j] = view.held_gpus[j]
        rate[j] = speeds[kind].get(int(width[j]), rate[j])
    return width, rate


def widest_of(view: View) -> IntArray:
    """j  the most GPUs that each job may have."""
    most = np.array([max(widths) for widths in view.width_sets], dtype=np.int64)
    return np.where(_elastic(view), most[view.width_set], view.width) if view.jobs else view.width


def _elastic(view: View) -> np.ndarray:
    """j  jobs with a choice of widths. Jobs that need an exact number of nodes keep their shape."""
    several = np.array([len(widths) > 1 for widths in view.width_sets], dtype=np.bool_)
    return several[view.width_set] & (view.exact_nodes == 0) if several.any() else np.zeros(view.jobs, dtype=np.bool_)


def _rates(view: View, kinds: Kinds, kind: int, width: int) -> FloatArray:
    """t  samples/s on the fewest nodes, 0 where the type has too few GPUs."""
    rates = np.zeros(len(view.capacity))
    for t in kinds.types[kind]:
        if width <= view.capacity[t]:
            rates[t] = kinds.rate(kind, t, width, -(-width // int(view.cluster.largest_node[t])))
    return rates


def _steps(
    view: View,
    j: int,
    worth: float,
    change: float,
    kinds: Kinds,
    speeds: dict[int, dict[int, FloatArray]],
    elastic: np.ndarray,
) -> list[Increment]:
    if not elastic[j]:
        return [(-worth / int(view.width[j]), j, 0, int(view.width[j]))]
    table, held = speeds[int(kinds.of[j])], int(view.held_gpus[j])
    best = max(float(view.rate[j].max()), 1e-300)
    found: list[Increment] = []
    before, gpus, least = 0.0, 0, np.inf
    for step, (width, rates) in enumerate(table.items()):
        speed = float(rates.max()) / best * (1.0 - change if held and width != held else 1.0)
        least = min(least, max(worth * (speed - before) / (width - gpus), 0.0))
        found.append((-least, j, step, width - gpus))
        before, gpus = speed, width
    return [step for step in found if step[0] < 0 or step[2] == 0]
