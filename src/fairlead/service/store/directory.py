"""The state directory: two database files, the leases, locks. Mode 0700, one service at a time.

state.json      marks that both files are complete and of which schema they are; written last
requests.db     requests, tokens, audit log; the API writes it
events.db       events and decisions; the scheduler writes it
*.mark          the last commit of each file; see commits.py
cluster.json    the cluster file of the last start, if it differs from the first one
leases/         one directory per placement of a job
archive/        what is older than the service keeps, in compressed files: see store/archive.py
audit.gz        the fairness audit up to some record: see store/audit_file.py
estimates.json  when waiting jobs will start: see store/estimates_file.py
followers/      how far metrics, log lines and notices are in the log: see store/followed.py
*.lock          held while the process lives
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from fairlead.model.cluster import Cluster
from fairlead.model.errors import InputError
from fairlead.rounds.journal import Header
from fairlead.rounds.records import Record
from fairlead.rounds.state import State
from fairlead.service.store import log
from fairlead.service.store.commits import changes_of, write_mark
from fairlead.service.store.database import StoreError, check_schema, create, open_reader, open_writer
from fairlead.service.store.identity import identity_of, tie
from fairlead.service.store.tables import EVENTS, REQUESTS, SCHEMA

_KIND = "state/"  # and the schema


@dataclass(frozen=True, slots=True)
class StateDirectory:
    path: Path

    @property
    def requests(self) -> Path:
        return self.path / "requests.db"

    @property
    def events(self) -> Path:
        return self.path / "events.db"

    @property
    def leases(self) -> Path:
        return self.path / "leases"

    @property
    def archive(self) -> Path:
        return self.path / "archive"

    @property
    def audit_file(self) -> Path:
        return self.path / "audit.gz"

    @property
    def estimates_file(self) -> Path:
        return self.path / "estimates.json"

    @property
    def followers(self) -> Path:
        return self.path / "followers"

    @property
    def cluster_file(self) -> Path:
        return self.path / "cluster.json"

    @property
    def marker(self) -> Path:
        return self.path / "state.json"

    @property
    def restoring(self) -> Path:
        """Where a restore completes its files; it is there while they are exchanged."""
        return self.path / "restoring"

    def lock(self, name: str, wait_s: float = 0.0) -> int:
        """A file descriptor that holds the lock until the process ends; the file contains its pid."""
        descriptor = os.open(self.path / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        give_up_s = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
                return descriptor
            except OSError:
                if time.monotonic() >= give_up_s:
                    os.close(descriptor)
                    raise StoreError(
                        f"another fairlead uses {self.path} ({name}.lock is held); stop it, or choose another --state directory"
                    ) from None
                time.sleep(0.02)


def open_directory(path: Path) -> StateDirectory:
    """Open the directory, which is created if it is missing; other users get no access."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.chmod(0o700)
        (path / "leases").mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"{path} cannot be used as state directory ({error.strerror}); choose another with --state"
        ) from None
    return StateDirectory(path)


def is_new(directory: StateDirectory) -> bool:
    """Whether no service has used this directory. Refuses one that is neither new nor complete: it may hold a queue."""
    present = [file for file in (directory.requests, directory.events) if file.exists()]
    if directory.marker.exists():
        schema_of_marker(directory)
        if len(present) < 2:
            missing = ({directory.requests, directory.events} - set(present)).pop()
            raise StoreError(
                f"{missing} is missing; restore it from a backup, or start afresh with another --state directory"
            )
        return False
    if directory.restoring.exists():
        raise StoreError(
            f"a restore into {directory.path} was interrupted; repeat it with `fairlead restore --overwrite`"
        )
    for file in present:
        if _has_data(file):
            raise StoreError(
                f"{directory.marker} is missing although {file.name} contains data; restore the whole directory from a backup"
            )
    return True


def make(directory: StateDirectory, header: Header) -> None:
    """Create both files, then the marker; if this is interrupted, the next start begins again."""
    for file in (directory.requests, directory.events):
        for name in (file, Path(f"{file}-wal"), Path(f"{file}-shm")):
            name.unlink(missing_ok=True)  # unfinished and empty: see is_new
    create(directory.requests, REQUESTS)
    create(directory.events, EVENTS)
    with closing(open_writer(directory.events, EVENTS)) as events:
        log.write_header(events, header)
        with closing(open_reader(directory.requests)) as requests:
            tie(requests, events)
            write_marks(directory, requests, events)
    write_marker(directory)


def write_marks(directory: StateDirectory, requests: sqlite3.Connection, events: sqlite3.Connection) -> None:
    """Write the marks of both files as they are now."""
    for connection, path in ((requests, directory.requests), (events, directory.events)):
        identity = identity_of(connection)
        assert identity is not None, "both files have one"
        write_mark(path, identity, changes_of(connection))


