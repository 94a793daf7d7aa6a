"""The requests in requests.db: appended by the API, taken by the scheduler in order, each exactly once."""

from __future__ import annotations

import json
import math
import os
import select
import sqlite3
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from fairlead.engines.requests import (
    AddNode,
    Cancel,
    Command,
    Drain,
    Hold,
    Release,
    RemoveNode,
    Request,
    Resume,
    SetLimits,
    SetPolicy,
    SetTenant,
    Submit,
)
from fairlead.model.cluster import NodeGroup
from fairlead.model.errors import InputError
from fairlead.model.jobs import JobSpec
from fairlead.model.lifecycle import ENDED, Phase
from fairlead.model.limits import TenantLimits
from fairlead.model.quotas import Quota
from fairlead.rounds.records import spec_from_json, to_line
from fairlead.rounds.state import State
from fairlead.service.store.facts import fact
from fairlead.service.store.incarnations import job_id
from fairlead.service.store.log import Log

# The last request about each node.
LAST_OF_NODES = (
    "SELECT kind, target, max(number) FROM requests WHERE kind IN ('drain', 'resume', 'add_node', 'remove_node') "
    "AND number <= ? GROUP BY target"
)
# Requests taken at once: the transaction that answers them stays short.
_MOST = 1000


@dataclass(frozen=True, slots=True)
class Submission:
    """A job to submit. The number of its request becomes its id, which replaces that of `spec`."""

    name: str
    spec: JobSpec
    command: Command


def append(connection: sqlite3.Connection, actor: str, request: Request) -> int:
    """Append a request other than a job (see `submit`) and return its number."""
    kind, target, body = _to_row(request)
    cursor = connection.execute(
        "INSERT INTO requests (time_s, actor, kind, target, body) VALUES (?, ?, ?, ?, ?)",
        (time.time(), actor, kind, target, to_line(body)),
    )
    return _id(cursor)


def append_all(connection: sqlite3.Connection, actor: str, requests: Iterable[Request]) -> None:
    """Append all requests in one transaction."""
    connection.execute("BEGIN IMMEDIATE")
    for request in requests:
        append(connection, actor, request)
    connection.execute("COMMIT")


def submit(connection: sqlite3.Connection, actor: str, submission: Submission) -> str:
    """Append a job and return its id."""
    now_s = time.time()
    cursor = connection.execute(
        "INSERT INTO requests (time_s, actor, kind, target, body) VALUES (?, ?, 'submit', '', '{}')", (now_s, actor)
    )
    number = _id(cursor)
    spec = replace(submission.spec, id=job_id(int(fact(connection, "incarnation")), number))
    _insert_job(connection, number, replace(submission, spec=spec), now_s)
    return spec.id


def submit_watched(connection: sqlite3.Connection, actor: str, submissions: Iterable[Submission]) -> None:
    """Append jobs of another scheduler under their own ids, as of their own times; those that are known are skipped."""
    known = "SELECT 1 FROM jobs WHERE id = ? UNION SELECT 1 FROM archived WHERE id = ?"
    for submission in submissions:
        spec = submission.spec
        if connection.execute(known, (spec.id, spec.id)).fetchone() is None:
            cursor = connection.execute(
                "INSERT INTO requests (time_s, actor, kind, target, body) VALUES (?, ?, 'submit', '', '{}')",
                (time.time(), actor),
            )
            _insert_job(connection, _id(cursor), submission, spec.arrival_s)


def _insert_job(connection: sqlite3.Connection, number: int, submission: Submission, submitted_s: float) -> None:
    spec, command = submission.spec, submission.command
    row = (number, spec.id, spec.tenant, submission.name, submitted_s, to_line(asdict(spec)), to_line(asdict(command)))
    connection.execute("INSERT INTO jobs VALUES (?, ?, ?, ?, ?, ?, ?)", row)


def command_of(connection: sqlite3.Connection, job: str) -> Command:
    row = connection.execute("SELECT command FROM jobs WHERE id = ?", (job,)).fetchone()
    if row is None:
        raise InputError(f"job {job} is in the log but not in requests.db; restore both files from one backup")
    return Command(**json.loads(row[0]))


def read_after(connection: sqlite3.Connection, number: int) -> list[tuple[int, Request]]:
    rows = connection.execute(
        "SELECT requests.number, kind, target, body, spec, command FROM requests LEFT JOIN jobs USING (number) "
        "WHERE requests.number > ? ORDER BY requests.number LIMIT ?",
        (number, _MOST),
    )
    return [(row[0], _from_row(*row[1:])) for row in rows]


