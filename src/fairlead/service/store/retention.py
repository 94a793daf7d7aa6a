"""What is older than the service keeps goes from the databases and from `leases/` into the archive.

A job is old once the record with which the scheduler forgot it is old; it ended before that. Everything that is removed
is in a segment that was read back (store/archive.py). Removal is in short transactions, so that neither the scheduler
nor the API waits long for its turn, and each can be repeated: after a kill the next run continues. A run that an
earlier service has started removes nothing any more (store/commits.py).

    1 requests.db   jobs and their requests, in exchange for one small row each; other old requests; old keys
    2 events.db     from now on the log begins after the segment
    3 events.db     records of the log; rows of jobs, whose GPU-hours are added to those of their tenants
    4 leases/
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

from fairlead.engines.clock import MachineClocks, log_time_s, machine_clocks, reading_from_line
from fairlead.service.store.archive import (
    ArchiveError,
    Segment,
    archived_jobs,
    fold_back,
    segments,
    set_aside,
    write_segment,
)
from fairlead.service.store.archived_leases import remove_leases
from fairlead.service.store.audit_file import store_audit
from fairlead.service.store.changes import forget_old_keys
from fairlead.service.store.commits import Fence, epoch_of
from fairlead.service.store.database import StoreError, disk_full_raised, open_reader, open_second_writer
from fairlead.service.store.directory import StateDirectory
from fairlead.service.store.facts import fact, set_fact
from fairlead.service.store.log import DAY_S
from fairlead.service.store.log_beginning import base_of, begin_after

KEEP_S = 30 * DAY_S
_REMOVED = "removed"  # the last segment whose contents were removed completely
_NODE_KINDS = ("drain", "resume", "add_node", "remove_node")  # the newest of each node still counts at a start

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Retention:
    """How long things are kept, and in which portions they are archived and removed."""

    keep_s: float = KEEP_S
    least_records: int = 20_000  # of a segment, unless they have waited for another `patience_s`
    most_records: int = 200_000
    patience_s: float = DAY_S
    rows: int = 200  # that one transaction removes
    pause_s: float = 0.005  # between two transactions


def keep_up(directory: StateDirectory, keep_s: float, epoch: int) -> None:
    """Bring the audit up to date, and archive what is older than `keep_s`, for the service of this epoch of requests.db."""
    try:
        with disk_full_raised():
            store_audit(directory)
            archive_old(directory, Retention(keep_s), epoch=epoch)
    except sqlite3.Error as error:
        raise StoreError(f"{directory.path} cannot be read or written at the moment ({error})") from None


def archive_old(
    directory: StateDirectory, retention: Retention, machine: MachineClocks | None = None, epoch: int | None = None
) -> list[Segment]:
    """Archive and remove everything that is old enough, for the service of this epoch, or else for the latest one.

    Returns the new segments.
    """
    written: list[Segment] = []
    with (
        closing(open_reader(directory.requests)) as requests,
        closing(open_reader(directory.events)) as events,
        _open_writers(directory, epoch) as writers,
    ):
        _finish(directory, retention, events, writers)
        while (last_seq := _due(events, retention, machine or machine_clocks())) is not None:
            segment, next_line = write_segment(directory, requests, events, last_seq)
            _remove(directory, retention, segment, next_line, writers)
            written.append(segment)
        with writers.requests.transaction():
            forget_old_keys(writers.requests.connection)
    return written


@dataclass(frozen=True, slots=True)
class _Writers:
    """Writes to both files beside the service, until a later service takes over."""

    requests: Fence
    events: Fence


@contextmanager
def _open_writers(directory: StateDirectory, epoch: int | None) -> Iterator[_Writers]:
    with (
        closing(open_second_writer(directory.requests)) as requests,
        closing(open_second_writer(directory.events)) as events,
    ):
        writers = _Writers(
            Fence(requests, epoch_of(requests) if epoch is None else epoch), Fence(events, epoch_of(events))
        )
        writers.requests.check()  # a service begins with requests.db, so that the epoch of events.db is of no later one
        yield writers


def _finish(directory: StateDirectory, retention: Retention, events: sqlite3.Connection, writers: _Writers) -> None:
    """Continue a removal that was interrupted. A segment of records that a restored log does not have is set aside."""
    for segment in segments(directory):
        if segment.number <= int(fact(events, _REMOVED) or 0):
            continue
        next_line = None
        if base_of(events) < segment.last_seq:
            journal = directory.archive / f"{segment.name}.journal.gz"
            try:
                next_line = fold_back(journal, events, segment.last_seq).next_line
            except ArchiveError:
                set_aside(directory, segment)
                continue
        _remove(directory, retention, segment, next_line, writers)


def _due(events: sqlite3.Connection, retention: Retention, machine: MachineClocks) -> int | None:
    """The last record to archive now; None if it is not worth a segment yet."""
    clock = fact(events, "clock")
    now_s = log_time_s(None if clock is None else reading_from_line(clock), machine)
    base, projected = base_of(events), int(fact(events, "projected"))
    first = events.execute("SELECT time_s FROM log WHERE seq > ? ORDER BY seq LIMIT 1", (base,)).fetchone()
    if first is None or first[0] > now_s - retention.keep_s:
        return None
    query = "SELECT min(seq) - 1 FROM (SELECT seq FROM log WHERE seq > ? AND time_s > ? ORDER BY seq LIMIT 1)"
    before_newer = events.execute(query, (base, now_s - retention.keep_s)).fetchone()[0]
    last = min(projected if before_newer is None else before_newer, projected, base + retention.most_records)
    waited = first[0] <= now_s - retention.keep_s - retention.patience_s
    return last if last > base and (waited or last - base >= retention.least_records) else None


def _remove(
    directory: StateDirectory, retention: Retention, segment: Segment, next_line: str | None, writers: _Writers
) -> None:
    """Remove what is in the segment; `next_line` is None if the log begins after it already."""
    requests, events = writers.requests, writers.events
    jobs = list(archived_jobs(directory, segment))
    ids = [job["id"] for job in jobs]
    for batch in _paced(jobs, retention):
        with requests.transaction():
            for job in batch:
                _replace_job(requests.connection, job, segment.number)
    with requests.transaction():
        taken = int(fact(events.connection, "taken"))
        _remove_old_requests(requests.connection, taken, time.time() - retention.keep_s)
    if next_line is not None:
        with events.transaction():
            begin_after(events.connection, segment.last_seq, next_line)
    for seqs in _paced(range(segment.first_seq, segment.last_seq + 1), retention):
        with events.transaction():
            events.connection.execute("DELETE FROM log WHERE seq BETWEEN ? AND ?", (seqs[0], seqs[-1]))
    for some in _paced(ids, retention):
        with events.transaction():
            _remove_rows(events.connection, some)
    remove_leases(directory.path, ids)
    with events.transaction():
        set_fact(events.connection, _REMOVED, segment.number)


def _replace_job(requests: sqlite3.Connection, job: dict[str, Any], segment: int) -> None:
    row = (job["number"], job["id"], job["tenant"], job["facts"]["phase"], job["facts"]["end_s"], segment)
    requests.execute("INSERT OR IGNORE INTO archived VALUES (?, ?, ?, ?, ?, ?)", row)
    requests.execute("DELETE FROM jobs WHERE number = ?", (job["number"],))
    requests.execute("DELETE FROM requests WHERE kind IN ('cancel', 'hold', 'release') AND target = ?", (job["id"],))
    requests.execute("DELETE FROM requests WHERE number = ?", (job["number"],))


def _remove_old_requests(requests: sqlite3.Connection, taken: int, before_s: float) -> None:
    """Remove old requests that concern no job; what they changed is in the log, and who asked in the audit log."""
    nodes = ", ".join("?" * len(_NODE_KINDS))
    requests.execute(
        f"DELETE FROM requests WHERE kind IN ('tenant', 'limits', 'policy', {nodes}) AND number <= ? AND time_s < ? AND number NOT IN "
        f"(SELECT max(number) FROM requests WHERE kind IN ({nodes}) GROUP BY target)",
        (*_NODE_KINDS, taken, before_s, *_NODE_KINDS),
    )


def _remove_rows(events: sqlite3.Connection, ids: Sequence[str]) -> None:
    where = f"WHERE id IN ({', '.join('?' * len(ids))})"
    events.execute(
        f"INSERT INTO archived_use SELECT tenant, count(*), sum(attained_gpu_s) FROM jobs {where} GROUP BY tenant "
        "ON CONFLICT (tenant) DO UPDATE SET jobs = jobs + excluded.jobs, gpu_s = gpu_s + excluded.gpu_s",
        ids,
    )
    events.execute(f"DELETE FROM jobs {where}", ids)


def _paced(rows: Sequence[_T], retention: Retention) -> Iterator[list[_T]]:
    """Portions of the rows, with a pause after each in which others can write."""
    left = iter(rows)
    while batch := list(islice(left, retention.rows)):
        yield batch
        time.sleep(retention.pause_s)
