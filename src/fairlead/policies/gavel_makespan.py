"""Gavel's makespan policy (OSDI 2020), which its code calls the minimum total duration."""

from __future__ import annotations

import numpy as np

from fairlead.model.allocation import Level, Shares
from fairlead.model.view import View
from fairlead.numerics.isolated import isolated_shares
from fairlead.numerics.levels import Gangs, raise_in_step_then_total
from fairlead.policies.kept_shares import KeptShares, keep, to_go_s
from fairlead.policies.policy import Knows, RoundPolicy
from fairlead.policies.ranges import Number


def gavel_makespan(view: View, memory: KeptShares | None, *, every_s: float = 1800.0) -> tuple[Shares, KeptShares]:
    """The last of the active jobs ends as early as possible, at constant shares.

        min  max_j  n_j / theta_j.x_j     s.t.  sum_t x_jt <= d_j,   sum_j x_jt <= m_t,   x >= 0

    n_j is the remaining work, theta_jt the rate per GPU. The second objective is the sum of 1 / remaining time. A job of
    unknown length counts as long as the others on average. Shares are kept for `every_s` while no job arrives or ends.
    Departs: the smallest time is computed exactly, by a linear program in 1 / time; Gavel bisects until it is within 5 %
    and accepts any shares that meet it.
    """
    if memory is not None and memory.still_holds(view):
        return memory.shares, memory
    gangs = Gangs.of(view.rate, view.width, np.ones(view.jobs), view.capacity)
    needed_s = to_go_s(view)[gangs.alive]  # g  speeds will be needed_s / makespan
    raised = raise_in_step_then_total(gangs, needed_s, 1.0 / needed_s) if needed_s.size else None
    if raised is None:
        alone = isolated_shares(view.rate > 0, view.width, view.capacity, view.weight)
        kept = keep(view, alone, every_s, "equal shares")
    else:
        kept = keep(view, gangs.shares(raised[1]), every_s, "optimal")
    return kept.shares, kept


POLICY = RoundPolicy(
    name="gavel-makespan",
    summary="The last of the active jobs ends as early as possible.",
    paper="Gavel (OSDI 2020), makespan (its minimum total duration)",
    level=Level.SHARES,
    allocate=gavel_makespan,
    remembers=(KeptShares,),
    ranges={"every_s": Number(0.0, 1e9)},
    knows=frozenset({Knows.LENGTHS}),
)
