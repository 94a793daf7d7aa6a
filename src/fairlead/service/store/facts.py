"""Facts: the values of a file that are not rows of a table, by name. Both files have a table of them."""

from __future__ import annotations

import sqlite3
from typing import Any


def fact(connection: sqlite3.Connection, name: str) -> Any:
    """The value; None if there is none."""
    row = connection.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
    return None if row is None else row[0]


def set_fact(connection: sqlite3.Connection, name: str, value: Any) -> None:
    connection.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, value))
