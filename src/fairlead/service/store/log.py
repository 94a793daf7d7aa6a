"""events.db as its one writer sees it: the log, snapshots of the folded state, and tables that the log leads to.

One transaction has records, the number of the last request that they answer, and the rows that they change. The rows
of a decision follow in the next transaction, because it is journalled before it is folded; `projected` is the record up
to which rows are current, and a start updates the rest.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from fairlead.model import events as ev
from fairlead.model.cluster import Cluster
from fairlead.model.decision import Decision
from fairlead.model.errors import BrokenInvariantError, InputError
from fairlead.rounds.journal import Header, cluster_from_json, cluster_to_json, header_from_json, header_to_json
from fairlead.rounds.records import Record, Records, to_line
from fairlead.rounds.snapshot import dump, load
from fairlead.rounds.state import State
from fairlead.service.store.database import StoreError
from fairlead.service.store.job_rows import UPSERT, row_of
from fairlead.studies.journals.folding import open_state

# A start folds at most about this many records after its snapshot.
SNAPSHOT_EVERY = 20_000
SNAPSHOTS_KEPT = 2
UNDECIDED = "Undecided: the next decision will consider it"
NO_REASON = ""  # replaces one that no longer applies
_NEWS = (ev.Started, ev.Stopped, ev.Held, ev.Released)  # after these an earlier refusal no longer applies


class Log:
    """Collects the records of the loop, and writes them on commit, before they are acted upon."""

    def __init__(self, connection: sqlite3.Connection, state: State, seq: int, taken: int, snapshot_seq: int) -> None:
        self._connection = connection
        self.state = state
        self._records = Records(state.cluster, (spec.id for spec in state.specs))
        self._seq = seq
        self.taken = taken
        self._snapshot_seq = snapshot_seq
        self._lines: list[tuple[int, float, str, str]] = []
        self._touched: dict[int, str | None] = {}  # reason to wait or fail by job; None: unchanged
        self._tenants: list[ev.TenantSet] = []
        self._policy: ev.PolicySet | None = None
        self.policy = policy_of(connection)  # name and parameters
        self._free = np.full(len(state.cluster.nodes), -1)  # n  as in the table
        self._up = np.zeros(len(state.cluster.nodes), dtype=np.bool_)  # n
        self._cluster: Cluster | None = None  # as in the table; None: not read yet

    def event(self, event: ev.Event) -> None:
        self._add(event)
        if isinstance(event, ev.TenantSet):
            self._tenants.append(event)
        elif isinstance(event, ev.PolicySet):
            self._policy = event
            self.policy = (event.policy, dict(event.parameters))

    def decision(self, decision: Decision) -> None:
        """Write a decision; on return it is on disk, with every event before it."""
        self._add(decision)
        self._write(project=False)

    def policies_before(self) -> list[tuple[str, dict[str, Any]]]:
        """Names and parameters of all policies so far, newest first; the header's is the last."""
        rows = self._connection.execute("SELECT record FROM log WHERE kind = 'policy_set' ORDER BY seq DESC")
        policies = [json.loads(record) for (record,) in rows]
        header = header_of(self._connection)
        return [*((one["policy"], one["parameters"]) for one in policies), (header.policy, dict(header.parameters))]

    def commit(self, taken: int) -> None:
        """Write all records so far and the rows that they change; `taken` is the last request that they answer."""
        if self._lines or self._touched or taken != self.taken:
            self.taken = taken
            self._write(project=True)

    def snapshot_if_due(self) -> None:
        if self._seq - self._snapshot_seq >= SNAPSHOT_EVERY:
            self.snapshot()

    def snapshot(self) -> None:
        assert not self._lines, "a snapshot must not contain records that are not on disk"
        body, connection = dump(self.state), self._connection
        with _transaction(connection):
            connection.execute("INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?)", (self._seq, time.time(), body))
            connection.execute(
                "DELETE FROM snapshots WHERE seq NOT IN (SELECT seq FROM snapshots ORDER BY seq DESC LIMIT ?)",
                (SNAPSHOTS_KEPT,),
            )
        self._snapshot_seq = self._seq

    def touch(self, record: Record) -> None:
        """Mark the rows of the record's jobs as changed."""
        for j in _jobs_of(record, self.state.jobs):
            self._touched.setdefault(j, None)
        if isinstance(record, (ev.NodeAdded, ev.NodeRemoved)):  # which jobs can run at all may have changed
            self._touched.update((j, self._touched.get(j) or NO_REASON) for j in self.state.active_jobs.tolist())
        if isinstance(record, (ev.Failed, ev.Refused)):
            self._touched.update(dict.fromkeys(record.jobs.tolist(), record.reason))
        elif isinstance(record, ev.Arrived):
            self._touched[self.state.jobs] = UNDECIDED
        elif isinstance(record, _NEWS):
            self._touched.update(dict.fromkeys(record.jobs.tolist(), NO_REASON))

    def _add(self, record: Record) -> None:
        self._seq += 1
        document = self._records.to_json(record)
        self._lines.append((self._seq, record.time_s, document["event"], to_line(document)))
        self.touch(record)

    def _write(self, *, project: bool) -> None:
        connection = self._connection
        with _transaction(connection):
            connection.executemany("INSERT INTO log VALUES (?, ?, ?, ?)", self._lines)
            if project:
                _set_fact(connection, "taken", self.taken)
                self._project(connection)
        self._lines = []
        if project:
            self._touched, self._tenants, self._policy = {}, [], None

    def _project(self, connection: sqlite3.Connection) -> None:
        state = self.state
        rows_of_jobs = (row_of(state, j, reason) for j, reason in self._touched.items())
        connection.executemany(UPSERT, rows_of_jobs)
        for event in self._tenants:
            quotas = to_line({"quotas": [asdict(quota) for quota in event.quotas]})
            connection.execute("INSERT OR REPLACE INTO tenants VALUES (?, ?, ?)", (event.tenant, event.weight, quotas))
        if self._policy is not None:
            _set_fact(connection, "policy", _policy_line(self._policy.policy, self._policy.parameters))
        if self._cluster is not state.cluster:
            self._project_cluster(connection)
        changed = np.flatnonzero((self._free != state.node_free) | (self._up != state.node_up)).tolist()
        rows = ((int(state.node_free[n]), bool(state.node_up[n]), n) for n in changed)
        connection.executemany("UPDATE nodes SET free = ?, up = ? WHERE position = ?", rows)
        self._free, self._up = state.node_free.copy(), state.node_up.copy()
        _set_fact(connection, "projected", self._seq)

    def _project_cluster(self, connection: sqlite3.Connection) -> None:
        """Write all nodes again, which is rare."""
        cluster = self._cluster = self.state.cluster
        _set_fact(connection, "cluster", to_line(cluster_to_json(cluster)))
        for n, name in enumerate(cluster.nodes):
            row = (n, name, cluster.types[cluster.type_of[n]], int(cluster.node_gpus[n]), 0, False)
            connection.execute("INSERT OR REPLACE INTO nodes VALUES (?, ?, ?, ?, ?, ?)", row)
        self._free = np.full(len(cluster.nodes), -1)
        self._up = np.zeros(len(cluster.nodes), dtype=np.bool_)


