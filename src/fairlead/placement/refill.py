"""Refill: GPUs that would stay idle go to jobs without any."""

from __future__ import annotations

import numpy as np

from fairlead.model.allocation import Grants
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.view import View
from fairlead.placement.fill import fill_in_order


def refill(
    view: View, waiting: IntArray, claim: FloatArray | IntArray, free: IntArray, *, stay: bool = False
) -> Grants:
    """Grants of idle GPUs by type (t) to waiting jobs, each on its fastest type with room.

    With `stay`, a job that runs prefers the type that it holds: it may have the other one for a single round.
    """
    liking = view.rate
    if stay:
        running = waiting[view.held_type[waiting] >= 0]
        cells = (running, view.held_type[running])
        liking = liking.copy()
        liking[cells] = np.where(liking[cells] > 0, np.inf, 0.0)
    return Grants(*fill_in_order(refill_order(view, waiting, claim), view.width, liking, free))


def refill_order(view: View, waiting: IntArray, claim: FloatArray | IntArray) -> IntArray:
    """Running jobs first, since leftovers need not be shared in turns; then by largest claim, then by arrival."""
    return waiting[np.lexsort((view.job[waiting], -claim, view.held_gpus[waiting] == 0))]
