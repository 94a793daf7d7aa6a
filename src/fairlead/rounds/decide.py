"""One round's decision as a pure function: a view and a memory in, commands and a memory out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from fairlead.model.allocation import NOWHERE, Allocation, Placement, Shares, Spot
from fairlead.model.arrays import NO_JOBS, IntArray
from fairlead.model.cluster import Cluster
from fairlead.model.decision import Cause, Decision, Why
from fairlead.model.errors import BrokenInvariantError, InputError
from fairlead.model.pre_emption import NO_PREEMPTION_LIMITS, PreemptionLimits
from fairlead.model.view import View
from fairlead.model.words import counted
from fairlead.placement.moves import RESTARTS_WORTH, drop_idle_moves, fill_gaps, joined, settle, settle_spots
from fairlead.placement.pack import Placer, pack
from fairlead.placement.quotas import more_than, within_quotas
from fairlead.placement.rounding import NOTHING_OWED, Deficits, charge, round_shares
from fairlead.placement.shapes import in_shape
from fairlead.policies.policy import Policy
from fairlead.rounds.checking import check_speeds
from fairlead.rounds.draft import Draft
from fairlead.rounds.limiting import count_stops, held_back_since, hold_back
from fairlead.rounds.reasons import gain, outcomes, successors
from fairlead.rounds.trying import pin_trials, try_out


@dataclass(frozen=True, slots=True)
class Memory:
    """Everything that is remembered between decisions, as a value."""

    policy: object = None  # the policy's memory
    owed: Deficits = NOTHING_OWED
    cluster: Cluster | None = None  # the cluster that the policy's memory refers to
    held_back: Mapping[int, float] = field(default_factory=dict)  # job's number -> since when pre-emption is limited

    def of_policy(self, cluster: Cluster) -> object:
        """The policy's memory, or None once nodes have joined or left, because its arrays are by type and node."""
        return self.policy if self.cluster is cluster else None


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules that apply to every policy."""

    min_run_s: float = 0.0  # a job keeps its GPUs for at least this long
    placer: Placer = pack
    pre_emption: PreemptionLimits = NO_PREEMPTION_LIMITS


DEFAULT_RULES = Rules()


def decide(
    view: View,
    policy: Policy,
    memory: Memory,
    cause: Cause = Cause.ROUND,
    rules: Rules = DEFAULT_RULES,
    *,
    explain: bool = True,
) -> tuple[Decision, Memory]:
    """The decision and the new memory: nine steps over one draft, then the checked difference to what is held.

    Within a round (`Cause.EVENT`) every running job is pinned, so only free GPUs are assigned, and the deficits do not
    change: they are counted per round.
    """
    draft = Draft(view, cause)
    _pin(draft, rules.min_run_s)  # 1  jobs that keep what they hold
    _ask(draft, policy, memory)  # 2  shares, grants or a placement
    _make_whole(draft, memory.owed)  # 3  whole gangs; moves that do not pay are dropped; gaps are filled
    _place(draft, rules.placer)  # 4  nodes
    _fit(draft)  # 5  the nodes of jobs that need an exact number of them
    if rules.pre_emption.are_set:
        _hold_back(draft, rules.pre_emption, memory.held_back)  # 6  jobs stay that may not be pre-empted now
    _limit(draft)  # 7  quotas
    if rules.pre_emption.are_set:
        count_stops(draft, rules.pre_emption)
    if view.trial_jobs:
        try_out(draft, policy.trial_s)  # 8  jobs of new models run where they are to be measured
    if view.check_jobs:
        check_speeds(draft)  # 9  jobs whose speeds were only declared run where they are to be checked
    if cause is Cause.EVENT:
        draft.owed, draft.holds_until_s = memory.owed, view.now_s
    else:  # what a pin prevented may happen once it expires
        draft.holds_until_s = min(draft.holds_until_s, draft.pins_until_s)
    waits = memory.held_back if cause is Cause.EVENT else held_back_since(draft, memory.held_back)
    return _decision(draft, explain=explain), Memory(draft.policy_memory, draft.owed, view.cluster, waits)


def _pin(draft: Draft, min_run_s: float) -> None:
    """A job keeps what it holds for `min_run_s`, and until it has worked as long as its restart took.

    Otherwise jobs that take turns faster than they restart would make no progress.
    """
    view, cause = draft.view, draft.cause
    draft.pinned = np.zeros(view.jobs, dtype=np.bool_)
    if view.trial_jobs:
        pin_trials(draft)
    if cause is Cause.ROUND and not min_run_s and not np.count_nonzero(view.restart_s):
        return
    running = view.held_gpus.nonzero()[0]
    until_s = view.held_since_s[running] + np.maximum(min_run_s, RESTARTS_WORTH * view.restart_s[running])
    if cause is Cause.ROUND:
        stays = view.now_s < until_s
        running, until_s = running[stays], until_s[stays]
    draft.pinned[running] = True
    draft.pins_until_s = min(draft.pins_until_s, float(until_s.min(initial=math.inf)))


def _ask(draft: Draft, policy: Policy, memory: Memory) -> None:
    view = draft.view
    policy_view = replace(view, pinned=draft.pinned) if policy.hands_out_gpus and draft.pinned.any() else view
    draft.allocation, draft.policy_memory = _answer(
        policy, policy.allocate(policy_view, memory.of_policy(view.cluster))
    )
    draft.holds_until_s = draft.allocation.answer.holds_until_s


def _make_whole(draft: Draft, owed: Deficits) -> None:
    """Round shares to whole gangs, drop moves that do not pay and fill the gaps that they leave."""
    view, allocation = draft.view, draft.allocation
    draft.owed = owed
    if isinstance(allocation, Placement):
        return
    if isinstance(allocation, Shares):
        draft.wanted, draft.owed, exact = round_shares(view, allocation, owed, draft.pinned)
        kept = drop_idle_moves(view, draft.wanted)
    else:
        draft.wanted, kept = allocation, drop_idle_moves(view, settle(view, allocation, draft.pinned))
    more = fill_gaps(view, draft.wanted, kept)
    if isinstance(allocation, Shares):
        draft.owed = charge(draft.owed, allocation, more)
        draft.holds_until_s = draft.holds_until_s if exact and not more.jobs.size else view.now_s
    draft.grants = joined(kept, more)


def _place(draft: Draft, placer: Placer) -> None:
    if isinstance(draft.allocation, Placement):
        draft.changed = settle_spots(draft.view, draft.allocation.spots, draft.pinned)
    else:
        draft.changed = placer(draft.view, draft.grants, draft.pinned)


def _fit(draft: Draft) -> None:
    """Bring jobs into their shapes, whatever policy and placer decided about nodes."""
    placed, draft.changed = draft.changed, in_shape(draft.view, draft.changed)
    if draft.changed is not placed:
        _charge_difference(draft, placed)


def _hold_back(draft: Draft, limits: PreemptionLimits, since_s: Mapping[int, float]) -> None:
    """Keep running jobs where they are if pre-emption would cost more than its limit."""
    placed = draft.changed
    hold_back(draft, limits, since_s)
    if draft.changed is not placed:
        _charge_difference(draft, placed)
        draft.holds_until_s = draft.view.now_s  # an earlier charge may have expired by the next round


def _limit(draft: Draft) -> None:
    """Apply quotas to any policy's answer."""
    view = draft.view
    if view.quotas is None:
        return
    placed, draft.changed = draft.changed, within_quotas(view, draft.changed, draft.pinned)
    draft.denied = frozenset(j for j, spot in placed.items() if spot and not draft.changed.get(j, view.spots.get(j)))
    _charge_difference(draft, placed)


