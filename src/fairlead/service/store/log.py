"""events.db as its one writer sees it: the log, snapshots of the folded state, and tables that the log leads to.

One transaction has records, the number of the last request that they answer, and the rows that they change. The rows
of a decision follow in the next transaction, because it is journalled before it is folded; `projected` is the record up
to which rows are current, and a start updates the rest.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from fairlead.engines.clock import LogClock, MachineClocks, machine_clocks, reading_from_line
from fairlead.model import events as ev
from fairlead.model.arrays import IntArray
from fairlead.model.cluster import Cluster
from fairlead.model.decision import Decision
from fairlead.model.errors import BrokenInvariantError, InputError
from fairlead.model.histogram import Histogram
from fairlead.model.limits import TenantLimits
from fairlead.rounds.journal import Header, cluster_from_json, cluster_to_json, header_from_json, header_to_json
from fairlead.rounds.records import Record, Records, to_line
from fairlead.rounds.remembering import CARRIED
from fairlead.rounds.snapshot import dump, load
from fairlead.rounds.state import State
from fairlead.service.store.commits import Commits
from fairlead.service.store.database import StoreError, one_moment, transaction
from fairlead.service.store.facts import fact, set_fact
from fairlead.service.store.job_rows import UPSERT, row_of
from fairlead.service.store.log_beginning import base_of, first_state
from fairlead.service.store.remembered import Following, remember, remembered_by
from fairlead.studies.journals.folding import open_state

# A start folds at most about this many records after its snapshot.
SNAPSHOT_EVERY = 20_000
DAY_S = 86_400.0  # another one is due after this time if there are ended jobs, which are forgotten before it
SNAPSHOTS_KEPT = 2
UNDECIDED = "Undecided: the next decision will consider it"
NO_REASON = ""  # replaces one that no longer applies
_NEWS = (ev.Started, ev.Stopped, ev.Held, ev.Released)  # after these an earlier refusal no longer applies


class Log:
    """Collects the records of the loop, and writes them on commit, before they are acted upon."""

    clock: LogClock  # set once the state is folded, after whose time it begins

    def __init__(self, connection: sqlite3.Connection, state: State, seq: int, taken: int, snapshot_seq: int) -> None:
        self._connection = connection
        self._commits = Commits(connection)
        self.state = state
        self._records = Records(state.cluster, (spec.id for spec in state.specs))
        self._seq = seq
        self.taken = taken
        self.read = taken  # the last request that the loop has; its events are recorded before the next decision
        self._snapshot_seq, self.begun_s = snapshot_seq, state.now_s  # the snapshot from which it was opened
        self._lines: list[tuple[int, float, str, str]] = []
        self._rows_behind = False  # records on disk, such as that of a node before a decision, may change rows
        self._touched: dict[int, str | None] = {}  # reason to wait or fail by job; None: unchanged
        self._tenants: list[ev.TenantSet] = []
        self._policy: ev.PolicySet | None = None
        self.policy = policy_of(connection)  # name and parameters
        self._settings: ev.SettingsSet | None = None
        self.limits = read_limits(fact(connection, "limits"))  # by tenant
        self._limits_set = False
        self.instead_of = fell_back_of(connection)  # as in `PolicySet`
        self.remembered: Callable[[], bytes | None] | None = None  # what the policy remembers after its last decision
        self.listener: Callable[[ev.Event], None] | None = None  # called with every event that is added
        self._free = np.full(len(state.cluster.nodes), -1)  # n  as in the table
        self._up = np.zeros(len(state.cluster.nodes), dtype=np.bool_)  # n
        self._cluster: Cluster | None = None  # as in the table; None: not read yet

    def event(self, event: ev.Event) -> None:
        self._add(event)

    def _note(self, event: Record) -> None:
        """Remember what the event sets, for the next rows."""
        if isinstance(event, ev.TenantSet):
            self._tenants.append(event)
        elif isinstance(event, ev.PolicySet):
            self._policy = event
            self.policy, self.instead_of = (event.policy, dict(event.parameters)), event.instead_of
        elif isinstance(event, ev.SettingsSet):
            self._settings = event
        elif isinstance(event, ev.LimitsSet):
            self.limits[event.tenant] = event.limits
            self._limits_set = True

    def decision(self, decision: Decision) -> None:
        """Write a decision; on return it is on disk, with every event before it and the requests that they answer."""
        self._add(decision)
        self.taken = max(self.taken, self.read)
        self._write(project=False, memory=None if self.remembered is None else self.remembered())

    def policies_before(self) -> list[tuple[str, dict[str, Any]]]:
        """Names and parameters of all policies so far, newest first; the header's is the last."""
        rows = self._connection.execute("SELECT record FROM log WHERE kind = 'policy_set' ORDER BY seq DESC")
        policies = [json.loads(record) for (record,) in rows]
        header = header_of(self._connection)
        return [*((one["policy"], one["parameters"]) for one in policies), (header.policy, dict(header.parameters))]

    def commit(self, taken: int) -> None:
        """Write all records so far and the rows that they change; `taken` is the last request that they answer."""
        if self._lines or self._touched or self._rows_behind or taken != self.taken:
            self.taken = taken
            self._write(project=True)

    @property
    def commit_seconds(self) -> Histogram:
        """Durations of the transactions so far."""
        return self._commits.seconds

    @property
    def snapshot_due(self) -> bool:
        return self._seq - self._snapshot_seq >= SNAPSHOT_EVERY

    def forget(self, jobs: IntArray) -> None:
        """Forget ended jobs, right after a commit; on return that is folded and on disk.

        The record and `projected` are in one transaction, so that a start never has to update rows across it.
        """
        assert not self._lines, "positions in records that are not on disk would change their meaning"
        assert not self._touched, "rows that are not written would change their meaning"
        event = ev.Forgotten(self.state.now_s, jobs)
        self._add(event)
        self.state.fold(event)
        self._write(project=True)

    def snapshot(self) -> None:
        assert not self._lines, "a snapshot must not contain records that are not on disk"
        body, connection = dump(self.state), self._connection
        with self._commits.transaction():
            connection.execute("INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?)", (self._seq, time.time(), body))
            connection.execute(
                "DELETE FROM snapshots WHERE seq NOT IN (SELECT seq FROM snapshots ORDER BY seq DESC LIMIT ?)",
                (SNAPSHOTS_KEPT,),
            )
        self._snapshot_seq = self._seq

    def touch(self, record: Record) -> None:
        """Mark the rows that the record changes."""
        if isinstance(record, ev.Forgotten):
            return
        self._note(record)
        for j in _jobs_of(record, self.state.jobs):
            self._touched.setdefault(j, None)
        if isinstance(record, (ev.NodeAdded, ev.NodeRemoved)):  # which jobs can run at all may have changed
            self._touched.update((j, self._touched.get(j) or NO_REASON) for j in self.state.active_jobs.tolist())
        if isinstance(record, (ev.Failed, ev.Refused)) or (isinstance(record, ev.Lost) and record.reason):
            self._touched.update(dict.fromkeys(record.jobs.tolist(), record.reason))
        elif isinstance(record, ev.Arrived):
            self._touched[self.state.jobs] = UNDECIDED
        elif isinstance(record, ev.Advised):
            self._touched.update(_advice(record.decision, self.state))
        elif isinstance(record, _NEWS):
            self._touched.update(dict.fromkeys(record.jobs.tolist(), NO_REASON))

    def _add(self, record: Record) -> None:
        self._seq += 1
        document = self._records.to_json(record)
        self._lines.append((self._seq, record.time_s, document["event"], to_line(document)))
        if self.listener is not None and not isinstance(record, Decision):
            self.listener(record)
        self.touch(record)

    def _write(self, *, project: bool, memory: bytes | None = None) -> None:
        connection = self._connection
        with self._commits.transaction():
            connection.executemany("INSERT INTO log VALUES (?, ?, ?, ?)", self._lines)
            if memory is not None:
                remember(connection, self._seq, memory)
            set_fact(connection, "taken", self.taken)
            if project:
                self._project(connection)
                set_fact(connection, "shown", self.taken)  # the last request whose effect is in the tables
            set_fact(connection, "clock", self.clock.reading().to_line())
        self._lines, self._rows_behind = [], not project
        if project:
            self._touched, self._tenants, self._policy, self._settings = {}, [], None, None
            self._limits_set = False

    def _project(self, connection: sqlite3.Connection) -> None:
        state = self.state
        rows_of_jobs = (row_of(state, j, reason) for j, reason in self._touched.items())
        connection.executemany(UPSERT, rows_of_jobs)
        for event in self._tenants:
            quotas = to_line({"quotas": [asdict(quota) for quota in event.quotas]})
            connection.execute("INSERT OR REPLACE INTO tenants VALUES (?, ?, ?)", (event.tenant, event.weight, quotas))
        if self._policy is not None:
            set_fact(connection, "policy", _policy_line(self._policy))
        if self._settings is not None:
            set_fact(connection, "settings", to_line(dict(self._settings.settings)))
        if self._limits_set:
            set_fact(connection, "limits", to_line({name: asdict(limits) for name, limits in self.limits.items()}))
        if self._cluster is not state.cluster:
            self._project_cluster(connection)
        changed = np.flatnonzero((self._free != state.node_free) | (self._up != state.node_up)).tolist()
        rows = ((int(state.node_free[n]), bool(state.node_up[n]), n) for n in changed)
        connection.executemany("UPDATE nodes SET free = ?, up = ? WHERE position = ?", rows)
        self._free, self._up = state.node_free.copy(), state.node_up.copy()
        set_fact(connection, "projected", self._seq)

    def _project_cluster(self, connection: sqlite3.Connection) -> None:
        """Write all nodes again, which is rare."""
        cluster = self._cluster = self.state.cluster
        set_fact(connection, "cluster", to_line(cluster_to_json(cluster)))
        for n, name in enumerate(cluster.nodes):
            row = (n, name, cluster.types[cluster.type_of[n]], int(cluster.node_gpus[n]), 0, False)
            connection.execute("INSERT OR REPLACE INTO nodes VALUES (?, ?, ?, ?, ?, ?)", row)
        self._free = np.full(len(cluster.nodes), -1)
        self._up = np.zeros(len(cluster.nodes), dtype=np.bool_)