def write_header(connection: sqlite3.Connection, header: Header) -> None:
    """Begin an empty log with its header, which never changes afterwards, and the nodes of its cluster."""
    cluster = header.cluster
    with _transaction(connection):
        _set_fact(connection, "header", to_line(header_to_json(header)))
        _set_fact(connection, "policy", _policy_line(header.policy, header.parameters))
        _set_fact(connection, "taken", 0)
        _set_fact(connection, "projected", 0)
        for n, (name, type_) in enumerate(zip(cluster.nodes, cluster.node_type.tolist(), strict=True)):
            gpus = int(cluster.node_gpus[n])
            row = (n, name, cluster.types[type_], gpus, gpus, True)
            connection.execute("INSERT INTO nodes VALUES (?, ?, ?, ?, ?, ?)", row)


def fact(connection: sqlite3.Connection, name: str) -> Any:
    row = connection.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
    return None if row is None else row[0]


def header_of(connection: sqlite3.Connection) -> Header:
    line = fact(connection, "header")
    if line is None:
        raise StoreError(
            "the log has no header because the first start was interrupted; start with a new --state directory"
        )
    return header_from_json(json.loads(line))


def cluster_of(connection: sqlite3.Connection) -> Cluster:
    """The cluster as it is now."""
    line = fact(connection, "cluster")
    return header_of(connection).cluster if line is None else cluster_from_json(json.loads(line))


