"""Which store a file belongs to, and its incarnation: how often the store was put back from a backup, counted from 1.

Both are facts of each file. The name is drawn when requests.db gets its tables, and events.db gets a copy.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from fairlead.service.store.facts import fact, set_fact


@dataclass(frozen=True, slots=True)
class Identity:
    store: str
    incarnation: int


def identity_of(connection: sqlite3.Connection) -> Identity | None:
    """The identity of the file; None if it has none yet."""
    store = fact(connection, "store")
    return None if store is None else Identity(str(store), int(fact(connection, "incarnation")))


def tie(requests: sqlite3.Connection, events: sqlite3.Connection) -> None:
    """Give events.db the name of the store; nothing changes if it has one."""
    if identity_of(events) is None:
        set_fact(events, "store", fact(requests, "store"))
