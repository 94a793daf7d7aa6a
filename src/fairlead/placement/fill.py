"""Jobs in a given order, each on its best type with room."""

from __future__ import annotations

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray

_CHUNK = 512  # jobs looked at before those that cannot fit any more are dropped at once


def fill_in_order(order: IntArray, width: IntArray, liking: FloatArray, free: IntArray) -> IntArray:
    """Grants j,t: in `order`, each job takes the type it likes most among those with `width` GPUs left.

    `liking` (j,t) ranks types for a job, the largest first, ties to the earlier type; 0 = cannot run there. A job that
    fits nowhere is passed over.
    """
    gpus = np.zeros(liking.shape, dtype=np.int64)  # j,t
    left: list[int] = free.tolist()
    waiting = order
    while waiting.size and max(left) > 0:
        chunk, waiting = waiting[:_CHUNK], waiting[_CHUNK:]
        rows, types = _fill(chunk, width, liking, left)
        gpus[rows, types] = width[rows]
        if waiting.size:
            waiting = waiting[width[waiting] <= max(left)]
    return gpus


def _fill(chunk: IntArray, width: IntArray, liking: FloatArray, left: list[int]) -> tuple[list[int], list[int]]:
    liked = liking[chunk]
    best_first = np.argsort(-liked, axis=1, kind="stable")
    best_first[np.take_along_axis(liked, best_first, axis=1) <= 0] = -1
    rows: list[int] = []
    types: list[int] = []
    unused = sum(left)
    for j, w, ranked in zip(chunk.tolist(), width[chunk].tolist(), best_first.tolist(), strict=True):
        for t in ranked:
            if t < 0:
                break
            if left[t] >= w:
                left[t] -= w
                unused -= w
                rows.append(j)
                types.append(t)
                break
        if not unused:
            break
    return rows, types
