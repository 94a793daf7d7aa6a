"""Reads both files for the API; each answer is the latest committed state."""

from __future__ import annotations

import json
import queue
import sqlite3
import time
from collections.abc import Sequence
from typing import Any

from fairlead.engines.runner import LeaseReader
from fairlead.model.public_job import SUBMITTED, PublicJob
from fairlead.model.quotas import Quota
from fairlead.service.store.database import open_reader
from fairlead.service.store.directory import StateDirectory
from fairlead.service.store.job_rows import SELECT_ALL, SELECT_TAKEN, read_row
from fairlead.service.store.rows import ChangeRow, NodeRow, TenantTerms, TenantUse


class Reads:
    """Connections to requests.db with events.db attached, for any thread; as many as were ever busy at once."""

    def __init__(self, directory: StateDirectory, leases: LeaseReader) -> None:
        self._directory = directory
        self.leases = leases  # reads their logs and exit codes
        self._idle: queue.SimpleQueue[sqlite3.Connection] = queue.SimpleQueue()

    def close(self) -> None:
        """Close the connections, once nothing reads any more."""
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

    # ---- jobs ---------------------------------------------------------------------------------------------------

    def job(self, id_: str, tenant: str | None) -> PublicJob | None:
        """The job; None if it does not exist or belongs to another tenant."""
        rows = self.rows(f"{SELECT_ALL} WHERE j.id = ? AND (? IS NULL OR j.tenant = ?)", (id_, tenant, tenant))
        return read_row(rows[0], self.leases.exit_code, time.time()) if rows else None

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
        now_s = time.time()
        next_after = rows[limit - 1]["number"] if len(rows) > limit else None
        return [read_row(row, self.leases.exit_code, now_s) for row in rows[:limit]], next_after

    def counts(self, tenant: str | None) -> dict[str, int]:
        """Jobs by phase."""
        where, values = ("WHERE tenant = ?", (tenant,)) if tenant is not None else ("", ())
        counted = self.rows(f"SELECT phase, count(*) FROM events.jobs {where} GROUP BY phase", values)
        taken = {phase: int(count) for phase, count in counted}
        total = self.rows(f"SELECT count(*) FROM jobs {where}", values)[0][0]
        return {**taken, SUBMITTED: max(total - sum(taken.values()), 0)}

    def tenants_of(self, ids: Sequence[str]) -> dict[str, str]:
        rows = self.rows(f"SELECT id, tenant FROM jobs WHERE id IN ({', '.join('?' * len(ids))})", tuple(ids))
        return {row[0]: row[1] for row in rows}

    # ---- cluster ------------------------------------------------------------------------------------------------

    def nodes(self) -> list[NodeRow]:
        rows = self.rows("SELECT name, type, gpus, free, up FROM events.nodes WHERE gpus > 0 ORDER BY position")
        return [NodeRow(name, type_, gpus, free, bool(up)) for name, type_, gpus, free, up in rows]

    def cluster_line(self) -> str | None:
        """The cluster as JSON; None if it is still that of the first start."""
        rows = self.rows("SELECT value FROM events.facts WHERE name = 'cluster'")
        return rows[0][0] if rows else None

    def jobs_on(self, node: str) -> list[str]:
        """Ids of jobs that hold GPUs of the node."""
        rows = self.rows("SELECT id, spot FROM events.jobs WHERE gpus > 0 ORDER BY position")
        return [row["id"] for row in rows if node in json.loads(row["spot"])]

    def tenants(self) -> dict[str, TenantTerms]:
        """All tenants for which a weight or quotas were set, and all that ever submitted a job."""
        tenants: dict[str, TenantTerms] = {}
        for name, weight, stored in self.rows("SELECT name, weight, quotas FROM events.tenants"):
            quotas = tuple(Quota(**quota) for quota in json.loads(stored)["quotas"])
            tenants[name] = TenantTerms(name, weight, quotas)
        for (name,) in self.rows("SELECT DISTINCT tenant FROM jobs"):
            tenants.setdefault(name, TenantTerms(name))
        return dict(sorted(tenants.items()))

    def held(self) -> list[tuple[str, dict[str, int]]]:
        """(tenant, GPUs by node) of every job that holds some."""
        rows = self.rows("SELECT tenant, spot FROM events.jobs WHERE gpus > 0")
        return [(tenant, json.loads(spot)) for tenant, spot in rows]

    def by_tenant(self) -> dict[str, TenantUse]:
        """Use by tenant, for tenants whose jobs the scheduler has taken."""
        now_s = time.time()
        rows = self.rows(
            "SELECT tenant, sum(phase = 'waiting'), sum(gpus > 0), sum(attained_gpu_s + gpus * max(? - coalesce(since_s, ?), 0)) "
            "FROM events.jobs GROUP BY tenant",
            (now_s, now_s),
        )
        return {name: TenantUse(waiting, running, gpu_s / 3600) for name, waiting, running, gpu_s in rows}

    def policy(self) -> tuple[str, dict[str, Any]]:
        """Name and parameters of the policy that decides."""
        policy = json.loads(self._fact("policy"))
        return policy["name"], policy["parameters"]

    def taken(self) -> int:
        return int(self._fact("taken"))

    def _fact(self, name: str) -> Any:
        return self.rows("SELECT value FROM events.facts WHERE name = ?", (name,))[0][0]

    # ---- the log ------------------------------------------------------------------------------------------------

    def last_seq(self) -> int:
        return int(self.rows("SELECT coalesce(max(seq), 0) FROM events.log")[0][0])

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

    def header_line(self) -> str:
        return str(self._fact("header"))

    def changes(self, before: int, limit: int) -> list[ChangeRow]:
        """The audit log, newest first."""
        query = "SELECT number, time_s, actor, action, target, detail FROM audit WHERE number < ? ORDER BY number DESC LIMIT ?"
        return [ChangeRow(**{**row, "detail": json.loads(row["detail"])}) for row in self.rows(query, (before, limit))]
