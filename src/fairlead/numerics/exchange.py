"""Which of a group's nodes gets which bundle of jobs, once it is known what is packed together.

    max  sum_bn V_bn Y_bn    s.t.  sum_n Y_bn = 1   every bundle b,    sum_b Y_bn = 1   every node n,    Y in {0, 1}

V_bn is what the jobs of bundle b are worth on node n. Nodes of a group have as many GPUs idle, so that whole bundles change
places freely; stage 1 takes such nodes for equal, although their speeds differ within a bin and from job to job.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from fairlead.model.allocation import Spot
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.numerics.configurations import Groups

LEAST_GAIN = 1e-9  # of what is at stake: less is rounding

# worth(job, GPUs, nodes) -> n  what the job is worth with so many GPUs of each of these nodes
Worth = Callable[[int, int, IntArray], FloatArray]


def exchange(
    spots: Mapping[int, Spot], groups: Groups, present: Mapping[int, Spot], worth: Worth
) -> tuple[dict[int, Spot], float]:
    """The spots with bundles exchanged inside groups, and by how much they are worth more; never less.

    A node stays as it is if a job on it is spread, or stays where it is at `present`.
    """
    changed = dict(spots)
    bundles: dict[int, list[int]] = {}
    held: set[int] = set()
    for job, spot in spots.items():
        for node, _ in spot:
            bundles.setdefault(node, []).append(job)
            if len(spot) > 1 or spot == present.get(job):
                held.add(node)
    total = 0.0
    for nodes in groups.nodes:
        movable = np.array([node for node in nodes if node not in held], dtype=np.int64)
        full = [node for node in movable.tolist() if node in bundles]
        if len(movable) < 2 or not full:
            continue
        value = np.array([sum(worth(job, spots[job][0][1], movable) for job in bundles[node]) for node in full])  # b,n
        now = np.flatnonzero(np.isin(movable, full))
        best, gain = _assign(value, now)
        if gain <= 0:
            continue
        total += gain
        for node, to in zip(full, movable[best].tolist(), strict=True):
            for job in bundles[node]:
                changed[job] = ((to, spots[job][0][1]),)
    return changed, total


def _assign(value: FloatArray, now: IntArray) -> tuple[IntArray, float]:
    """Column of each row at the greatest total value, and how much that is above the present columns."""
    from fairlead.numerics.matching import match  # numba: a moment that only who learns speeds pays

    rows = np.arange(len(value))
    best: IntArray = match(-value)
    before, after = float(value[rows, now].sum()), float(value[rows, best].sum())
    return (best, after - before) if after - before > LEAST_GAIN * abs(before) else (now, 0.0)
