"""The table of jobs in events.db: rows written from the scheduler's state, and read back as public rows."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from fairlead.engines.leases import Key
from fairlead.model.phases import Phase
from fairlead.model.public_job import PHASE_NAMES, JobFacts, PublicJob, has_exit_code, public_job
from fairlead.model.view import MIXED_TYPES, NO_TYPE
from fairlead.rounds.records import spec_from_json, to_line
from fairlead.rounds.state import State
from fairlead.rounds.waiting import reason_sentence

COLUMNS = tuple(field.name for field in fields(JobFacts))
_SPOT = COLUMNS.index("spot")  # JSON in the table
_FIXED = ("position", "id", "tenant")  # never change after the first row
UPSERT = (
    f"INSERT INTO jobs ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))}) ON CONFLICT (position) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in COLUMNS if name not in (*_FIXED, "reason"))
    + ", reason = coalesce(excluded.reason, reason)"
)

WAITING = PHASE_NAMES[Phase.WAITING]
_OWN = ("number", "name", "submitted_s", "spec")  # of the table in requests.db
_SELECT = f"SELECT {', '.join(f'j.{name}' for name in _OWN)}, {', '.join(f'e.{name}' for name in COLUMNS)}"
SELECT_ALL = f"{_SELECT} FROM jobs j LEFT JOIN events.jobs e ON e.id = j.id"
# CROSS makes SQLite's planner keep this order.
SELECT_TAKEN = f"{_SELECT} FROM events.jobs e CROSS JOIN jobs j ON j.id = e.id"


def row_of(state: State, j: int, reason: str | None) -> tuple[Any, ...]:
    """The values for `UPSERT`. The last decision's reason for a waiting job comes first; None leaves the stored one."""
    facts = facts_of(state, j, reason_sentence(state, j) or reason)
    return tuple(_stored(getattr(facts, name)) for name in COLUMNS)


def facts_of(state: State, j: int, reason: str | None) -> JobFacts:
    spec, type_ = state.specs[j], int(state.held_type[j])
    names = {NO_TYPE: None, MIXED_TYPES: "mixed"}
    return JobFacts(
        position=int(state.number[j]),  # permanent, unlike the position in the state
        id=spec.id,
        tenant=spec.tenant,
        phase=PHASE_NAMES[int(state.phase[j])],
        arrival_s=float(state.arrival_s[j]),
        first_start_s=_number(state.first_start_s[j]),
        end_s=_number(state.end_s[j]),
        since_s=_number(state.since_s[j]),
        type=names[type_] if type_ < 0 else state.cluster.types[type_],
        gpus=int(state.held_gpus[j]),
        spot={state.cluster.nodes[node]: count for node, count in state.spots[j]},
        done=float(state.done[j]),
        total=_number(state.total[j]),
        rate=float(state.rate[j]),
        at_s=float(state.at_s[j]),
        resume_s=float(state.resume_s[j]),
        attained_gpu_s=float(state.attained_gpu_s[j]),
        run_s=float(state.run_s[j]),
        leases=int(state.leases[j]),
        restarts=int(state.restarts[j]),
        reason=reason,
    )


def read_row(
    row: sqlite3.Row, exit_code: Callable[[Key], int | None], now_s: float, place: Callable[[int], int]
) -> PublicJob:
    """The public job of a row of `SELECT_ALL` or `SELECT_TAKEN`; `exit_code` looks up that of a lease.

    `place` looks up the place of a waiting job in the queue.
    """
    _, name, submitted_s, spec = row[: len(_OWN)]
    facts = _facts(row[len(_OWN) :])
    code = exit_code((facts.id, facts.leases)) if facts is not None and has_exit_code(facts) else None
    position = place(facts.position) if facts is not None and facts.phase == WAITING else None
    return public_job(name, submitted_s, spec_from_json(json.loads(spec)), facts, code, now_s, position)


def _facts(columns: tuple[Any, ...]) -> JobFacts | None:
    if columns[0] is None:
        return None  # not taken yet
    values = list(columns)
    values[_SPOT] = {} if values[_SPOT] is None else json.loads(values[_SPOT])
    return JobFacts(*values)


def _stored(value: Any) -> Any:
    if isinstance(value, dict):
        return to_line(value) if value else None
    return value


def _number(value: Any) -> float | None:
    return float(value) if math.isfinite(value) else None