def _charge_difference(draft: Draft, placed: dict[int, Spot]) -> None:
    """What a step adds to the spots before it, or removes, is charged to the deficits of shares."""
    difference = more_than(draft.view, placed, draft.changed)
    if isinstance(draft.allocation, Shares) and difference.jobs.size:
        draft.owed, draft.holds_until_s = charge(draft.owed, draft.allocation, difference), draft.view.now_s


def _decision(draft: Draft, *, explain: bool) -> Decision:
    """The difference to what is held, after checks that gangs are whole and nodes are up and have room."""
    view, changed = draft.view, draft.changed
    held = {j: view.spots.get(j, NOWHERE) for j in sorted(changed)}
    stop = {j: spot for j, spot in held.items() if spot and changed[j] != spot}
    start = {j: changed[j] for j, spot in held.items() if changed[j] and changed[j] != spot}
    _check(view, stop, start, draft.trial_starts)
    starts = dict(zip(_positions(view, start).tolist(), start.values(), strict=True)) | draft.trial_starts
    return Decision(
        time_s=view.now_s,
        cause=draft.cause,
        stop=_positions(view, stop),
        start=np.array(sorted(starts), dtype=np.int64),
        spots=tuple(starts[j] for j in sorted(starts)),
        holds_until_s=draft.holds_until_s,
        solver=draft.allocation.answer.solver,
        why=Why(outcomes(draft), successors(draft, stop, start), gain(view, stop, start)) if explain else None,
        trials=tuple(sorted(draft.on_trial)),
    )


