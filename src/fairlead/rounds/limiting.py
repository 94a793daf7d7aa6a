"""The step of a decision that keeps pre-emption within its limit, whatever the policy wants (docs/decisions/0230)."""

from __future__ import annotations

import math
from collections.abc import Mapping

from fairlead.model.allocation import NOWHERE
from fairlead.model.pre_emption import PreemptionLimits
from fairlead.placement.pre_emption import PreemptionBudget, within_limits
from fairlead.rounds.draft import Draft


def hold_back(draft: Draft, limits: PreemptionLimits, since_s: Mapping[int, float]) -> None:
    """Drop changes for which running jobs may not be pre-empted now.

    `since_s` says since when jobs, by their permanent numbers, have been held back: they come first.
    """
    view, budget = draft.view, PreemptionBudget(draft.view, limits)
    if budget.holds(_stops(draft)):
        return
    rank = {j: place for place, j in reversed(list(enumerate(draft.grants.jobs.tolist())))}
    number, last = view.job.tolist(), len(rank)

    def urgency(j: int) -> tuple[float, bool, int, int]:
        return since_s.get(number[j], math.inf), bool(view.held_gpus[j]), rank.get(j, last), j

    starts = sorted((j for j, spot in draft.changed.items() if spot), key=urgency)
    draft.changed, lacking = within_limits(view, draft.changed, starts, budget)
    draft.held_back = frozenset(j for j in starts if not view.held_gpus[j] and j not in draft.changed)
    draft.scope = int(lacking[0].argmax()) if lacking else -1


def count_stops(draft: Draft, limits: PreemptionLimits) -> None:
    """Fill in what the decision so far costs, including what quotas take back."""
    draft.budget = PreemptionBudget(draft.view, limits)
    draft.budget.charge(_stops(draft))
    draft.held_back = frozenset(j for j in draft.held_back if not draft.changed.get(j, NOWHERE)) - draft.denied


def may_stop(draft: Draft, rows: list[int]) -> bool:
    """Whether these jobs may stop or move in addition to the decision so far; if so, they are charged."""
    if draft.budget is None:
        return True
    stops = [j for j in rows if draft.view.held_gpus[j] and j not in draft.changed]
    if stops and (draft.held_back or draft.budget.lacks(stops).any()):  # what held-back jobs lack is reserved for them
        return False
    draft.budget.charge(stops)
    return True


def held_back_since(draft: Draft, since_s: Mapping[int, float]) -> dict[int, float]:
    """Permanent numbers of the jobs that the limit holds back -> since when."""
    if not draft.held_back:
        return {}
    numbers = draft.view.job[sorted(draft.held_back)].tolist()
    return {number: since_s.get(number, draft.view.now_s) for number in numbers}


def _stops(draft: Draft) -> list[int]:
    """Running jobs that stop or move."""
    spots = draft.view.spots
    return [j for j, spot in draft.changed.items() if spots.get(j, NOWHERE) not in (NOWHERE, spot)]
