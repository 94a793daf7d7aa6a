"""Columns of one row, for events about one job."""

from __future__ import annotations

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray


def one(j: int) -> IntArray:
    return np.array([j], dtype=np.int64)


def value(value: float) -> FloatArray:
    return np.array([value])
