"""The log as its followers read it: page by page up to the last record whose rows are written, and the rows behind it.

SQLite leaves out what followers do not need, so that Python, which serves requests meanwhile, has less to decode.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairlead.service.store.directory import StateDirectory
from fairlead.service.store.identity import Identity
from fairlead.service.store.reads import Reads
from fairlead.service.store.rows import ChangeRow

KIND = "follower/1"
_AT_ONCE = 500  # values in one statement


@dataclass(frozen=True, slots=True)
class FollowedRecord:
    """A record of the log; `body` is empty if the follower does not read its kind."""

    seq: int
    time_s: float
    kind: str
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class FollowedJob:
    """What followers know about a job: its row, its name and its description as JSON."""

    id: str
    name: str
    tenant: str
    arrival_s: float
    first_start_s: float | None
    end_s: float | None
    run_s: float
    done: float
    spec: str


def read_page(reads: Reads, after: int, limit: int, kinds: Collection[str]) -> list[FollowedRecord]:
    """The records after `after`, of which all rows can be read; decisions without their reasons."""
    listed = ", ".join(f"'{kind}'" for kind in sorted(kinds))
    rows = reads.rows(
        f"SELECT seq, time_s, kind, CASE WHEN kind NOT IN ({listed}) THEN '{{}}' "
        "WHEN kind IN ('decision', 'advised') THEN json_remove(record, '$.why', '$.terms') ELSE record END "
        "FROM events.log WHERE seq > ? AND seq <= (SELECT value FROM events.facts WHERE name = 'projected') "
        "ORDER BY seq LIMIT ?",
        (after, limit),
    )
    return [FollowedRecord(seq, time_s, kind, json.loads(body)) for seq, time_s, kind, body in rows]


def jobs_by_id(reads: Reads, ids: Sequence[str]) -> dict[str, FollowedJob]:
    """The jobs that are not archived."""
    found: dict[str, FollowedJob] = {}
    for first in range(0, len(ids), _AT_ONCE):
        part = ids[first : first + _AT_ONCE]
        rows = reads.rows(
            "SELECT e.id, j.name, e.tenant, e.arrival_s, e.first_start_s, e.end_s, e.run_s, e.done, j.spec "
            f"FROM events.jobs e JOIN jobs j ON j.id = e.id WHERE e.id IN ({', '.join('?' * len(part))})",
            part,
        )
        found.update((row[0], FollowedJob(*row)) for row in rows)
    return found


def crowd_so_far(reads: Reads) -> tuple[int, list[float], list[float]]:
    """The record up to which rows are current, and the arrivals and ends of all jobs then, each in ascending order."""
    rows = reads.rows(
        "SELECT 0, value FROM events.facts WHERE name = 'projected' UNION ALL SELECT 1, arrival_s FROM events.jobs "
        "UNION ALL SELECT 2, end_s FROM events.jobs WHERE end_s IS NOT NULL"
    )
    values: list[list[float]] = [[], [], []]
    for place, value in rows:
        values[place].append(value)
    return int(values[0][0]), sorted(values[1]), sorted(values[2])


def archived_ends(reads: Reads) -> dict[tuple[str, str], int]:
    """Archived jobs by tenant and phase."""
    rows = reads.rows("SELECT tenant, phase, count(*) FROM archived GROUP BY tenant, phase")
    return {(tenant, phase): count for tenant, phase, count in rows}


def changes_after(reads: Reads, after: int, limit: int) -> list[ChangeRow]:
    """Entries of the audit log in their order."""
    query = "SELECT number, time_s, actor, action, target, detail FROM audit WHERE number > ? ORDER BY number LIMIT ?"
    return [ChangeRow(**{**row, "detail": json.loads(row["detail"])}) for row in reads.rows(query, (after, limit))]


def last_change(reads: Reads) -> int:
    return int(reads.rows("SELECT coalesce(max(number), 0) FROM audit")[0][0])


def jobs_by_state(reads: Reads) -> dict[tuple[str, str], int]:
    """Jobs by tenant and phase."""
    rows = reads.rows("SELECT tenant, phase, count(*) FROM events.jobs GROUP BY tenant, phase")
    return {(tenant, phase): count for tenant, phase, count in rows}


def oldest_arrival_s(reads: Reads) -> float | None:
    """The arrival of the oldest job that waits."""
    arrival_s: float | None = reads.rows("SELECT min(arrival_s) FROM events.jobs WHERE phase = 'waiting'")[0][0]
    return arrival_s


def waiting_widths(reads: Reads) -> dict[int, int]:
    """How many jobs of each reference width wait."""
    rows = reads.rows(
        "SELECT json_extract(j.spec, '$.gpus'), count(*) FROM events.jobs e JOIN jobs j ON j.id = e.id "
        "WHERE e.phase = 'waiting' GROUP BY 1"
    )
    return {int(width): int(count) for width, count in rows}


def identity_of_log(reads: Reads) -> Identity:
    rows = reads.rows("SELECT name, value FROM events.facts WHERE name IN ('store', 'incarnation')")
    facts = {row[0]: row[1] for row in rows}
    return Identity(str(facts["store"]), int(facts["incarnation"]))


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where a follower is: the last record that it is done with, and what else it remembers."""

    after: int
    memory: Any = None


def read_cursor(directory: StateDirectory, name: str, identity: Identity) -> Cursor | None:
    """The stored cursor; None if there is none for this store and incarnation that can be read."""
    try:
        document = json.loads(_path(directory, name).read_text(encoding="utf-8"))
        ours = (KIND, identity.store, identity.incarnation)
        if (document["fairlead"], document["store"], document["incarnation"]) != ours:
            return None
        return Cursor(int(document["after"]), document["memory"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_cursor(directory: StateDirectory, name: str, identity: Identity, cursor: Cursor) -> None:
    path = _path(directory, name)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    document = {
        "fairlead": KIND,
        "store": identity.store,
        "incarnation": identity.incarnation,
        "after": cursor.after,
        "memory": cursor.memory,
    }
    draft = path.with_suffix(".new")
    with draft.open("w", encoding="utf-8") as file:
        json.dump(document, file)
        file.flush()
        os.fsync(file.fileno())
    draft.rename(path)


def _path(directory: StateDirectory, name: str) -> Path:
    return directory.followers / f"{name}.json"
