"""The value that the steps of a decision fill in one after another."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from fairlead.model.allocation import NO_GRANTS, Allocation, Grants, Spot
from fairlead.model.arrays import BoolArray
from fairlead.model.decision import Cause
from fairlead.model.view import View
from fairlead.placement.rounding import NOTHING_OWED, Deficits


@dataclass(slots=True)
class Draft:
    """Rows are positions in the view."""

    view: View
    cause: Cause
    # 1 pin
    pinned: BoolArray = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))  # j  jobs that keep what they hold
    pins_until_s: float = math.inf  # when the first of them need not any more
    # 2 ask
    allocation: Allocation = NO_GRANTS
    policy_memory: object = None
    holds_until_s: float = math.inf
    # 3 make whole
    wanted: Grants | None = None  # what the policy wants once shares are whole; None where it places jobs itself
    grants: Grants = (
        NO_GRANTS  # what is left of that beside pinned jobs and moves that do not pay, and what fills the gaps
    )
    owed: Deficits = NOTHING_OWED
    # 4 place, 5 limit
    changed: dict[int, Spot] = field(default_factory=dict)  # row -> new spot, for those that change
    denied: frozenset[int] = frozenset()  # rows that were placed, had quotas not said no
