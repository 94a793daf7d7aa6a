"""The compiled loops of a round, where this installation has them; docs/decisions/0360.

The Python functions that they replace define what they do, and run wherever they are absent.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray

VERSION = 2  # the same as in c/module.c: a file that was compiled from another source is not used


def _load() -> Any:
    try:
        module = import_module("fairlead.numerics._kernel")
    except ImportError:  # installed without a compiler
        return None
    return module if getattr(module, "VERSION", None) == VERSION else None


kernel: Any = _load()


def ints(numbers: Any) -> IntArray:
    """Whole numbers in the form that compiled code reads; arrays of policies may have another.

    What would become other numbers is an error: a mask is no list of positions.
    """
    given = np.asarray(numbers)
    whole = np.ascontiguousarray(given, dtype=np.int64)
    if given.dtype.kind not in "iu" and given.size and (given.dtype.kind == "b" or not np.array_equal(whole, given)):
        raise TypeError(
            f"an array of {given.dtype} where whole numbers are needed; convert it, a mask by np.flatnonzero"
        )
    return whole


def floats(numbers: Any) -> FloatArray:
    return np.ascontiguousarray(numbers, dtype=np.float64)
