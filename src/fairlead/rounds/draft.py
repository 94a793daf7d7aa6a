"""A decision in the making: each step of `decide` fills in its part."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from fairlead.model.allocation import NO_GRANTS, Allocation, Grants, Spot
from fairlead.model.arrays import BoolArray
from fairlead.model.decision import Cause
from fairlead.model.view import View
from fairlead.placement.pre_emption import PreemptionBudget
from fairlead.placement.rounding import NOTHING_OWED, Deficits


@dataclass(slots=True)
class Draft:
    """The intermediate results of a decision. Rows are positions in the view."""

    view: View
    cause: Cause
    # 1 pin
    pinned: BoolArray = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))  # j  jobs that keep what they hold
    pins_until_s: float = math.inf  # when the first pin expires
    # 2 ask
    allocation: Allocation = NO_GRANTS
    policy_memory: object = None
    holds_until_s: float = math.inf
    # 3 make whole
    wanted: Grants | None = None  # what the policy wants, with whole shares; None if it places jobs itself
    grants: Grants = NO_GRANTS  # `wanted` after pins, without moves that do not pay, and with gaps filled
    owed: Deficits = NOTHING_OWED
    # 4 place, 5 fit, 6 hold back, 7 quotas
    changed: dict[int, Spot] = field(default_factory=dict)  # row -> new spot, for jobs that change
    denied: frozenset[int] = frozenset()  # rows that were placed and then denied by quotas
    held_back: frozenset[int] = frozenset()  # rows that were placed, and wait because pre-emption is limited
    scope: int = -1  # of the limit that holds them back: the tenant whose jobs may not stop, or -1: all jobs
    budget: PreemptionBudget | None = None  # with what the decision so far costs; None: there is no limit
    # 8 try out
    trial_starts: dict[int, Spot] = field(default_factory=dict)  # jobs outside the view, by position in the state
    displaced: frozenset[int] = frozenset()  # rows that made room for them
    on_trial: tuple[int, ...] = ()  # jobs on trial after the decision, by position in the state
