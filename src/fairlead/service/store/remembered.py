"""What the policy remembers after its last decision, in events.db, so that simulations can begin with it.

It is two facts, written in the transaction of the decision: the memory as JSON, and the number of that record. The log
itself has no memory: a replay begins with an empty one where the policy was set, and repeats the decisions.
"""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass
from typing import Any

from fairlead.model.decision import Cause
from fairlead.rounds.journal import Header
from fairlead.rounds.loop import Carried, settings_from_json
from fairlead.rounds.records import Record
from fairlead.rounds.remembering import with_boundaries, without_policy
from fairlead.rounds.replay import fold_carried
from fairlead.rounds.state import State
from fairlead.service.store.facts import fact, set_fact

_MEMORY, _SEQ = "memory", "memory_seq"


def remember(connection: sqlite3.Connection, seq: int, memory: bytes) -> None:
    """Keep the memory after the decision with this number; within the caller's transaction."""
    set_fact(connection, _MEMORY, memory)
    set_fact(connection, _SEQ, seq)


@dataclass(frozen=True, slots=True)
class Remembered:
    """The memory after the last decision, and the records that say when the next one is due."""

    since: int  # the last round, or where the policy was set after it, or the first record of all
    decided: int  # the last decision, or 0
    is_known: bool
    memory: dict[str, Any] | None = None  # None: it is empty


def remembered_by(connection: sqlite3.Connection) -> Remembered:
    decided, last_round = _last_decisions(connection)
    query = "SELECT max(seq) FROM log WHERE kind = 'policy_set' AND seq > ?"
    policy_set: int | None = connection.execute(query, (last_round,)).fetchone()[0]
    since = policy_set or last_round or 1
    if since > decided:
        return Remembered(since, decided, True)
    if fact(connection, _SEQ) != decided:  # an earlier version has decided
        return Remembered(since, decided, False)
    try:
        return Remembered(since, decided, True, json.loads(fact(connection, _MEMORY)))
    except (ValueError, RecursionError):  # the process that decides runs code of users
        return Remembered(since, decided, False)


def _last_decisions(connection: sqlite3.Connection) -> tuple[int, int]:
    """The numbers of the last decision and of the last one that decided a round; 0: there is none."""
    last = 0
    for seq, line in connection.execute("SELECT seq, record FROM log WHERE kind = 'decision' ORDER BY seq DESC"):
        last = last or seq
        if json.loads(line)["cause"] == Cause.ROUND:
            return last, seq
    return last, 0


class Following:
    """Folds the records after `start` into a state, and follows what the scheduler's loop carries."""

    def __init__(self, past: Remembered, start: int, state: State, header: Header) -> None:
        self._past, self._state, self._settings = past, state, settings_from_json(header.settings)
        self._is_known = past.is_known and start < past.since
        self._carried, self._decided_on = Carried.fresh(state), state.cluster

    def fold(self, number: int, record: Record) -> None:
        self._carried = fold_carried(self._state, record, self._carried, self._settings)
        if number == self._past.decided:
            self._decided_on = self._state.cluster

    def carried(self) -> dict[str, Any] | None:
        """What the loop carries now, for a header; None if it is not known."""
        memory = self._past.memory
        if memory is not None and self._decided_on is not self._state.cluster:
            memory = without_policy(memory)  # its arrays are by type and node
        return with_boundaries(memory, self._carried) if self._is_known else None
