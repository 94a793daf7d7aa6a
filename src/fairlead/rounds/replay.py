"""Repeat the decisions of a journal: the same policy must decide the same; another policy shows what would differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from fairlead.model.allocation import Allocation, Level
from fairlead.model.decision import Cause, Decision
from fairlead.model.errors import InputError
from fairlead.model.events import PolicySet, SettingsSet
from fairlead.model.view import View
from fairlead.policies import find_round_policy
from fairlead.policies.policy import Policy, RoundPolicy
from fairlead.rounds.decide import Memory, decide
from fairlead.rounds.look import look
from fairlead.rounds.loop import QUIET, Carried, Settings, next_due_s, settings_from_json
from fairlead.rounds.records import Record
from fairlead.rounds.state import State


def replay(
    records: Iterable[Record],
    state: State,
    policy: Policy,
    settings: Settings,
    *,
    follow: bool = True,
    known: bool = True,
    memory: Memory | None = None,
) -> Iterator[tuple[Decision, Decision]]:
    """Yield (recorded, decided now) for every decision; the state follows the recorded ones.

    Where the policy was set, as after a restart of the service, memory is empty again; with `follow` that policy
    decides from there on. Settings apply from where they were set. The run began with `memory`, or without any; if that
    is not `known`, decisions count from where the policy was set. A decision that the wall clock cut short counts as decided
    again, with an empty memory after it; another policy (without `follow`) decides there as everywhere.
    """
    memory = memory or Memory()
    for record in records:
        if isinstance(record, SettingsSet):
            settings = settings_from_json(record.settings)
        if isinstance(record, PolicySet):
            memory, known = Memory(), True
            if follow:
                policy = _policy_set(record)
        if isinstance(record, Decision) and known:
            state.pass_time(record.time_s)
            if record.by_clock and follow:
                again, memory = record, Memory()
            else:
                view = look(state, settings.applied_to(policy), settings.round_s, settings.check_share)
                again, memory = decide(view, settings.applied_to(policy), memory, record.cause, settings.rules)
            yield record, again
        state.fold(record)


def carry(
    records: Iterable[Record], state: State, policy: Policy, settings: Settings, carried: Carried | None = None
) -> tuple[Policy, Settings, Carried]:
    """Fold the records into `state`; returns the policy that decides after the last of them, the settings that apply
    there, and what its loop carries. `carried` is what it carried before the first of them.

    Only decisions are recorded, so the memory is rebuilt by repeating all of them.
    """
    carried = carried or Carried.fresh(state)
    for record in records:
        if isinstance(record, Decision):
            state.pass_time(record.time_s)
            memory = Memory()
            if not record.by_clock:
                tries = settings.applied_to(policy)
                view = look(state, tries, settings.round_s, settings.check_share)
                _, memory = decide(view, tries, carried.memory, record.cause, settings.rules, explain=False)
            carried = replace(carried, memory=memory)
        if isinstance(record, SettingsSet):
            settings = settings_from_json(record.settings)
        if isinstance(record, PolicySet):
            policy = _policy_set(record)
        carried = fold_carried(state, record, carried, settings)
    return policy, settings, carried


def fold_carried(state: State, record: Record, carried: Carried, settings: Settings) -> Carried:
    """Fold the record; returns what the loop carries after it, apart from what a decision changes in its memory."""
    rates = state.measured.version
    state.fold(record)
    if isinstance(record, PolicySet):
        return Carried.fresh(state)
    if isinstance(record, Decision):
        if record.cause is Cause.EVENT:
            return carried
        return replace(carried, due_s=next_due_s(state, record, settings), last_s=record.time_s)
    if not isinstance(record, QUIET) or state.measured.version != rates:
        return replace(carried, due_s=min(carried.due_s, record.time_s))
    return carried


def _policy_set(record: PolicySet) -> Policy:
    """The policy of the record. One that is not known here, or not with these parameters, fails only if it must decide:
    a service replaces such a policy before it has decided anything.
    """
    try:
        return find_round_policy(record.policy).with_parameters(record.parameters)
    except InputError as error:
        problem = error

    def allocate(view: View, memory: object) -> tuple[Allocation, object]:
        raise problem

    return RoundPolicy(record.policy, str(problem), "", Level.GRANTS, allocate)


def same(one: Decision, other: Decision) -> bool:
    """Whether two decisions contain the same commands."""
    return (
        one.time_s == other.time_s
        and one.cause == other.cause
        and np.array_equal(one.stop, other.stop)
        and np.array_equal(one.start, other.start)
        and one.spots == other.spots
        and one.holds_until_s == other.holds_until_s
        and one.trials == other.trials
    )


def same_reasons(recorded: Decision, again: Decision) -> bool:
    """Whether both decisions have the same reasons; true if none were recorded."""
    if recorded.why is None or again.why is None:
        return True
    one, other = recorded.why, again.why
    columns = ("job", "reason", "wanted", "free", "a", "b")
    return (
        one.successors == other.successors
        and one.gain == other.gain
        and one.outcomes.labels == other.outcomes.labels
        and all(np.array_equal(getattr(one.outcomes, name), getattr(other.outcomes, name)) for name in columns)
        and (one.outcomes.terms is None or np.array_equal(one.outcomes.terms, np.asarray(other.outcomes.terms)))
    )
