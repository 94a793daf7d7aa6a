"""Brings a state directory that an earlier Fairlead wrote up to date, or reports what that would do.

Each schema of each file is one transaction, and the marker is written last. What is done already is not done again, so
an upgrade that is interrupted anywhere continues at the next start, and nothing reads a directory that is half done.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing

from fairlead.service.store.database import StoreError, check_schema, migrate, open_reader, open_writer, schema_of
from fairlead.service.store.directory import StateDirectory, schema_of_marker, write_marker, write_marks
from fairlead.service.store.identity import tie
from fairlead.service.store.tables import CHANGES, EVENTS, REQUESTS, SCHEMA


def planned(directory: StateDirectory) -> list[str]:
    """What an upgrade would do, as sentences; empty if the directory is up to date. Nothing is written."""
    before = min(_schemas(directory))
    if before == SCHEMA:
        return []
    changes = [f"schema {schema}: {CHANGES[schema]}" for schema in range(before + 1, SCHEMA + 1)]
    return [
        f"the state directory is upgraded from schema {before} to {SCHEMA}; an older Fairlead cannot read it afterwards",
        *changes,
    ]


def upgrade(directory: StateDirectory) -> list[str]:
    """Upgrade the directory if it is not up to date, and return what was done as sentences."""
    done = planned(directory)
    if done:
        migrate(directory.requests, REQUESTS)
        migrate(directory.events, EVENTS)
        with (
            closing(open_reader(directory.requests)) as requests,
            closing(open_writer(directory.events, EVENTS)) as events,
        ):
            tie(requests, events)
            write_marks(directory, requests, events)
        write_marker(directory)
    return done


def _schemas(directory: StateDirectory) -> list[int]:
    """The schemas of the marker and of both files; one that is too new is refused."""
    schemas = [schema_of_marker(directory)]
    for path in (directory.requests, directory.events):
        try:
            with closing(open_reader(path)) as connection:
                schemas.append(schema_of(connection))
        except sqlite3.Error as error:
            raise StoreError(f"{path} cannot be read ({error}); nothing was changed: restore a backup") from None
        check_schema(path, schemas[-1], SCHEMA)
    return schemas
