"""A journal folded into the state that its run had."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path

from fairlead.model.errors import BrokenInvariantError, InputError
from fairlead.model.events import SettingsSet
from fairlead.policies import find_policy
from fairlead.policies.policy import AnyPolicy, Policy
from fairlead.rates.three_layer import Sensing, build_estimator
from fairlead.rounds.beginning import beginning_from_json
from fairlead.rounds.journal import Header, JournalReader
from fairlead.rounds.loop import Carried, Settings, settings_from_json
from fairlead.rounds.records import Record
from fairlead.rounds.remembering import CARRIED, carried_from_json
from fairlead.rounds.replay import carry
from fairlead.rounds.state import State


def open_state(header: Header) -> State:
    """The state in which the run began, usually empty, with the speeds that the run knew."""
    sensing = Sensing(header.more.get("sensing", Sensing.TABLE))
    estimator = build_estimator(
        header.profile,
        header.cluster,
        header.restart_s,
        sensing,
        unmeasured=bool(header.more.get("unmeasured")),
        all_new=bool(header.more.get("all_new")),
    )
    if "begins" in header.more:
        return beginning_from_json(header.more["begins"], header.cluster, estimator)
    return State(header.cluster, estimator, header.tenant_weight)


def policy_of(header: Header) -> AnyPolicy:
    return find_policy(header.policy).with_parameters(header.parameters)


def settings_of(header: Header) -> Settings:
    return settings_from_json(header.settings)


def carried_of(header: Header, policy: Policy, state: State) -> Carried | None:
    """What the header's policy carried when its journal or snapshot begins, with this state; None: it is not known."""
    return carried_from_json(header.more.get(CARRIED), policy, state.cluster)


def state_at(path: Path, time_s: float | None = None) -> State:
    """The journal folded up to a time, that instant included; without a time, all of it."""
    state = open_state(JournalReader(path).header())
    with consistent(path):
        for record in records_until(path, time_s):
            state.fold(record)
    _pass_to(state, time_s, path)
    return state


def carried_at(path: Path, policy: Policy, time_s: float | None = None) -> tuple[State, Policy, Settings, Carried]:
    """`state_at`, the policy that decides there, its settings and its memory, for which all decisions are made again.

    `policy` is the one in the header; it is a parameter because a user's own policy cannot be looked up by its name.
    """
    header = JournalReader(path).header()
    state = open_state(header)
    with consistent(path):
        begin = carried_of(header, policy, state)
        policy, settings, carried = carry(records_until(path, time_s), state, policy, settings_of(header), begin)
    _pass_to(state, time_s, path)
    return state, policy, settings, carried


def settings_at(path: Path, time_s: float | None = None) -> Settings:
    """The settings that apply at a time of the journal: those of its header, or those that were set last."""
    settings = settings_of(JournalReader(path).header())
    for record in records_until(path, time_s):
        if isinstance(record, SettingsSet):
            settings = settings_from_json(record.settings)
    return settings


def records_until(path: Path, time_s: float | None) -> Iterator[Record]:
    return takewhile(lambda record: time_s is None or record.time_s <= time_s, JournalReader(path).records())


def _pass_to(state: State, time_s: float | None, path: Path) -> None:
    if time_s is not None and time_s < state.now_s:
        raise InputError(f"the journal begins at {state.now_s:g} s, after {time_s:g} s", path=str(path))
    state.pass_time(state.now_s if time_s is None else time_s)


@contextmanager
def consistent(path: Path) -> Iterator[None]:
    """Report a journal whose records contradict each other as a bad file, not as a bug."""
    try:
        yield
    except BrokenInvariantError as error:
        raise InputError(f"the journal contradicts itself: {error}", path=str(path)) from None
