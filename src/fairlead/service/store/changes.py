"""Changes to requests.db: each is a function of the writer's connection, passed to `Writer.write`."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fairlead.engines.requests import Request
from fairlead.model.errors import FairleadError
from fairlead.rounds.records import to_line
from fairlead.service.store import request_queue
from fairlead.service.store.tokens import Token, store_token

KEYS_KEPT_S = 7 * 86400.0

_T = TypeVar("_T")
Change = Callable[[sqlite3.Connection], _T]


class KeyReusedError(FairleadError):
    """An idempotency key was used before with another job."""


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """What the audit log records about a change, besides its actor and its time."""

    action: str
    target: str
    detail: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SubmissionKey:
    """The idempotency key of a submission: whose it is, and a digest of the job that came with it."""

    token: str
    key: str
    digest: str


def ask(actor: str, request: Request, entry: AuditEntry | None = None) -> Change[int]:
    """A change that appends a request to the queue, with its audit entry if any, and returns its number."""

    def change(connection: sqlite3.Connection) -> int:
        if entry is not None:
            _note(connection, actor, entry)
        return request_queue.append(connection, actor, request)

    return change


def submit(
    actor: str, submission: request_queue.Submission, key: SubmissionKey | None, admit: Change[None] = lambda _: None
) -> Change[tuple[str, bool]]:
    """A change that submits a job unless its key was used before, and returns the job's id and whether it is new.

    A new job is submitted only if `admit` does not raise an error.
    """

    def change(connection: sqlite3.Connection) -> tuple[str, bool]:
        before = None if key is None else _job_of_key(connection, key)
        if before is not None:
            return before, False
        admit(connection)
        id_ = request_queue.submit(connection, actor, submission)
        if key is not None:
            row = (key.token, key.key, key.digest, id_, time.time())
            connection.execute("INSERT INTO idempotency VALUES (?, ?, ?, ?, ?)", row)
        return id_, True

    return change


def create_token(actor: str, token: Token) -> Change[None]:
    detail = {"name": token.name, "role": token.role, "tenant": token.tenant}
    return _store_token(actor, token, AuditEntry("token.create", token.id, detail))


def revoke_token(actor: str, revoked: Token) -> Change[None]:
    return _store_token(actor, revoked, AuditEntry("token.revoke", revoked.id, {"name": revoked.name}))


def forget_old_keys(connection: sqlite3.Connection) -> None:
    """Delete the keys of submissions that are too old to be repeated."""
    connection.execute("DELETE FROM idempotency WHERE time_s < ?", (time.time() - KEYS_KEPT_S,))


def _store_token(actor: str, token: Token, entry: AuditEntry) -> Change[None]:
    def change(connection: sqlite3.Connection) -> None:
        store_token(connection, token)
        _note(connection, actor, entry)

    return change


def _note(connection: sqlite3.Connection, actor: str, entry: AuditEntry) -> None:
    """Add an audit entry in the same transaction as the change itself."""
    connection.execute(
        "INSERT INTO audit (time_s, actor, action, target, detail) VALUES (?, ?, ?, ?, ?)",
        (time.time(), actor, entry.action, entry.target, to_line(entry.detail)),
    )


def _job_of_key(connection: sqlite3.Connection, key: SubmissionKey) -> str | None:
    """The job that was submitted with this key before."""
    query = "SELECT digest, jobs FROM idempotency WHERE token = ? AND key = ?"
    row = connection.execute(query, (key.token, key.key)).fetchone()
    if row is None:
        return None
    if row[0] != key.digest:
        raise KeyReusedError("this Idempotency-Key was used before with another job")
    return str(row[1])
