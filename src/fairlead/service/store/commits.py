"""Marks beside the files, so that a start notices if changes that were acknowledged are gone.

A file counts its changes (the view `changes`), and NAME.mark holds the count of the last commit that anyone may have
heard of. The mark is overwritten in place after each commit and before its answer, and never synced: a process that is
killed loses nothing of it, and after a power cut it is behind the file at worst, never ahead. It also holds the inode of
the file, which shows that a file is a copy.

The epoch counts starts. Every commit checks that no later start has taken over, so that a process which has lost its
lock cannot write any more, however it lost it.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from fairlead.model.errors import FairleadError
from fairlead.model.histogram import FAST_S, Histogram
from fairlead.service.store.database import transaction
from fairlead.service.store.facts import fact, set_fact
from fairlead.service.store.identity import Identity, identity_of

_KIND = "mark/1"
_BYTES = 200  # of a mark, whatever its numbers: it never needs more room on the disk


class FencedError(FairleadError):
    """Another service has taken over the state directory."""


@dataclass(frozen=True, slots=True)
class Mark:
    """What a mark says about its file."""

    store: str
    incarnation: int
    inode: int
    changes: int

    def to_bytes(self) -> bytes:
        line = (
            f'{{"fairlead": "{_KIND}", "store": "{self.store}", "incarnation": {self.incarnation}, "inode": {self.inode}, '
            f'"changes": {self.changes}}}'
        )
        return line.ljust(_BYTES).encode()


def mark_of(path: Path) -> Path:
    """Where the mark of a file is."""
    return path.with_suffix(".mark")


def read_mark(path: Path) -> Mark | None:
    """The mark of a file; None if it is missing or unreadable."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        record = json.loads(mark_of(path).read_bytes())
        if record.pop("fairlead") == _KIND:
            return Mark(**record)
    return None


def write_mark(path: Path, identity: Identity, changes: int) -> None:
    """Write the mark of a file as it is now, and sync it."""
    mark = Mark(identity.store, identity.incarnation, path.stat().st_ino, changes)
    descriptor = os.open(mark_of(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.pwrite(descriptor, mark.to_bytes(), 0)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def changes_of(connection: sqlite3.Connection) -> int:
    """How many changes the file has seen."""
    return int(connection.execute("SELECT count FROM changes").fetchone()[0])


def begin_epoch(connection: sqlite3.Connection) -> int:
    """Take over, and return the new epoch: from now on the processes of earlier starts cannot commit."""
    with transaction(connection):
        epoch = epoch_of(connection) + 1
        set_fact(connection, "epoch", epoch)
    return epoch


def epoch_of(connection: sqlite3.Connection) -> int:
    """The number of the latest start."""
    return int(fact(connection, "epoch"))


@dataclass(frozen=True, slots=True)
class Fence:
    """A connection of one start; both methods raise FencedError once a later start has taken over."""

    connection: sqlite3.Connection
    epoch: int

    def check(self) -> None:
        if epoch_of(self.connection) != self.epoch:
            raise FencedError(
                f"another service has taken over {_path_of(self.connection).parent}; this one stops, and nothing more was "
                "written"
            )

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with transaction(self.connection):
            self.check()
            yield


class Commits:
    """The transactions of the one writer of a file."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.seconds = Histogram(FAST_S)  # durations of transactions
        self._connection = connection
        self._fence = Fence(connection, epoch_of(connection))
        path = _path_of(connection)
        identity = identity_of(connection)
        assert identity is not None, "a file of today's schema has an identity"
        write_mark(path, identity, changes_of(connection))
        self._inode, self._identity = path.stat().st_ino, identity
        self._descriptor = os.open(mark_of(path), os.O_WRONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._descriptor)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A transaction that is in the mark when this returns; raises FencedError if a later start has taken over."""
        began_s = time.monotonic()
        with self._fence.transaction():
            yield
            changes = changes_of(self._connection)
        self.seconds.observe(time.monotonic() - began_s)
        mark = Mark(self._identity.store, self._identity.incarnation, self._inode, changes)
        with suppress(OSError):  # a mark that is behind only notices less
            os.pwrite(self._descriptor, mark.to_bytes(), 0)


def _path_of(connection: sqlite3.Connection) -> Path:
    return Path(connection.execute("PRAGMA database_list").fetchone()[2])
