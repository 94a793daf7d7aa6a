"""The one writer of requests.db: changes that arrive together share a transaction, and each returns after it."""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from fairlead.model.histogram import Histogram
from fairlead.service.store.commits import Commits, FencedError
from fairlead.service.store.database import DiskFullError, is_full

_T = TypeVar("_T")
CLOSING_S = 5.0  # to write the last changes
_MOST = 256  # changes in one transaction: a bound on how long the first of them waits


@dataclass(slots=True)
class _Change:
    make: Callable[[sqlite3.Connection], Any]
    done: Callable[[Any, BaseException | None], None]
    result: Any = None
    error: BaseException | None = None


class Writer:
    """Owns the connection in a separate thread. `committed` is called after every transaction with a change.

    `fenced` is called with the reason if another service has taken over; from then on every change fails.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        committed: Callable[[], None] = lambda: None,
        fenced: Callable[[str], None] = lambda reason: None,
    ) -> None:
        self._connection = connection
        self._commits = Commits(connection)
        self._committed = committed
        self._fenced = fenced
        self._queue: queue.SimpleQueue[_Change | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="requests.db", daemon=True)
        self._thread.start()

    async def write(self, make: Callable[[sqlite3.Connection], _T]) -> _T:
        """The result of `make`, once it is on disk. An exception in it undoes only its own changes."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_T] = loop.create_future()

        def settle(result: Any, error: BaseException | None) -> None:
            if future.cancelled():
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        def done(result: Any, error: BaseException | None) -> None:
            loop.call_soon_threadsafe(settle, result, error)

        self._queue.put(_Change(make, done))
        return await future

    def write_now(self, make: Callable[[sqlite3.Connection], _T]) -> _T:
        """Like `write`, for a thread that may block."""
        ready = threading.Event()
        outcome: list[Any] = []

        def done(result: Any, error: BaseException | None) -> None:
            outcome.extend((result, error))
            ready.set()

        self._queue.put(_Change(make, done))
        ready.wait()
        if outcome[1] is not None:
            raise outcome[1]
        result: _T = outcome[0]
        return result

    @property
    def commit_seconds(self) -> Histogram:
        """Durations of the transactions so far."""
        return self._commits.seconds

    def close(self) -> None:
        """Finish what was asked for; on a disk that does not answer, leave it to the end of the process."""
        self._queue.put(None)
        self._thread.join(CLOSING_S)
        if not self._thread.is_alive():
            self._connection.close()

    def _work(self) -> None:
        while (first := self._queue.get()) is not None:
            batch, ends = [first], False
            while len(batch) < _MOST and not self._queue.empty():
                change = self._queue.get()
                if change is None:
                    ends = True
                    break
                batch.append(change)
            self._transact(batch)
            for change in batch:
                change.done(change.result, change.error)
            if ends:
                return

    def _transact(self, batch: list[_Change]) -> None:
        try:
            with self._commits.transaction():
                for change in batch:
                    self._make(change)
        except FencedError as error:
            self._give_up(batch, error)
            self._fenced(str(error))
        except sqlite3.Error as error:
            self._give_up(batch, error)
        else:
            if any(change.error is None for change in batch):
                self._committed()

    def _make(self, change: _Change) -> None:
        connection = self._connection
        connection.execute("SAVEPOINT change")
        try:
            change.result = change.make(connection)
        except sqlite3.Error as error:
            if not connection.in_transaction or is_full(error):
                raise  # the whole transaction is gone
            change.error = error
        except Exception as error:
            change.error = error
        if change.error is not None:
            connection.execute("ROLLBACK TO change")
        connection.execute("RELEASE change")

    def _give_up(self, batch: list[_Change], error: sqlite3.Error | FencedError) -> None:
        reason: BaseException = error
        if isinstance(error, sqlite3.Error) and is_full(error):
            reason = DiskFullError(
                "the disk that holds the state directory is full; nothing was written: free some space"
            )
        for change in batch:
            change.result, change.error = None, change.error or reason
