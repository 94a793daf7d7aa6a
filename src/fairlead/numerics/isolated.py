"""The isolated share: what a job would hold if the cluster were divided into equal private slices."""

from __future__ import annotations

import numpy as np

from fairlead.model.arrays import BoolArray, FloatArray, IntArray


def isolated_shares(
    runs: BoolArray, width: IntArray, capacity: IntArray, weight: FloatArray, whole: float | None = None
) -> FloatArray:
    """j,t  GPUs: w_j / sum(w) of every type that the job can use, scaled down where that is more than its gang.

    `whole` is sum(w) if there are more jobs than these.
    """
    if not len(width):
        return np.zeros((0, len(capacity)))
    part = weight / (weight.sum() if whole is None else whole)  # j
    slices = np.where(runs, part[:, None] * capacity, 0.0)  # j,t
    held = slices.sum(axis=1, keepdims=True)
    scale: FloatArray = np.minimum(1.0, width[:, None] / np.where(held > 0, held, 1.0))
    return slices * scale
