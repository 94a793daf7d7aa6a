"""The step of a decision that runs jobs of new models on the types where they are to be measured.

It comes after the policy: a trial takes free GPUs of its type, and at a round, if there are too few, those of the jobs that
were started last (ICS 2025: profiling pre-empts training). One job is tried on a type at a time, so that trials never take
more than one gang of each type. Quotas hold for trials too: a tenant at its limit makes room for its own trial.
"""

from __future__ import annotations

import math

import numpy as np

from fairlead.model.allocation import NOWHERE, Shares, Spot
from fairlead.model.arrays import FloatArray
from fairlead.model.decision import Cause
from fairlead.model.trial_jobs import TrialJob
from fairlead.placement.pool import free_after
from fairlead.placement.quotas import more_than
from fairlead.placement.rounding import charge
from fairlead.rounds.draft import Draft
from fairlead.rounds.limiting import may_stop


def pin_trials(draft: Draft) -> None:
    """Jobs on trial stay, as far as the policy is concerned: whether they move on is decided after it."""
    view = draft.view
    for trial in view.trial_jobs:
        if trial.row is not None:
            draft.pinned[trial.row] = True
            until_s = trial.until_s if trial.until_s > view.now_s else view.now_s + view.round_s
            draft.pins_until_s = min(draft.pins_until_s, until_s)


def try_out(draft: Draft, trial_s: float) -> None:
    view = draft.view
    stays = [trial for trial in view.trial_jobs if _stays(draft, trial)]
    busy = {_type_of(draft, trial) for trial in stays}
    for trial in stays:
        _note(draft, trial, trial.until_s)
    for trial in view.trial_jobs:
        if trial in stays:
            continue
        spot = None if trial.types[0] in busy else _make_room(draft, trial)
        if spot is not None:
            busy.add(trial.types[0])
            _start(draft, trial, spot)
            _note(draft, trial, view.now_s + trial_s)
        elif trial.row is not None:  # it stays where it was measured until it can be tried elsewhere
            busy.add(_type_of(draft, trial))
            _note(draft, trial, view.now_s)


def _stays(draft: Draft, trial: TrialJob) -> bool:
    """Whether the job continues its present trial; inside a round no trial ends."""
    return trial.row is not None and (draft.cause is Cause.EVENT or trial.until_s > draft.view.now_s)


def types_on_trial(draft: Draft) -> set[int]:
    """Types on which a job is on trial after the decision so far."""
    spots = _spots(draft)
    after = {
        trial.job: spots[trial.row] for trial in draft.view.trial_jobs if trial.row is not None
    } | draft.trial_starts
    return {draft.view.cluster.type_of[after[job][0][0]] for job in draft.on_trial}


def _type_of(draft: Draft, trial: TrialJob) -> int:
    assert trial.row is not None
    return draft.view.cluster.type_of[draft.view.spots[trial.row][0][0]]


def _note(draft: Draft, trial: TrialJob, until_s: float) -> None:
    draft.on_trial = (*draft.on_trial, trial.job)
    draft.holds_until_s = min(draft.holds_until_s, until_s)


def _start(draft: Draft, trial: TrialJob, spot: Spot) -> None:
    if trial.row is None:
        draft.trial_starts[trial.job] = spot
    else:
        draft.changed[trial.row] = spot


def _make_room(draft: Draft, trial: TrialJob) -> Spot | None:
    """GPUs of the next type, after jobs were taken off them if necessary; None if there are too few, or by quotas."""
    free = free_gpus(draft)
    nodes = nodes_of(draft, trial.types[0], free)
    short, beyond = trial.gpus - sum(free[n] for n in nodes), _beyond_quota(draft, trial)
    victims = list[int]()
    if short > 0 or beyond > 0:
        candidates = _victims(draft, trial, nodes, short, beyond) if draft.cause is Cause.ROUND else None
        if candidates is None:
            return None
        victims = candidates
    own = [] if trial.row is None else [trial.row]
    if not is_within_quotas(draft, trial, victims) or not may_stop(draft, [*own, *victims]):
        return None
    if victims:
        _take_off(draft, victims)
        free = free_gpus(draft)
        nodes = nodes_of(draft, trial.types[0], free)
    return spot_on(nodes, free, trial.gpus)