def policy_of(connection: sqlite3.Connection) -> tuple[str, dict[str, Any]]:
    """Name and parameters of the policy that decides."""
    policy = json.loads(fact(connection, "policy"))
    return policy["name"], policy["parameters"]


def open_log(connection: sqlite3.Connection) -> Log:
    """The log with its state, from the newest readable snapshot and all later records."""
    header = header_of(connection)
    last = connection.execute("SELECT coalesce(max(seq), 0) FROM log").fetchone()[0]
    taken, projected = int(fact(connection, "taken")), int(fact(connection, "projected"))
    for seq, state in _starting_points(connection, header):
        log = Log(connection, state, last, taken, seq)
        try:
            for number, record in read_records(connection, state, after=seq):
                if number > projected:
                    log.touch(record)
                state.fold(record)
        except BrokenInvariantError as error:
            raise StoreError(
                f"the log of events contradicts itself ({error}); nothing was changed: restore a backup of the state directory"
            ) from None
        log._records = Records(state.cluster, (spec.id for spec in state.specs))
        return log
    raise AssertionError("the empty state is always a start")


def read_state(connection: sqlite3.Connection) -> tuple[Header, State]:
    """The header with the current policy, and the state after the last record. Nothing is written."""
    header = header_of(connection)
    name, parameters = policy_of(connection)
    seq, state = next(_starting_points(connection, header))
    for _, record in read_records(connection, state, after=seq):
        state.fold(record)
    return replace(header, policy=name, parameters=parameters), state


def read_records(connection: sqlite3.Connection, then: State, after: int = 0) -> Iterator[tuple[int, Record]]:
    """(number, record) of everything after `after`; `then` is the state after that record, with its jobs and nodes."""
    records, expected = Records(then.cluster, [spec.id for spec in then.specs]), after
    for seq, line in connection.execute("SELECT seq, record FROM log WHERE seq > ? ORDER BY seq", (after,)):
        expected += 1
        try:
            if seq != expected:
                raise ValueError(f"wanted number {expected}")
            yield seq, records.from_json(json.loads(line))
        except (InputError, ValueError, KeyError, TypeError) as error:
            raise StoreError(
                f"record {seq} of the log of events cannot be read ({type(error).__name__}: {error}); nothing was changed: "
                "restore a backup of the state directory"
            ) from None


def _starting_points(connection: sqlite3.Connection, header: Header) -> Iterator[tuple[int, State]]:
    """States to start from, newest first. An unreadable snapshot only costs time."""
    for seq, body in connection.execute("SELECT seq, body FROM snapshots ORDER BY seq DESC").fetchall():
        try:
            yield seq, load(body, header.cluster, open_state(header).estimator)
        except InputError:
            continue
    yield 0, open_state(header)


def _jobs_of(record: Record, jobs: int) -> list[int]:
    if isinstance(record, Decision):
        explained = [] if record.why is None else record.why.outcomes.job.tolist()
        return [*record.stop.tolist(), *record.start.tolist(), *explained]
    if isinstance(record, ev.Arrived):
        return [jobs]  # the next position, because it is not folded yet
    touched: list[int] = record.jobs.tolist() if hasattr(record, "jobs") else []
    return touched


def _policy_line(name: str, parameters: Any) -> str:
    return to_line({"name": name, "parameters": dict(parameters)})


def _set_fact(connection: sqlite3.Connection, name: str, value: Any) -> None:
    connection.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, value))


class _transaction:  # noqa: N801  reads like a keyword
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._connection.execute("COMMIT")
        elif self._connection.in_transaction:
            self._connection.execute("ROLLBACK")
