"""Loops over arrays that numba compiles where it is installed.

Without numba they run as plain Python, with the same results: a run of Hare takes some twenty times as long, which is
nothing for a small workload and too long for a large one.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

ArrayLoop = Callable[..., Any]  # numba infers the types itself

njit: Any = import_module("numba").njit if find_spec("numba") else None


def compiled(loop: ArrayLoop) -> ArrayLoop:
    """The loop, compiled when it is first called; the machine code is kept next to its file."""
    return loop if njit is None else njit(cache=True)(loop)


def compiled_into_callers(loop: ArrayLoop) -> ArrayLoop:
    """As `compiled`, and written out wherever it is called."""
    return loop if njit is None else njit(cache=True, inline="always")(loop)
