"""Grants in a fixed order: each job on its best type with room."""

from __future__ import annotations

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.numerics import kernel
from fairlead.numerics.kernel import floats, ints

_CHUNK = 128  # jobs whose best types are found together


def fill_in_order(
    order: IntArray, width: IntArray, liking: FloatArray, free: IntArray
) -> tuple[IntArray, IntArray, IntArray]:
    """Jobs with their types and GPUs: in `order`, each takes its preferred type among those with `width` GPUs left.

    `liking` (j,t) ranks types for a job, the largest first, ties to the earlier type; 0 = cannot run there. A job that
    fits nowhere is skipped.
    """
    fill = _fill if kernel.kernel is None else _fill_compiled
    return fill(order, width, liking, free)


def _fill_compiled(
    order: IntArray, width: IntArray, liking: FloatArray, free: IntArray
) -> tuple[IntArray, IntArray, IntArray]:
    order, width, room = ints(order), ints(width), np.array(free, dtype=np.int64)
    jobs, types = np.empty((2, order.size), dtype=np.int64)
    filled = kernel.kernel.fill(order, width, floats(liking), room, jobs, types)
    return jobs[:filled], types[:filled], width[jobs[:filled]]


def _fill(order: IntArray, width: IntArray, liking: FloatArray, free: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    left: list[int] = free.tolist()
    jobs: list[int] = []
    types: list[int] = []
    for begin in range(0, order.size, _CHUNK):
        if not any(left):
            break
        chunk = order[begin : begin + _CHUNK]
        liked = np.where(width[chunk, None] <= left, liking[chunk], 0.0)  # j,t
        fits = liked.max(axis=1) > 0
        chunk, best = chunk[fits], liked[fits].argmax(axis=1)
        for j, w, t in zip(chunk.tolist(), width[chunk].tolist(), best.tolist(), strict=True):
            if left[t] < w:  # an earlier job of the chunk has taken it
                t = _best_with_room(liking[j].tolist(), w, left)
                if t < 0:
                    continue
            left[t] -= w
            jobs.append(j)
            types.append(t)
    filled = np.array(jobs, dtype=np.int64)
    return filled, np.array(types, dtype=np.int64), width[filled]


def _best_with_room(liked: list[float], width: int, left: list[int]) -> int:
    """The preferred type with `width` GPUs left; -1 if there is none."""
    best, most = -1, 0.0
    for t, like in enumerate(liked):
        if like > most and left[t] >= width:
            best, most = t, like
    return best