def write_header(connection: sqlite3.Connection, header: Header) -> None:
    """Begin an empty log with its header, which never changes afterwards, and the nodes of its cluster."""
    cluster = header.cluster
    with transaction(connection):
        set_fact(connection, "header", to_line(header_to_json(header)))
        set_fact(connection, "policy", _policy_line(ev.PolicySet(0.0, header.policy, header.parameters)))
        set_fact(connection, "taken", 0)
        set_fact(connection, "shown", 0)
        set_fact(connection, "projected", 0)
        for n, (name, type_) in enumerate(zip(cluster.nodes, cluster.node_type.tolist(), strict=True)):
            gpus = int(cluster.node_gpus[n])
            row = (n, name, cluster.types[type_], gpus, gpus, True)
            connection.execute("INSERT INTO nodes VALUES (?, ?, ?, ?, ?, ?)", row)


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


def settings_of(connection: sqlite3.Connection) -> dict[str, Any]:
    """The settings with which decisions are made, as in a header."""
    line = fact(connection, "settings")
    return header_of(connection).settings if line is None else dict(json.loads(line))


def read_limits(line: str | None) -> dict[str, TenantLimits]:
    """The limits that operators have set, by tenant, from the stored fact."""
    return {} if line is None else {name: TenantLimits(**limits) for name, limits in json.loads(line).items()}