def free_gpus(draft: Draft) -> list[int]:
    """n  GPUs that are free after the decision so far."""
    view = draft.view
    taken = (*draft.changed.values(), *draft.trial_starts.values())
    before = (view.spots.get(j, NOWHERE) for j in draft.changed)
    free: list[int] = free_after(view.node_free, taken=taken, given_back=before).tolist()
    return free


def nodes_of(draft: Draft, type_: int, free: list[int]) -> list[int]:
    """Nodes of the type that are up, the emptiest first."""
    view = draft.view
    nodes = (n for n, t in enumerate(view.cluster.type_of) if t == type_ and view.node_up[n])
    return sorted(nodes, key=lambda n: (-free[n], n))


def spot_on(nodes: list[int], free: list[int], gpus: int) -> Spot:
    counts: dict[int, int] = {}
    for n in nodes:
        counts[n] = min(free[n], gpus - sum(counts.values()))
    return tuple((n, count) for n, count in sorted(counts.items()) if count > 0)


def _victims(draft: Draft, trial: TrialJob, nodes: list[int], short: int, beyond: float) -> list[int] | None:
    """Rows to take off these nodes, those that started last first; None if what may be taken is not enough.

    `short` GPUs are missing. A tenant that would be `beyond` its quota makes room itself first.
    """
    view, spots = draft.view, _spots(draft)
    tried = {other.row for other in view.trial_jobs}
    on_nodes = [j for j, spot in spots.items() if {n for n, _ in spot} & set(nodes)]
    movable = [j for j in on_nodes if j not in tried and not draft.pinned[j]]
    is_own, own_first, victims = view.tenant == trial.tenant, beyond > 0, list[int]()

    def order(j: int) -> tuple[bool, bool, float, int]:
        return own_first and not is_own[j], j in view.spots, -float(view.held_since_s[j]), -j

    for j in sorted(movable, key=order):
        if short <= 0 and beyond <= 0:
            break
        gpus = sum(count for n, count in spots[j] if n in nodes)
        victims.append(j)
        short, beyond = short - gpus, beyond - gpus * bool(is_own[j])
    return victims if short <= 0 and beyond <= 0 else None


def _spots(draft: Draft) -> dict[int, Spot]:
    """Row -> spot after the decision so far."""
    return {j: draft.changed.get(j, draft.view.spots.get(j, NOWHERE)) for j in {*draft.changed, *draft.view.spots}}


def _beyond_quota(draft: Draft, trial: TrialJob) -> float:
    """GPUs of the next type that the tenant would hold with this trial beyond what it may hold at most."""
    quotas, t = draft.view.quotas, trial.types[0]
    if quotas is None:
        return -math.inf
    return float(_held(draft, t, [])[trial.tenant] + trial.gpus - quotas.most[trial.tenant, t])


def is_within_quotas(draft: Draft, trial: TrialJob, victims: list[int]) -> bool:
    """Whether the tenant may hold the GPUs of the trial once the victims have left theirs."""
    quotas, t = draft.view.quotas, trial.types[0]
    if quotas is None:
        return True
    held = _held(draft, t, victims)
    may_hold = quotas.may_hold(t, held, float(draft.view.capacity[t]) - float(held.sum()))
    return bool(held[trial.tenant] + trial.gpus <= may_hold[trial.tenant])


def _held(draft: Draft, type_: int, without: list[int]) -> FloatArray:
    """u  GPUs of the type that tenants hold after the decision so far, without those of some rows."""
    view = draft.view
    holders = [(int(view.tenant[j]), spot) for j, spot in _spots(draft).items() if j not in without]
    tenant_of = {trial.job: trial.tenant for trial in view.trial_jobs}
    holders += [(tenant_of[job], spot) for job, spot in draft.trial_starts.items()]
    held = np.zeros(len(view.tenant_weight))  # u  GPUs
    for u, spot in holders:
        held[u] += view.cluster.gpus_by_type(spot).get(type_, 0)
    return held


def _take_off(draft: Draft, victims: list[int]) -> None:
    """Jobs that hold GPUs stop, others do not start; shares are charged for less."""
    view, before = draft.view, dict(draft.changed)
    draft.displaced |= frozenset(victims)
    for j in victims:
        if view.spots.get(j):
            draft.changed[j] = NOWHERE
        else:
            del draft.changed[j]
    if isinstance(draft.allocation, Shares):
        draft.owed = charge(draft.owed, draft.allocation, more_than(view, before, draft.changed))
        draft.holds_until_s = view.now_s
