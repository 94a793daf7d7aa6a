"""The step of a decision that moves jobs to types on which their declared speeds are to be checked.

A job that is checked takes free GPUs of the type, or changes places with jobs that run there and together are no wider
than it is. Everything that ran continues to run: a check costs restarts, and for a round some jobs are on another type.
If neither is possible, the check waits. At most one job is on trial on a type.
"""

from __future__ import annotations

from fairlead.model.allocation import Shares, Spot
from fairlead.model.decision import Cause
from fairlead.model.trial_jobs import TrialJob
from fairlead.placement.quotas import more_than
from fairlead.placement.rounding import charge
from fairlead.rounds.draft import Draft
from fairlead.rounds.limiting import may_stop
from fairlead.rounds.trying import free_gpus, is_within_quotas, nodes_of, spot_on, types_on_trial


def check_speeds(draft: Draft) -> None:
    if draft.cause is not Cause.ROUND:
        return
    busy = types_on_trial(draft)
    for check in draft.view.check_jobs:
        if check.due_s <= draft.view.now_s:
            spots = next((s for t in check.types if t not in busy and (s := _exchange(draft, check.row, t))), None)
            if spots is not None and may_stop(draft, list(spots)):
                _apply(draft, spots, busy)


def _exchange(draft: Draft, row: int, type_: int) -> dict[int, Spot] | None:
    """Row -> new spot: of the job that gets to the type, first, and of those whose places it takes; None if it cannot."""
    view = draft.view
    if row in draft.changed or draft.pinned[row]:
        return None
    here, free = view.spots[row], free_gpus(draft)
    gpus, nodes = sum(count for _, count in here), nodes_of(draft, type_, free)
    others = _others(draft, row, type_, gpus - sum(free[n] for n in nodes))
    if others is None or not _quotas_allow(draft, row, type_, others):
        return None
    for j in others:
        for node, count in view.spots[j]:
            free[node] += count
    spots, room = {row: spot_on(nodes_of(draft, type_, free), free, gpus)}, [0] * len(free)
    for node, count in here:
        room[node] = count
    for j in others:
        spots[j] = spot_on([node for node, _ in here], room, int(view.held_gpus[j]))
        for node, count in spots[j]:
            room[node] -= count
    return spots


def _others(draft: Draft, row: int, type_: int, short: int) -> list[int] | None:
    """Rows that run on the type and leave `short` GPUs there, no more; None if there are no such rows.

    Jobs of the same tenant come first, then those that started last.
    """
    view = draft.view
    tried = {trial.row for trial in view.trial_jobs}
    here = int(view.held_type[row])
    may_move = [
        j
        for j in view.spots
        if view.held_type[j] == type_
        and j not in tried
        and j not in draft.changed
        and not draft.pinned[j]
        and not view.exact_nodes[j]
        and view.rate[j, here] > 0
    ]
    others = list[int]()
    for j in sorted(may_move, key=lambda j: (view.tenant[j] != view.tenant[row], -float(view.held_since_s[j]), -j)):
        if view.held_gpus[j] <= short:
            others.append(j)
            short -= int(view.held_gpus[j])
    return others if short <= 0 else None


def _quotas_allow(draft: Draft, row: int, type_: int, others: list[int]) -> bool:
    """Whether every job may hold its new GPUs once all of them have left their old ones."""
    view, leaving = draft.view, [row, *others]
    moves = [(row, type_), *((j, int(view.held_type[row])) for j in others)]
    return view.quotas is None or all(is_within_quotas(draft, _as_trial(draft, j, t), leaving) for j, t in moves)


def _as_trial(draft: Draft, row: int, type_: int) -> TrialJob:
    view = draft.view
    return TrialJob(int(view.position[row]), row, int(view.tenant[row]), int(view.held_gpus[row]), (type_,), view.now_s)


def _apply(draft: Draft, spots: dict[int, Spot], busy: set[int]) -> None:
    """Move the jobs; shares are charged for the types on which they now are.

    A job that makes room may be due for a check on the type to which it comes: then it is checked at the same time.
    """
    view, before = draft.view, dict(draft.changed)
    draft.changed |= spots
    unknown = {check.row: check.types for check in view.check_jobs}
    for row, spot in spots.items():
        type_ = view.cluster.type_of[spot[0][0]]
        if type_ in unknown.get(row, ()) and type_ not in busy:
            busy.add(type_)
            draft.on_trial = (*draft.on_trial, int(view.position[row]))
    draft.holds_until_s = view.now_s  # the next round ends the check
    if isinstance(draft.allocation, Shares):
        draft.owed = charge(draft.owed, draft.allocation, more_than(view, before, draft.changed))