def fell_back_of(connection: sqlite3.Connection) -> str:
    """Which policy could not decide and why, if another one decides because of that; otherwise empty."""
    reason: str = json.loads(fact(connection, "policy")).get("instead_of", "")
    return reason


def open_log(connection: sqlite3.Connection, machine: MachineClocks | None = None) -> Log:
    """The log with its state, from the newest readable snapshot and all later records, and its clock."""
    header = header_of(connection)
    last = connection.execute("SELECT coalesce(max(seq), ?) FROM log", (base_of(connection),)).fetchone()[0]
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
        log.clock = _open_clock(connection, state, machine or machine_clocks())
        return log
    raise AssertionError("the beginning of the log is always a start")


def read_state(connection: sqlite3.Connection) -> tuple[Header, State]:
    """The header with the current policy and settings, and the state after the last record. Nothing is written.

    The header has what the policy remembers, if that is known: see store/remembered.py.
    """
    with one_moment(connection):
        (name, parameters), settings = policy_of(connection), settings_of(connection)
        header = replace(header_of(connection), policy=name, parameters=parameters, settings=settings)
        past = remembered_by(connection)
        seq, state = next(_starting_points(connection, header, past.since))
        following = Following(past, seq, state, header)
        for number, record in read_records(connection, state, after=seq):
            following.fold(number, record)
    carried = following.carried()
    return header if carried is None else replace(header, more={**header.more, CARRIED: carried}), state