def unanswered(connection: sqlite3.Connection, taken: int, state: State) -> list[Request]:
    """Requests that were taken but had no effect yet when the scheduler ended, to be made again.

    A job is cancelled or held only once its GPUs have been returned.
    """
    rows = connection.execute(
        "SELECT kind, target, max(number) FROM requests WHERE kind IN ('cancel', 'hold', 'release') AND number <= ? "
        "GROUP BY target, kind = 'cancel' ORDER BY max(number)",
        (taken,),
    )
    again: list[Request] = []
    for kind, target, _ in rows:
        j = state.position.get(target)
        if j is None or state.phase[j] in ENDED:
            continue
        if kind == "cancel":
            again.append(Cancel(target))
        elif kind == "hold" and state.phase[j] != Phase.HELD:
            again.append(Hold(target))
    return again


def drained(connection: sqlite3.Connection, taken: int) -> list[str]:
    """Nodes that an operator has drained and not resumed."""
    rows = connection.execute(LAST_OF_NODES, (taken,))
    return [target for kind, target, _ in rows if kind == "drain"]


class StoredInbox:
    """The scheduler's end of the queue. `wait` returns after a commit or the timeout; False if the API has ended."""

    def __init__(
        self, connection: sqlite3.Connection, log: Log, again: list[Request], wait: Callable[[float], bool]
    ) -> None:
        self._connection = connection
        self._log = log
        self.taken = log.taken  # the last request that was returned
        self._again = again
        self._wait = wait
        self.closed = False

    def take(self, timeout_s: float) -> list[Request] | None:
        if self.closed:
            return None
        if timeout_s > 0:
            # A caller that is ready to wait has reported all results of the requests before.
            self._log.commit(self.taken)
        if self._again:
            again, self._again = self._again, []
            return again
        requests = self._read()
        if requests or timeout_s <= 0:
            return requests
        self.closed = not self._wait(timeout_s)
        return None if self.closed else self._read()

    def _read(self) -> list[Request]:
        requests = read_after(self._connection, self.taken)
        if requests:
            self.taken = self._log.read = requests[-1][0]
        return [request for _, request in requests]


def wait_on_pipe(pipe: int, timeout_s: float) -> bool:
    """Wait for a byte, which announces a commit, or the timeout; False if the other end is closed."""
    ready, _, _ = select.select([pipe], [], [], None if math.isinf(timeout_s) else timeout_s)
    return not ready or bool(os.read(pipe, 65536))


_PLAIN: dict[str, type[Cancel | Hold | Release]] = {"cancel": Cancel, "hold": Hold, "release": Release}
_NODES: dict[str, type[Drain | Resume | RemoveNode]] = {"drain": Drain, "resume": Resume, "remove_node": RemoveNode}


def _to_row(request: Request) -> tuple[str, str, dict[str, Any]]:
    match request:
        case Cancel(target) | Hold(target) | Release(target) | Drain(target) | Resume(target):
            return type(request).__name__.lower(), target, {}
        case AddNode(node, group):
            return "add_node", node, {"gpu": group.gpu, "gpus": group.gpus, "memory_gib": group.memory}
        case RemoveNode(node):
            return "remove_node", node, {}
        case SetTenant(tenant, weight, quotas):
            return "tenant", tenant, {"weight": weight, "quotas": [asdict(quota) for quota in quotas]}
        case SetLimits(tenant, limits):
            return "limits", tenant, asdict(limits)
        case SetPolicy(policy, parameters):
            return "policy", policy, dict(parameters)
        case Submit():
            raise AssertionError("jobs are appended by submit()")


def _from_row(kind: str, target: str, body: str, spec: str | None, command: str | None) -> Request:
    if kind == "submit":
        assert spec is not None, "a job's row is written with its request"
        assert command is not None
        return Submit(spec_from_json(json.loads(spec)), Command(**json.loads(command)))
    if kind == "tenant":
        terms = json.loads(body)
        return SetTenant(target, terms["weight"], tuple(Quota(**quota) for quota in terms["quotas"]))
    if kind == "limits":
        return SetLimits(target, TenantLimits(**json.loads(body)))
    if kind == "add_node":
        return AddNode(target, NodeGroup(1, **json.loads(body)))
    if kind == "policy":
        return SetPolicy(target, json.loads(body))
    return _PLAIN[kind](target) if kind in _PLAIN else _NODES[kind](target)


def _id(cursor: sqlite3.Cursor) -> int:
    assert cursor.lastrowid is not None, "an INSERT has a row"
    return cursor.lastrowid
