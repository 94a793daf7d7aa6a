"""Follows the log in a thread of its own, and continues after a restart where it was.

A consumer is called with each page of new records, and at least every `POLL_S` with an empty one. Whatever it does in
between, such as waiting for a slow receiver, holds up nobody else. Its place in the log is stored about every two
seconds, so that after a crash some records come a second time and none is left out.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Collection
from contextlib import suppress
from typing import Any, Protocol

from fairlead.service.store.database import DATABASE_ERROR
from fairlead.service.store.directory import StateDirectory
from fairlead.service.store.followed import (
    Cursor,
    FollowedRecord,
    identity_of_log,
    read_cursor,
    read_page,
    write_cursor,
)
from fairlead.service.store.reads import Reads

POLL_S = 0.5
PAGE = 200  # records; between two full pages a follower rests as long as the first one took
STORE_S = 2.0
STOPPED_WITHIN_S = 2.0


class LogConsumer(Protocol):
    """What is done with the records of the log."""

    @property
    def name(self) -> str: ...

    @property
    def kinds(self) -> Collection[str]:
        """Of the records that it reads; of others it only sees that they are there."""

    def begin(self, memory: Any) -> int:
        """Begin with what was stored, or with None; returns the record after which to begin if nothing was stored.

        ValueError, KeyError or TypeError means that what was stored cannot be used.
        """

    def take(self, page: list[FollowedRecord]) -> None: ...

    def settled(self, last: int) -> int:
        """The last record that need not be read again after a restart, if `last` was read last."""

    def memory(self) -> Any:
        """What to store with it."""


class LogFollower:
    """Runs one consumer from `start` to `stop`."""

    def __init__(self, directory: StateDirectory, reads: Reads, consumer: LogConsumer) -> None:
        self._directory, self._reads, self._consumer = directory, reads, consumer
        self._identity = identity_of_log(reads)
        self._stopping = threading.Event()
        self._stored: Cursor | None = None
        self._stored_s = 0.0
        self.after = 0
        self._thread = threading.Thread(target=self._follow, name=f"follower {consumer.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread; one that waits for a receiver is left to the end of the process."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(STOPPED_WITHIN_S)

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def _follow(self) -> None:
        begun = False
        while not self._stopping.is_set():
            began_s, count = time.monotonic(), 0
            try:
                if not begun:
                    self._begin()
                    begun = True
                count = self._step()
            except (DATABASE_ERROR, OSError):  # it is locked, or the disk is full; the next time will do
                pass
            except Exception as error:  # our mistake; the service runs without this follower
                print(f"fairlead: {self._consumer.name} stopped: {error!r}", file=sys.stderr, flush=True)
                raise
            self._stopping.wait(POLL_S if count < PAGE else min(time.monotonic() - began_s, POLL_S))
        with suppress(OSError):  # then some records come again
            if begun:
                self._store()

    def _begin(self) -> None:
        cursor = read_cursor(self._directory, self._consumer.name, self._identity)
        if cursor is not None:
            try:
                self._consumer.begin(cursor.memory)
                self.after, self._stored = cursor.after, cursor
                return
            except (ValueError, KeyError, TypeError):  # of another version, or damaged
                pass
        self.after = self._consumer.begin(None)

    def _step(self) -> int:
        page = read_page(self._reads, self.after, PAGE, self._consumer.kinds)
        self._consumer.take(page)
        if page:
            self.after = page[-1].seq
        if time.monotonic() - self._stored_s >= STORE_S:
            self._store()
        return len(page)

    def _store(self) -> None:
        now = Cursor(self._consumer.settled(self.after), self._consumer.memory())
        if self._stored != now:
            self._stored = now
            write_cursor(self._directory, self._consumer.name, self._identity, self._stored)
        self._stored_s = time.monotonic()
