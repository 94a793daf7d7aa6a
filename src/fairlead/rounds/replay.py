"""Decide again from a journal: with the same policy it must say the same, with another it shows what would differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from fairlead.model.decision import Decision
from fairlead.model.events import PolicySet
from fairlead.policies import find_policy
from fairlead.policies.policy import Policy
from fairlead.rounds.decide import Memory, decide
from fairlead.rounds.look import look
from fairlead.rounds.loop import Settings
from fairlead.rounds.records import Record
from fairlead.rounds.state import State


def replay(
    records: Iterable[Record], state: State, policy: Policy, settings: Settings, *, follow: bool = True
) -> Iterator[tuple[Decision, Decision]]:
    """(recorded, decided now) for every decision; the state goes on as recorded.

    Where a policy took over, as after a restart of the service, memory begins anew; with `follow` it decides from there.
    """
    memory = Memory()
    for record in records:
        if isinstance(record, PolicySet):
            memory = Memory()
            policy = find_policy(record.policy).with_parameters(record.parameters) if follow else policy
        if isinstance(record, Decision):
            state.pass_time(record.time_s)
            view = look(state, policy, settings.round_s)
            again, memory = decide(view, policy, memory, record.cause, settings.rules)
            yield record, again
        state.fold(record)


def same(one: Decision, other: Decision) -> bool:
    """Whether two decisions command the same."""
    return (
        one.time_s == other.time_s
        and one.cause == other.cause
        and np.array_equal(one.stop, other.stop)
        and np.array_equal(one.start, other.start)
        and one.spots == other.spots
        and one.holds_until_s == other.holds_until_s
    )
