"""Which node of a group gets which bundle of jobs, once it is decided which jobs are packed together.

    max  sum_bn V_bn Y_bn    s.t.  sum_n Y_bn = 1   every bundle b,    sum_b Y_bn = 1   every node n,    Y in {0, 1}

V_bn is what the jobs of bundle b are worth on node n. The nodes of a group have equally many idle GPUs, so whole bundles
can change places freely; stage 1 treats such nodes as equal, although their speeds differ within a bin and from job to
job.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from fairlead.model.allocation import Spot
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.numerics.configurations import Groups

LEAST_GAIN = 1e-9  # relative to the present value; less is rounding

# worth(job, GPUs, nodes) -> n  what the job is worth with that many GPUs on each of these nodes
Worth = Callable[[int, int, IntArray], FloatArray]


def exchange(
    spots: Mapping[int, Spot], groups: Groups, present: Mapping[int, Spot], worth: Worth
) -> tuple[dict[int, Spot], float]:
    """The spots with bundles exchanged inside groups, and their gain in value, which is never negative.

    A node keeps its bundle if a job on it is spread over several nodes, or stays on its `present` spot.
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
    """The column of each row at the greatest total value, and its gain over the present columns."""
    from fairlead.numerics.matching import match  # numba is slow to import; only policies that learn speeds need it

    rows = np.arange(len(value))
    best: IntArray = match(-value)
    before, after = float(value[rows, now].sum()), float(value[rows, best].sum())
    return (best, after - before) if after - before > LEAST_GAIN * abs(before) else (now, 0.0)
