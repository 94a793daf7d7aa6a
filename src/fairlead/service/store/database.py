"""SQLite files that survive kill -9: write-ahead log, full synchronous, and a schema with migrations.

A file that cannot be read, is of another kind or of a newer Fairlead is refused with a remedy; it is never replaced.
Only `migrate` changes the schema of a file; see upgrade.py.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fairlead.model.errors import FairleadError

# How long to wait for a lock on a file. Locks are held for milliseconds, but their holder may have to wait for a core.
_BUSY_MS = 60_000


DATABASE_ERROR = sqlite3.Error  # of any read or write, for callers outside this package


class StoreError(FairleadError):
    """The state directory cannot be used as it is."""


class DiskFullError(FairleadError):
    """Nothing was written because the disk has no room."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of file: the id in its header, and the migrations to today's tables, which are only ever added."""

    name: str
    application_id: int
    migrations: Sequence[str]


def create(path: Path, kind: Kind) -> None:
    """Create a file with today's tables, where there is none or an unfinished one."""
    with sqlite3.connect(path, isolation_level=None) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
    connection.close()
    path.chmod(0o600)
    writer = _connect(path)
    try:
        if _number(writer, "application_id") not in (0, kind.application_id):
            raise StoreError(f"{path} belongs to another program; choose another state directory with --state")
        writer.execute(f"PRAGMA application_id = {kind.application_id}")
        _migrate(writer, kind, path)
    finally:
        writer.close()


def migrate(path: Path, kind: Kind) -> None:
    """Bring a file to the newest schema, one transaction for each step; a file that is up to date does not change."""
    connection = _open_checked(path, kind)
    try:
        _migrate(connection, kind, path)
    finally:
        connection.close()


def open_writer(path: Path, kind: Kind) -> sqlite3.Connection:
    """The one connection that writes, after a check of the whole file."""
    connection = _open_checked(path, kind)
    if schema_of(connection) < len(kind.migrations):
        connection.close()
        raise StoreError(f"{path} is of an older schema; start the service, which upgrades the state directory")
    return connection


def open_second_writer(path: Path) -> sqlite3.Connection:
    """A connection that writes beside the one writer, in short transactions; the file was checked when that was opened."""
    return _connect(path)


def schema_of(connection: sqlite3.Connection) -> int:
    """The number of migrations that the file has."""
    return _number(connection, "user_version")


def check_schema(path: Path, found: int, newest: int) -> None:
    """Refuse what a newer Fairlead has written: there is no way back within the file."""
    if found > newest:
        raise StoreError(
            f"{path} was written by a newer Fairlead (schema {found}, this one knows up to {newest}); nothing was changed: "
            "install that Fairlead again, or restore a backup from before the upgrade"
        )


def _open_checked(path: Path, kind: Kind) -> sqlite3.Connection:
    if not path.exists():
        raise StoreError(f"{path} is missing; restore it from a backup, or start afresh with another --state directory")
    try:
        connection = _connect(path)
        try:
            _check(connection, kind, path)
        except BaseException:
            connection.close()
            raise
        return connection
    except sqlite3.DatabaseError as error:
        if is_full(error):
            raise DiskFullError(f"the disk that holds {path} is full; free some space") from None
        raise _unreadable(path, str(error)) from None


def open_reader(path: Path) -> sqlite3.Connection:
    """A read-only connection; each statement reads the latest committed state. For one thread at a time."""
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None, check_same_thread=False
    )
    connection.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
    connection.execute("PRAGMA query_only = ON")
    connection.row_factory = sqlite3.Row
    return connection


def is_full(error: sqlite3.Error) -> bool:
    """Whether the disk is full: a file, or SQLite's shared memory, could not grow. Other disk errors do not count."""
    return getattr(error, "sqlite_errorcode", 0) in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE)


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


@contextmanager
def one_moment(connection: sqlite3.Connection) -> Iterator[None]:
    """Let all statements of a reader see the same commit."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")


@contextmanager
def disk_full_raised() -> Iterator[None]:
    """Turn SQLite's report of a full disk into DiskFullError; its other errors pass through."""
    try:
        yield
    except sqlite3.Error as error:
        if not is_full(error):
            raise
        raise DiskFullError(f"the disk is full ({error}); free some space") from None


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.row_factory = sqlite3.Row
    connection.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


def _check(connection: sqlite3.Connection, kind: Kind, path: Path) -> None:
    application_id = _number(connection, "application_id")
    if application_id != kind.application_id:
        raise StoreError(f"{path} is not Fairlead's file of {kind.name}; choose another state directory with --state")
    check_schema(path, schema_of(connection), len(kind.migrations))
    verdict = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if verdict != "ok":
        raise _unreadable(path, str(verdict))


def _migrate(connection: sqlite3.Connection, kind: Kind, path: Path) -> None:
    for version in range(schema_of(connection), len(kind.migrations)):
        try:
            connection.executescript(
                f"BEGIN IMMEDIATE; {kind.migrations[version]}; PRAGMA user_version = {version + 1}; COMMIT"
            )
        except sqlite3.Error as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise StoreError(
                f"{path} cannot be brought from schema {version} to {version + 1} ({error}); it was left as it is: "
                "free disk space if there is none, else restore a backup"
            ) from None


def _number(connection: sqlite3.Connection, pragma: str) -> int:
    return int(connection.execute(f"PRAGMA {pragma}").fetchone()[0])


def _unreadable(path: Path, why: str) -> StoreError:
    return StoreError(
        f"{path} cannot be read ({why}); nothing was changed. Move the state directory aside and restore a backup, or save what "
        f"can be read with: sqlite3 {path.name} .recover"
    )
