"""Repeat the decisions of a journal: the same policy must decide the same; another policy shows what would differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from fairlead.model.decision import Cause, Decision
from fairlead.model.events import PolicySet
from fairlead.policies import find_round_policy
from fairlead.policies.policy import Policy
from fairlead.rounds.decide import Memory, decide
from fairlead.rounds.look import look
from fairlead.rounds.loop import QUIET, Carried, Settings, next_due_s
from fairlead.rounds.records import Record
from fairlead.rounds.state import State


def replay(
    records: Iterable[Record], state: State, policy: Policy, settings: Settings, *, follow: bool = True
) -> Iterator[tuple[Decision, Decision]]:
    """Yield (recorded, decided now) for every decision; the state follows the recorded ones.

    Where the policy was set, as after a restart of the service, memory is empty again; with `follow` that policy
    decides from there on.
    """
    memory, policy = Memory(), settings.applied_to(policy)
    for record in records:
        if isinstance(record, PolicySet):
            memory = Memory()
            if follow:
                policy = settings.applied_to(find_round_policy(record.policy).with_parameters(record.parameters))
        if isinstance(record, Decision):
            state.pass_time(record.time_s)
            view = look(state, policy, settings.round_s)
            again, memory = decide(view, policy, memory, record.cause, settings.rules)
            yield record, again
        state.fold(record)


def carry(records: Iterable[Record], state: State, policy: Policy, settings: Settings) -> tuple[Policy, Carried]:
    """Fold the records into `state`; returns the policy that decides after the last of them, and what its loop carries.

    Only decisions are recorded, so the memory is rebuilt by repeating all of them.
    """
    carried, policy = Carried.fresh(state), settings.applied_to(policy)
    for record in records:
        if isinstance(record, Decision):
            state.pass_time(record.time_s)
            view = look(state, policy, settings.round_s)
            _, memory = decide(view, policy, carried.memory, record.cause, settings.rules, explain=False)
            carried = replace(carried, memory=memory)
        rates = state.measured.version
        state.fold(record)
        if isinstance(record, PolicySet):
            policy = settings.applied_to(find_round_policy(record.policy).with_parameters(record.parameters))
            carried = Carried.fresh(state)
        elif isinstance(record, Decision):
            if record.cause is Cause.ROUND:
                carried = replace(carried, due_s=next_due_s(state, record), last_s=record.time_s)
        elif not isinstance(record, QUIET) or state.measured.version != rates:
            carried = replace(carried, due_s=min(carried.due_s, record.time_s))
    return policy, carried


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
