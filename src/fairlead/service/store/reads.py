"""Reads both files for the API; each answer is the latest committed state."""

from __future__ import annotations

import json
import queue
import sqlite3
import threading
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from fairlead.engines.clock import MachineClocks, log_time_s, machine_clocks, reading_from_line
from fairlead.engines.runner import LeaseReader
from fairlead.model.limits import EVERY_TENANT, TenantLimits, limits_of
from fairlead.model.public_job import SUBMITTED, PublicJob
from fairlead.model.quotas import Quota
from fairlead.service.store import request_queue
from fairlead.service.store.database import open_reader
from fairlead.service.store.directory import StateDirectory
from fairlead.service.store.job_rows import SELECT_ALL, SELECT_TAKEN, WAITING, read_row
from fairlead.service.store.log import read_limits
from fairlead.service.store.rows import ArchivedJob, ChangeRow, GpuHolder, NodeRow, TenantTerms, TenantUse

ARCHIVED = "archived"  # beside the phases, in counts of jobs
# The number of the last job that has a row, because jobs are taken in the order of their numbers.
LAST_TAKEN = (
    "max(coalesce((SELECT number FROM jobs WHERE id = (SELECT id FROM events.jobs ORDER BY position DESC LIMIT 1)), 0), "
    "coalesce((SELECT max(number) FROM archived), 0))"
)
_WAITING = f"FROM events.jobs WHERE phase = '{WAITING}'"

# The last request whose effect the tables show; a decision takes requests one transaction before its rows are written.
_SHOWN = (
    "coalesce((SELECT value FROM events.facts WHERE name = 'shown'), "
    "(SELECT value FROM events.facts WHERE name = 'taken'))"
)