def _answer(policy: Policy, returned: object) -> tuple[Allocation, object]:
    """What the policy returned, after a check of its form: policies may be third-party code."""
    if isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[0], Allocation):
        allocation, memory = returned
        return allocation, memory
    parts = [type(part).__name__ for part in returned] if isinstance(returned, tuple) else []
    what = f"({', '.join(parts)})" if isinstance(returned, tuple) else type(returned).__name__
    raise InputError(
        f"policy {policy.name} returned {what.replace('NoneType', 'None')}; allocate must return (answer, memory), "
        "such as Grants(jobs, types, gpus), None"
    )


def _check_mix(view: View, j: int, spot: Spot) -> None:
    types = {int(view.cluster.node_type[node]) for node, _ in spot}
    if len(types) > 1 and not view.mixable[j, list(types)].all():
        names = ", ".join(view.cluster.types[t] for t in sorted(types))
        raise BrokenInvariantError(f"job {view.job[j]} got a mix of {names}, which it does not allow")


def _positions(view: View, jobs: dict[int, Spot]) -> IntArray:
    return view.position[list(jobs)] if jobs else NO_JOBS


def _check(view: View, stop: dict[int, Spot], start: dict[int, Spot], trials: dict[int, Spot]) -> None:
    if not start and not trials:
        return
    free: list[int] = view.node_free.tolist()  # n
    up: list[bool] = view.node_up.tolist()  # n
    for spot in stop.values():
        for node, count in spot:
            free[node] += count
    for spot in trials.values():
        for node, count in spot:
            free[node] -= count
            if not up[node] or free[node] < 0:
                raise BrokenInvariantError(f"a trial takes {counted(count, 'GPU')} of node {node}, which are not free")
    for (j, spot), width_set in zip(start.items(), view.width_set[list(start)].tolist(), strict=True):
        gpus = 0
        for node, count in spot:
            gpus += count
            free[node] -= count
            if not up[node]:
                raise BrokenInvariantError(f"job {view.job[j]} was placed on node {node}, which is down")
            if free[node] < 0:
                raise BrokenInvariantError(f"node {node} is assigned {-free[node]} GPUs more than it has free")
        if gpus not in view.width_sets[width_set]:
            raise BrokenInvariantError(
                f"job {view.job[j]} got {counted(gpus, 'GPU')}; it runs on {view.width_sets[width_set]}"
            )
        if len(spot) > 1:
            _check_mix(view, j, spot)
