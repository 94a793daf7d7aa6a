"""One round's decision, pure: a view and a memory in, commands and a memory out."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from fairlead.model.allocation import NOWHERE, Allocation, Placement, Shares, Spot
from fairlead.model.arrays import NO_JOBS, BoolArray, IntArray
from fairlead.model.cluster import Cluster
from fairlead.model.decision import Cause, Decision
from fairlead.model.errors import BrokenInvariantError, InputError
from fairlead.model.view import View
from fairlead.model.words import counted
from fairlead.placement.moves import RESTARTS_WORTH, drop_idle_moves, fill_gaps, joined, settle, settle_spots
from fairlead.placement.pack import Placer, pack
from fairlead.placement.quotas import more_than, within_quotas
from fairlead.placement.rounding import NOTHING_OWED, Deficits, charge, round_shares
from fairlead.policies.policy import Policy


@dataclass(frozen=True, slots=True)
class Memory:
    """All that deciding remembers between rounds, as a value."""

    policy: object = None  # its own memory
    owed: Deficits = NOTHING_OWED
    cluster: Cluster | None = None  # that the policy's memory is about

    def of_policy(self, cluster: Cluster) -> object:
        """What the policy gets back: nothing once nodes have joined or left, because its arrays are by type and node."""
        return self.policy if self.cluster is cluster else None


@dataclass(frozen=True, slots=True)
class Rules:
    """What holds for every policy."""

    min_run_s: float = 0.0  # a job keeps what it was given for at least this long
    placer: Placer = pack


DEFAULT_RULES = Rules()


def decide(
    view: View, policy: Policy, memory: Memory, cause: Cause = Cause.ROUND, rules: Rules = DEFAULT_RULES
) -> tuple[Decision, Memory]:
    """Ask the policy, round its shares, keep what should stay, place the rest, and say what changes.

    Inside a round (`Cause.EVENT`) every running job is pinned, so only free GPUs are handed out, and the deficits do
    not move: they are counted per round.
    """
    pinned, pins_until_s = _pinned(view, cause, rules.min_run_s)
    seen = replace(view, pinned=pinned) if policy.hands_out_gpus and pinned.any() else view
    allocation, remembered = _answer(policy, policy.allocate(seen, memory.of_policy(view.cluster)))
    owed, holds_until_s = memory.owed, allocation.answer.holds_until_s
    if isinstance(allocation, Placement):
        changed = settle_spots(view, allocation.spots, pinned)
    else:
        if isinstance(allocation, Shares):
            wanted, owed, exact = round_shares(view, allocation, memory.owed, pinned)
            kept = drop_idle_moves(view, wanted)
        else:
            wanted, kept = allocation, drop_idle_moves(view, settle(view, allocation, pinned))
        more = fill_gaps(view, wanted, kept)
        if isinstance(allocation, Shares):
            owed = charge(owed, allocation, more)
            holds_until_s = holds_until_s if exact and not more.jobs.size else view.now_s
        changed = rules.placer(view, joined(kept, more), pinned)
    if view.quotas is not None:
        placed, changed = changed, within_quotas(view, changed, pinned)
        given = more_than(view, placed, changed)
        if isinstance(allocation, Shares) and given.jobs.size:
            owed, holds_until_s = charge(owed, allocation, given), view.now_s
    if cause is Cause.EVENT:
        owed, holds_until_s = memory.owed, view.now_s
    else:  # what a pin has kept from happening may happen once it comes off
        holds_until_s = min(holds_until_s, pins_until_s)
    decision = _plan(view, changed, cause, holds_until_s, allocation.answer.solver)
    return decision, Memory(remembered, owed, view.cluster)


def _answer(policy: Policy, returned: object) -> tuple[Allocation, object]:
    """What the policy returned, if it is of the right form: policies are other people's code."""
    if isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[0], Allocation):
        allocation, memory = returned
        return allocation, memory
    parts = [type(part).__name__ for part in returned] if isinstance(returned, tuple) else []
    what = f"({', '.join(parts)})" if isinstance(returned, tuple) else type(returned).__name__
    raise InputError(
        f"policy {policy.name} returned {what.replace('NoneType', 'None')}; allocate must return (answer, memory), "
        "such as Grants(jobs, types, gpus), None"
    )


def _pinned(view: View, cause: Cause, min_run_s: float) -> tuple[BoolArray, float]:
    """Jobs that must keep what they hold (j), and when the first of them need not any more.

    A job keeps it for `min_run_s`, and until it has worked as long as its restart took. Otherwise jobs that take turns
    faster than they restart would never get anywhere.
    """
    pinned = np.zeros(view.jobs, dtype=np.bool_)
    if cause is Cause.ROUND and not min_run_s and not np.count_nonzero(view.restart_s):
        return pinned, math.inf
    running = view.held_gpus.nonzero()[0]
    until_s = view.held_since_s[running] + np.maximum(min_run_s, RESTARTS_WORTH * view.restart_s[running])
    if cause is Cause.ROUND:
        stays = view.now_s < until_s
        running, until_s = running[stays], until_s[stays]
    pinned[running] = True
    return pinned, float(until_s.min(initial=math.inf))


def _plan(view: View, changed: dict[int, Spot], cause: Cause, holds_until_s: float, solver: str) -> Decision:
    """The difference to what is held, checked: gangs whole, nodes up and not overfull."""
    held = {j: view.spots.get(j, NOWHERE) for j in sorted(changed)}
    stop = [j for j, spot in held.items() if spot and changed[j] != spot]
    start = [j for j, spot in held.items() if changed[j] and changed[j] != spot]
    spots = tuple(changed[j] for j in start)
    _check(view, [held[j] for j in stop], start, spots)
    return Decision(
        time_s=view.now_s,
        cause=cause,
        stop=_positions(view, stop),
        start=_positions(view, start),
        spots=spots,
        holds_until_s=holds_until_s,
        solver=solver,
    )


def _check_mix(view: View, j: int, spot: Spot) -> None:
    types = {int(view.cluster.node_type[node]) for node, _ in spot}
    if len(types) > 1 and not view.mixable[j, list(types)].all():
        names = ", ".join(view.cluster.types[t] for t in sorted(types))
        raise BrokenInvariantError(f"job {view.job[j]} was given a mix of {names}, which it does not allow")


def _positions(view: View, jobs: list[int]) -> IntArray:
    return view.job[jobs] if jobs else NO_JOBS


def _check(view: View, left: list[Spot], start: list[int], spots: tuple[Spot, ...]) -> None:
    if not start:
        return
    free: list[int] = view.node_free.tolist()  # n
    up: list[bool] = view.node_up.tolist()  # n
    for spot in left:
        for node, count in spot:
            free[node] += count
    for j, width_set, spot in zip(start, view.width_set[start].tolist(), spots, strict=True):
        gpus = 0
        for node, count in spot:
            gpus += count
            free[node] -= count
            if not up[node]:
                raise BrokenInvariantError(f"job {view.job[j]} was placed on node {node}, which is down")
            if free[node] < 0:
                raise BrokenInvariantError(f"node {node} is given {-free[node]} GPUs more than it has free")
        if gpus not in view.width_sets[width_set]:
            raise BrokenInvariantError(
                f"job {view.job[j]} was given {counted(gpus, 'GPU')}; it runs on {view.width_sets[width_set]}"
            )
        if len(spot) > 1:
            _check_mix(view, j, spot)
