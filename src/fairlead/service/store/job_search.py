"""Jobs by phase, tenant and text, a page at a time and in a stable order; and the records of the log about one job."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fairlead.model.public_job import SUBMITTED, PublicJob
from fairlead.service.store.job_rows import SELECT_ALL, read_row
from fairlead.service.store.reads import Reads

_COUNT = "SELECT count(*) FROM jobs j LEFT JOIN events.jobs e ON e.id = j.id"
_DULL = ("progress", "first_progress", "served")  # frequent, and without effect on what a job holds


@dataclass(frozen=True, slots=True)
class JobQuery:
    """Which jobs: of a tenant (None: all), in some phases (none: all), with a text in their id or name."""

    tenant: str | None
    phases: Sequence[str] = ()
    text: str = ""
    newest_first: bool = False

    def conditions(self) -> tuple[str, list[Any]]:
        """The condition of SQL, and its values."""
        parts, values = ["1"], list[Any]()
        if self.tenant is not None:
            parts.append("j.tenant = ?")
            values.append(self.tenant)
        if self.phases:
            parts.append(f"coalesce(e.phase, '{SUBMITTED}') IN ({', '.join('?' * len(self.phases))})")
            values += self.phases
        if self.text:
            escaped = self.text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
            parts.append("(j.name LIKE ? ESCAPE '\\' OR j.id = ?)")
            values += [f"%{escaped}%", self.text]
        return " AND ".join(parts), values


def search_jobs(reads: Reads, query: JobQuery, skip: int, limit: int) -> tuple[list[PublicJob], int]:
    """A page of jobs in order of submission, and how many there are on all pages."""
    where, values = query.conditions()
    total = int(reads.rows(f"{_COUNT} WHERE {where}", values)[0][0])
    order = "j.number DESC" if query.newest_first else "j.number"
    rows = reads.rows(f"{SELECT_ALL} WHERE {where} ORDER BY {order} LIMIT ? OFFSET ?", (*values, limit, skip))
    now_s, place = reads.now_s(), reads.places_for(rows)
    return [read_row(row, reads.leases.exit_code, now_s, place) for row in rows], total


def records_about(reads: Reads, job: PublicJob) -> list[dict[str, Any]]:
    """The records of the log that name the job, oldest first, without its progress; what is archived is missing."""
    first = seq_at(reads, job.submitted_s - 60.0)
    last = 2**62 if job.end_s is None else seq_at(reads, job.end_s + 60.0)
    rows = reads.rows(
        f"SELECT record FROM events.log WHERE seq BETWEEN ? AND ? AND kind NOT IN ({', '.join('?' * len(_DULL))}) "
        "AND record LIKE ? ORDER BY seq",
        (first, last, *_DULL, f'%"{job.id}"%'),
    )
    return [json.loads(row[0]) for row in rows]


def seq_at(reads: Reads, time_s: float) -> int:
    """The number of the last record at or before the time, by halving; the first record that is left if all are later."""
    low, high = reads.archived_seq() + 1, reads.last_seq()
    while low < high:
        middle = (low + high + 1) // 2
        rows = reads.rows("SELECT time_s FROM events.log WHERE seq = ?", (middle,))
        if rows and rows[0][0] <= time_s:
            low = middle
        else:
            high = middle - 1
    return low
