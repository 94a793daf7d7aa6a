"""Refill: GPUs that would stay idle go to jobs without any."""

from __future__ import annotations

import numpy as np

from fairlead.model.allocation import Grants
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.view import View
from fairlead.placement.fill import fill_in_order


def refill(view: View, waiting: IntArray, claim: FloatArray | IntArray, free: IntArray) -> Grants:
    """Grants of idle GPUs by type (t) to waiting jobs, each on its fastest type with room."""
    return Grants(*fill_in_order(refill_order(view, waiting, claim), view.width, view.rate, free))


def refill_order(view: View, waiting: IntArray, claim: FloatArray | IntArray) -> IntArray:
    """Running jobs first, since leftovers need not be shared in turns; then by largest claim, then by arrival."""
    return waiting[np.lexsort((view.job[waiting], -claim, view.held_gpus[waiting] == 0))]