def write_marker(directory: StateDirectory, schema: int = SCHEMA) -> None:
    """Mark both files as complete and of at least this schema."""
    unfinished = directory.marker.with_suffix(".new")
    with unfinished.open("w", encoding="utf-8") as output:
        json.dump({"fairlead": f"{_KIND}{schema}"}, output)
        output.flush()
        os.fsync(output.fileno())
    unfinished.rename(directory.marker)
    sync(directory.path)


def sync(path: Path) -> None:
    """Make the names in a folder, or the content of a file, survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def read_directory(path: Path) -> tuple[Header, State]:
    """Header and state of a service that runs or has run, read without a lock and without writing."""
    directory = StateDirectory(path)
    if not directory.marker.exists() or not directory.events.exists():
        raise InputError("no state directory of a service: state.json or events.db is missing", path=str(path))
    schema_of_marker(directory)
    try:
        with closing(open_reader(directory.events)) as connection:
            return log.read_state(connection)
    except (sqlite3.Error, ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{directory.events} cannot be read ({type(error).__name__}: {error})") from None


def read_past(path: Path, time_s: float) -> State | None:
    """The state of a service at an earlier time; None if the records of that time are archived."""
    try:
        with closing(open_reader(StateDirectory(path).events)) as connection:
            return log.read_state_at(connection, time_s)
    except (sqlite3.Error, ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path} cannot be read ({type(error).__name__}: {error})") from None


@contextmanager
def reading_since(path: Path, time_s: float) -> Iterator[tuple[State, Iterator[Record]]]:
    """A state of a service at or before a time, or the first that is not archived, and the records that follow it."""
    with closing(open_reader(StateDirectory(path).events)) as connection:
        yield log.read_since(connection, time_s)


def stored_header(directory: StateDirectory) -> Header:
    """The header of the first start; it stays in force, because the log was written with it."""
    connection = open_reader(directory.events)
    try:
        return log.header_of(connection)
    except (sqlite3.Error, ValueError, KeyError, TypeError) as error:
        raise StoreError(
            f"{directory.events} cannot be read ({type(error).__name__}: {error}); nothing was changed: restore a backup"
        ) from None
    finally:
        connection.close()


def describe_differences(before: Cluster, now: Cluster) -> list[str]:
    """Sentences about the GPU types and nodes in which two clusters differ; empty if they do not."""
    had, has = (dict(zip(c.types, c.capacity.tolist(), strict=True)) for c in (before, now))
    lines = [
        f"{type_}: {had.get(type_, 0)} GPUs then, {has.get(type_, 0)} now"
        for type_ in dict.fromkeys((*had, *has))
        if had.get(type_) != has.get(type_)
    ]
    old, new = _nodes(before), _nodes(now)
    lines += _listed("nodes only then", [name for name in old if name not in new])
    lines += _listed("nodes only now", [name for name in new if name not in old])
    both = [name for name in old if name in new and old[name] != new[name]]
    lines += _listed("other nodes", [f"{name} ({old[name]} then, {new[name]} now)" for name in both])
    return lines


def _nodes(cluster: Cluster) -> dict[str, str]:
    columns = zip(cluster.nodes, cluster.node_gpus.tolist(), cluster.node_type.tolist(), strict=True)
    return {name: f"{gpus} {cluster.types[t]}" for name, gpus, t in columns}


def _listed(title: str, names: list[str], most: int = 6) -> list[str]:
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return [f"{title}: {', '.join(names[:most])}{rest}"] if names else []


def schema_of_marker(directory: StateDirectory) -> int:
    """The schema in state.json; refuses a file that is none, or of a schema that this Fairlead does not know."""
    kind = None
    with suppress(OSError, ValueError, AttributeError):
        kind = json.loads(directory.marker.read_text(encoding="utf-8")).get("fairlead")
    schema = str(kind).removeprefix(_KIND)
    if not str(kind).startswith(_KIND) or not schema.isdecimal():
        raise StoreError(f"{directory.marker} is of kind {kind!r}, wanted {_KIND}{SCHEMA}; restore it from a backup")
    check_schema(directory.marker, int(schema), SCHEMA)
    return int(schema)


def _has_data(path: Path) -> bool:
    """Whether a file has data that no interrupted first start can have written; an unreadable file counts as data."""
    try:
        connection = open_reader(path)
        try:
            tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            return any(
                connection.execute(f"SELECT EXISTS (SELECT 1 FROM {table})").fetchone()[0]
                for table in ("requests", "tokens", "log")
                if table in tables
            )
        finally:
            connection.close()
    except sqlite3.Error:
        return path.stat().st_size > 0
