"""Where the log begins: with its first record, or after the records that were archived.

What was archived leaves two facts in events.db: `base`, the number of the last archived record, and `begins`, the header
of a journal that begins with the state after that record (docs/decisions/0126).
"""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace

from fairlead.model.events import PolicySet, SettingsSet
from fairlead.rounds.beginning import beginning_from_json, beginning_to_json
from fairlead.rounds.journal import CARRIES_MEMORY, Header, header_from_json, header_to_json
from fairlead.rounds.records import Record, to_line
from fairlead.rounds.state import State
from fairlead.service.store.facts import fact, set_fact
from fairlead.studies.journals.folding import open_state

_BASE, _BEGINS = "base", "begins"


def base_of(connection: sqlite3.Connection) -> int:
    """The number of the last archived record; 0 if there is none."""
    return int(fact(connection, _BASE) or 0)


def first_line(connection: sqlite3.Connection) -> str:
    """The header of the journal whose first record is the first that is in the log."""
    return str(fact(connection, _BEGINS) or fact(connection, "header"))


def first_state(connection: sqlite3.Connection, header: Header) -> tuple[int, State]:
    """The state before the first record that is in the log, and the number of the record before it."""
    line = fact(connection, _BEGINS)
    return base_of(connection), open_state(header) if line is None else state_of_line(line, header)


def state_of_line(line: str, header: Header) -> State:
    """The state with which the journal of this first line begins, in a log with this header."""
    more, state = header_from_json(json.loads(line)).more, open_state(header)
    return beginning_from_json(more["begins"], header.cluster, state.estimator) if "begins" in more else state


def set_by(header: Header, record: Record) -> Header:
    """The header of a run that continues after this record: with the policy and the settings that then apply."""
    if isinstance(record, PolicySet):
        return replace(header, policy=record.policy, parameters=dict(record.parameters))
    return replace(header, settings=dict(record.settings)) if isinstance(record, SettingsSet) else header


def line_that_begins_with(state: State, header: Header) -> str:
    """The first line of a journal that continues a run with this header from this state."""
    more = {**header.more, CARRIES_MEMORY: True, "begins": beginning_to_json(state)}
    return to_line(header_to_json(replace(header, cluster=state.cluster, more=more)))


def begin_after(connection: sqlite3.Connection, seq: int, line: str) -> None:
    """Let the log begin after this record; within the caller's transaction."""
    set_fact(connection, _BASE, seq)
    set_fact(connection, _BEGINS, line)
    connection.execute("DELETE FROM snapshots WHERE seq < ?", (seq,))  # records that would follow them are archived