class Reads:
    """Connections to requests.db with events.db attached, for any thread; as many as were ever busy at once."""

    def __init__(self, directory: StateDirectory, leases: LeaseReader, machine: MachineClocks | None = None) -> None:
        self._directory = directory
        self._machine = machine or machine_clocks()
        self.leases = leases  # reads their logs and exit codes
        self._idle: queue.SimpleQueue[sqlite3.Connection] = queue.SimpleQueue()
        self._watching: sqlite3.Connection | None = (
            None  # always the same one: SQLite's version is that of a connection
        )
        self._turn = threading.Lock()

    def close(self) -> None:
        """Close the connections, once nothing reads any more."""
        if self._watching is not None:
            self._watching.close()
        while not self._idle.empty():
            self._idle.get().close()

    def rows(self, query: str, values: Sequence[Any] = ()) -> list[sqlite3.Row]:
        """All rows at once, so that no connection stays busy and no old state is held open."""
        try:
            connection = self._idle.get_nowait()
        except queue.Empty:
            connection = self._open()
        try:
            return connection.execute(query, values).fetchall()
        finally:
            self._idle.put(connection)

    def _open(self) -> sqlite3.Connection:
        connection = open_reader(self._directory.requests)
        uri = f"{self._directory.events.absolute().as_uri()}?mode=ro"
        connection.execute("ATTACH DATABASE ? AS events", (uri,))
        return connection

    def version(self) -> tuple[int, int]:
        """Two numbers that differ from the last ones if anything was committed to either file since."""
        with self._turn:
            if self._watching is None:
                self._watching = self._open()
            queries = (f"PRAGMA {file}.data_version" for file in ("main", "events"))
            requests, events = (int(self._watching.execute(query).fetchone()[0]) for query in queries)
        return requests, events

    def now_s(self) -> float:
        """The time of the log, by which durations are measured; it may differ from the wall clock."""
        rows = self.rows("SELECT value FROM events.facts WHERE name = 'clock'")
        return log_time_s(reading_from_line(rows[0][0]) if rows else None, self._machine)

    # ---- jobs ---------------------------------------------------------------------------------------------------

    def job(self, id_: str, tenant: str | None) -> PublicJob | None:
        """The job; None if it does not exist or belongs to another tenant."""
        rows = self.rows(f"{SELECT_ALL} WHERE j.id = ? AND (? IS NULL OR j.tenant = ?)", (id_, tenant, tenant))
        return read_row(rows[0], self.leases.exit_code, self.now_s(), self._place) if rows else None

    def jobs(
        self, tenant: str | None, phases: Sequence[str], after: int, limit: int
    ) -> tuple[list[PublicJob], int | None]:
        """Jobs in order of submission, and the number after which to continue; None if there are no more."""
        conditions = ["j.number > ?"]
        values: list[Any] = [after]
        if tenant is not None:
            conditions.append("j.tenant = ?")
            values.append(tenant)
        if phases:
            conditions.append(f"coalesce(e.phase, '{SUBMITTED}') IN ({', '.join('?' * len(phases))})")
            values += phases
        # Jobs are taken in the order of their numbers, so that positions are in the same order.
        table, order = (SELECT_TAKEN, "e.position") if phases and SUBMITTED not in phases else (SELECT_ALL, "j.number")
        query = f"{table} WHERE {' AND '.join(conditions)} ORDER BY {order} LIMIT ?"
        rows = self.rows(query, (*values, limit + 1))
        now_s = self.now_s()
        next_after = rows[limit - 1]["number"] if len(rows) > limit else None
        places = self.places_for(rows)
        return [read_row(row, self.leases.exit_code, now_s, places) for row in rows[:limit]], next_after

    def places_for(self, rows: Sequence[sqlite3.Row]) -> Callable[[int], int]:
        """A function from the position of a waiting job among these rows to its place, with two queries for all rows."""
        asked = [row["position"] for row in rows if row["phase"] == WAITING]
        if not asked:
            return self._place
        first, last = min(asked), max(asked)
        before = self._place(first - 1)
        between = self.rows(f"SELECT position {_WAITING} AND position BETWEEN ? AND ? ORDER BY position", (first, last))
        positions = [row[0] for row in between]
        return lambda position: before + bisect_right(positions, position)

    def _place(self, position: int) -> int:
        """The place of a waiting job among all that wait, in order of arrival, from 1."""
        return int(self.rows(f"SELECT count(*) {_WAITING} AND position <= ?", (position,))[0][0])

    def holders(self, tenant: str | None) -> list[GpuHolder]:
        """Jobs that hold GPUs, of a tenant or of all, in order of submission."""
        # CROSS, as elsewhere: the few jobs that hold GPUs come first.
        rows = self.rows(
            "SELECT e.id, j.name, e.tenant, e.phase, e.spot FROM events.jobs e CROSS JOIN jobs j ON j.id = e.id "
            "WHERE e.gpus > 0 AND (? IS NULL OR e.tenant = ?) ORDER BY e.position",
            (tenant, tenant),
        )
        spots = _spots([row[4] for row in rows])
        return [
            GpuHolder(id_, name, owner, phase, spot)
            for (id_, name, owner, phase, _), spot in zip(rows, spots, strict=True)
        ]

    def counts(self, tenant: str | None) -> dict[str, int]:
        """Jobs by phase."""
        where, values = ("WHERE tenant = ?", (tenant,)) if tenant is not None else ("", ())
        counted = self.rows(f"SELECT phase, count(*) FROM events.jobs {where} GROUP BY phase", values)
        taken = {phase: int(count) for phase, count in counted}
        after = f"{where} {'AND' if where else 'WHERE'} number > {LAST_TAKEN}"
        submitted = self.rows(f"SELECT count(*) FROM jobs {after}", values)[0][0]
        archived = self.rows(f"SELECT coalesce(sum(jobs), 0) FROM events.archived_use {where}", values)[0][0]
        return {**taken, SUBMITTED: submitted, **({ARCHIVED: archived} if archived else {})}

    def waiting(self) -> int:
        """The number of jobs that wait."""
        return int(self.rows("SELECT count(*) FROM events.jobs WHERE phase = 'waiting'")[0][0])

    def archived(self, id_: str, tenant: str | None) -> ArchivedJob | None:
        """The job, if it is in the archive and not of another tenant."""
        query = "SELECT phase, end_s, segment FROM archived WHERE id = ? AND (? IS NULL OR tenant = ?)"
        rows = self.rows(query, (id_, tenant, tenant))
        return ArchivedJob(id_, *rows[0]) if rows else None

    def tenants_of(self, ids: Sequence[str]) -> dict[str, str]:
        """The tenants of these jobs, also of archived ones."""
        found = f"SELECT id, tenant FROM {{}} WHERE id IN ({', '.join('?' * len(ids))})"
        rows = self.rows(f"{found.format('jobs')} UNION {found.format('archived')}", (*ids, *ids))
        return {row[0]: row[1] for row in rows}

    # ---- cluster ------------------------------------------------------------------------------------------------

    def nodes(self) -> list[NodeRow]:
        rows = self.rows("SELECT name, type, gpus, free, up FROM events.nodes WHERE gpus > 0 ORDER BY position")
        drained = set(self._drained())
        return [
            NodeRow(name, type_, gpus, free, bool(up), not up and name in drained)
            for name, type_, gpus, free, up in rows
        ]

    def _drained(self) -> list[str]:
        """Nodes that an operator has drained and not resumed."""
        return [target for kind, target, _ in self.rows(request_queue.LAST_OF_NODES, (2**62,)) if kind == "drain"]

    def cluster_line(self) -> str | None:
        """The cluster as JSON; None if it is still that of the first start."""
        rows = self.rows("SELECT value FROM events.facts WHERE name = 'cluster'")
        return rows[0][0] if rows else None

    def jobs_on(self, node: str) -> list[str]:
        """Ids of jobs that hold GPUs of the node."""
        rows = self.rows("SELECT id, spot FROM events.jobs WHERE gpus > 0 ORDER BY position")
        return [row["id"] for row in rows if node in json.loads(row["spot"])]

    def tenants(self) -> dict[str, TenantTerms]:
        """All tenants for which a weight, quotas or limits were set, and all that ever submitted a job."""
        tenants: dict[str, TenantTerms] = {}
        for name, weight, stored in self.rows("SELECT name, weight, quotas FROM events.tenants"):
            quotas = tuple(Quota(**quota) for quota in json.loads(stored)["quotas"])
            tenants[name] = TenantTerms(name, weight, quotas)
        limits = self.limits()
        named = (name for name in limits if name != EVERY_TENANT)
        seen = self.rows("SELECT DISTINCT tenant FROM jobs UNION SELECT tenant FROM events.archived_use")
        for name in (*(row[0] for row in seen), *named):
            tenants.setdefault(name, TenantTerms(name))
        return {
            name: replace(terms, limits=limits.get(name, terms.limits), applied=limits_of(name, limits))
            for name, terms in sorted(tenants.items())
        }

    def held(self) -> list[tuple[str, dict[str, int]]]:
        """(tenant, GPUs by node) of every job that holds some."""
        rows = self.rows("SELECT tenant, spot FROM events.jobs WHERE gpus > 0")
        return list(zip((row[0] for row in rows), _spots([row[1] for row in rows]), strict=True))

    def by_tenant(self) -> dict[str, TenantUse]:
        """Use by tenant, for tenants whose jobs the scheduler has taken."""
        now_s = self.now_s()
        rows = self.rows(
            "SELECT tenant, sum(phase = 'waiting'), sum(gpus > 0), sum(attained_gpu_s + gpus * max(? - coalesce(since_s, ?), 0)) "
            "FROM events.jobs GROUP BY tenant",
            (now_s, now_s),
        )
        uses = {name: TenantUse(waiting, running, gpu_s / 3600) for name, waiting, running, gpu_s in rows}
        for name, gpu_s in self.rows("SELECT tenant, gpu_s FROM events.archived_use"):
            use = uses.get(name, TenantUse())
            uses[name] = replace(use, gpu_hours=use.gpu_hours + gpu_s / 3600)
        return uses

    def policy(self) -> tuple[str, dict[str, Any]]:
        """Name and parameters of the policy that decides."""
        policy = json.loads(self._fact("policy"))
        return policy["name"], policy["parameters"]

    def limits(self) -> dict[str, TenantLimits]:
        """The limits that operators have set, by tenant."""
        rows = self.rows("SELECT value FROM events.facts WHERE name = 'limits'")
        return read_limits(rows[0][0] if rows else None)

    def taken_and_waiting(self, tenant: str) -> tuple[int, int]:
        """The last request that the scheduler has taken, and the tenant's jobs that wait or are held then."""
        query = f"SELECT {_SHOWN}, (SELECT count(*) FROM events.jobs WHERE tenant = ? AND phase IN ('waiting', 'held'))"
        taken, waiting = self.rows(query, (tenant,))[0]
        return int(taken), int(waiting)

    def fell_back(self) -> str | None:
        """Why another policy than the one that was set decides."""
        reason: str | None = json.loads(self._fact("policy")).get("instead_of")
        return reason

    def taken(self) -> int:
        """The last request that the scheduler has taken, and whose effect can be read here."""
        return int(self.rows(f"SELECT {_SHOWN}")[0][0])

    def _fact(self, name: str) -> Any:
        return self.rows("SELECT value FROM events.facts WHERE name = ?", (name,))[0][0]

    # ---- the log ------------------------------------------------------------------------------------------------

    def last_seq(self) -> int:
        """The number of the last record, which may be archived."""
        return int(self.rows("SELECT coalesce(max(seq), 0) FROM events.log")[0][0]) or self.archived_seq()

    def archived_seq(self) -> int:
        """The number of the last record that is no longer in the log; 0 if none was archived."""
        rows = self.rows("SELECT value FROM events.facts WHERE name = 'base'")
        return int(rows[0][0]) if rows else 0

    def records(self, after: int, limit: int) -> list[tuple[int, dict[str, Any]]]:
        rows = self.rows("SELECT seq, record FROM events.log WHERE seq > ? ORDER BY seq LIMIT ?", (after, limit))
        return [(seq, json.loads(record)) for seq, record in rows]

    def decisions(self, before: int, limit: int) -> list[tuple[int, dict[str, Any]]]:
        """Newest first."""
        rows = self.rows(
            "SELECT seq, record FROM events.log WHERE kind = 'decision' AND seq < ? ORDER BY seq DESC LIMIT ?",
            (before, limit),
        )
        return [(seq, json.loads(record)) for seq, record in rows]

    def decision_numbers(self, before: int, limit: int) -> list[int]:
        """The numbers of decisions, newest first, without reading what was decided."""
        query = "SELECT seq FROM events.log WHERE kind = 'decision' AND seq < ? ORDER BY seq DESC LIMIT ?"
        return [row[0] for row in self.rows(query, (before, limit))]

    def first_time_s(self) -> float | None:
        """The time of the first record that is not archived; None if there is none."""
        rows = self.rows("SELECT time_s FROM events.log ORDER BY seq LIMIT 1")
        return float(rows[0][0]) if rows else None

    def next_decision(self, after: int) -> int | None:
        """The number of the first decision after a record; None if there is none."""
        query = "SELECT seq FROM events.log WHERE kind = 'decision' AND seq > ? ORDER BY seq LIMIT 1"
        rows = self.rows(query, (after,))
        return int(rows[0][0]) if rows else None

    def first_line(self) -> tuple[str, int]:
        """The header of the journal that begins with the first record in the log, and the number before that record."""
        rows = self.rows("SELECT name, value FROM events.facts WHERE name IN ('header', 'begins', 'base')")
        facts = {row["name"]: row["value"] for row in rows}
        return str(facts.get("begins", facts["header"])), int(facts.get("base", 0))

    def changes(self, before: int, limit: int) -> list[ChangeRow]:
        """The audit log, newest first."""
        query = "SELECT number, time_s, actor, action, target, detail FROM audit WHERE number < ? ORDER BY number DESC LIMIT ?"
        return [ChangeRow(**{**row, "detail": json.loads(row["detail"])}) for row in self.rows(query, (before, limit))]


def _spots(texts: Sequence[str]) -> list[dict[str, int]]:
    """GPUs by node of many jobs, from their JSON, in one call because each has a fixed cost."""
    spots: list[dict[str, int]] = json.loads(f"[{','.join(texts)}]")
    return spots