def read_state_at(connection: sqlite3.Connection, time_s: float) -> State | None:
    """The state at a time, that instant included; None if the records of that time are archived. Nothing is written."""
    points = _starting_points(connection, header_of(connection))
    start = next(((seq, state) for seq, state in points if state.now_s <= time_s), None)
    if start is None:
        return None
    seq, state = start
    for _, record in read_records(connection, state, after=seq):
        if record.time_s > time_s:
            break
        state.fold(record)
    return state


def read_since(connection: sqlite3.Connection, time_s: float) -> tuple[State, Iterator[Record]]:
    """A state at or before a time, or the first one if the log begins later, and the records that follow it."""
    for seq, state in _starting_points(connection, header_of(connection)):  # noqa: B007 the last one is the first state
        if state.now_s <= time_s:
            break
    return state, (record for _, record in read_records(connection, state, after=seq))


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


def _starting_points(
    connection: sqlite3.Connection, header: Header, before: int | None = None
) -> Iterator[tuple[int, State]]:
    """States to start from, newest first. An unreadable snapshot only costs time.

    States that are not `before` this record are left out, unless that would mean to fold a long log from its beginning.
    """
    query = "SELECT seq, body FROM snapshots WHERE seq >= ? ORDER BY seq DESC"
    base = base_of(connection)
    snapshots = connection.execute(query, (base,)).fetchall()
    if before is not None and before > base:
        older = [row for row in snapshots if row[0] < before]
        last: int = connection.execute("SELECT max(seq) FROM log").fetchone()[0] or 0
        if older or last - base <= SNAPSHOT_EVERY:
            snapshots = older
    for seq, body in snapshots:
        try:
            yield seq, load(body, header.cluster, open_state(header).estimator)
        except InputError:
            continue
    yield first_state(connection, header)


def _open_clock(connection: sqlite3.Connection, state: State, machine: MachineClocks) -> LogClock:
    line = fact(connection, "clock")
    last = None if line is None else reading_from_line(line)
    return LogClock(last, state.now_s, lambda: not state.active, machine)


def _advice(decision: Decision, state: State) -> dict[int, str]:
    """What to show of jobs that wait, and that the policy would start."""
    rows = zip(decision.start.tolist(), decision.spots, strict=True)
    nodes = {j: ", ".join(state.cluster.nodes[node] for node, _ in spot) for j, spot in rows}
    return {j: f"Advised: it would start now on {names}" for j, names in nodes.items() if not state.held_gpus[j]}


def _jobs_of(record: Record, jobs: int) -> list[int]:
    if isinstance(record, ev.Advised):
        record = record.decision
    if isinstance(record, Decision):
        explained = [] if record.why is None else record.why.outcomes.job.tolist()
        return [*record.stop.tolist(), *record.start.tolist(), *explained]
    if isinstance(record, ev.Arrived):
        return [jobs]  # the next position, because it is not folded yet
    touched: list[int] = record.jobs.tolist() if hasattr(record, "jobs") else []
    return touched


def _policy_line(event: ev.PolicySet) -> str:
    reason = {"instead_of": event.instead_of} if event.instead_of else {}
    return to_line({"name": event.policy, "parameters": dict(event.parameters), **reason})
