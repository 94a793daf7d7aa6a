"""Grants in a fixed order: each job on its best type with room."""

from __future__ import annotations

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray

_CHUNK = 512  # jobs that are processed before those that no longer fit are dropped together


def fill_in_order(
    order: IntArray, width: IntArray, liking: FloatArray, free: IntArray
) -> tuple[IntArray, IntArray, IntArray]:
    """Jobs with their types and GPUs: in `order`, each takes its preferred type among those with `width` GPUs left.

    `liking` (j,t) ranks types for a job, the largest first, ties to the earlier type; 0 = cannot run there. A job that
    fits nowhere is skipped.
    """
    left: list[int] = free.tolist()
    jobs: list[int] = []
    types: list[int] = []
    waiting = order
    while waiting.size:
        _fill(waiting[:_CHUNK], width, liking, left, jobs, types)
        waiting = waiting[_CHUNK:]
        waiting = waiting[width[waiting] <= max(left)]
        waiting = waiting[((width[waiting, None] <= left) & (liking[waiting] > 0)).any(axis=1)]
    filled = np.array(jobs, dtype=np.int64)
    return filled, np.array(types, dtype=np.int64), width[filled]


def _fill(
    chunk: IntArray, width: IntArray, liking: FloatArray, left: list[int], jobs: list[int], types: list[int]
) -> None:
    liked = liking[chunk]
    best_first = (-liked).argsort(axis=1, kind="stable")
    unused = sum(left)
    rows = zip(chunk.tolist(), width[chunk].tolist(), best_first.tolist(), liked.tolist(), strict=True)
    for j, w, ranked, likes in rows:
        for t in ranked:
            if likes[t] <= 0:
                break
            if left[t] >= w:
                left[t] -= w
                unused -= w
                jobs.append(j)
                types.append(t)
                break
        if not unused:
            break
