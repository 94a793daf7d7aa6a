"""Log lines as JSON: one for each decision, each other record of the log except progress, and each change.

Fields are chosen one by one, so that nothing gets into a line by accident; docs/operations.md lists them.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any

from fairlead.model.words import printable
from fairlead.service.store.followed import FollowedRecord, changes_after, last_change
from fairlead.service.store.reads import Reads
from fairlead.service.store.rows import ChangeRow

MOST_JOBS = 100  # named in one line; the counts are exact
_CHANGES = 100  # read at once
_LAST_LINES_S = 2.0
# By kind of record: the fields of the line besides time, event and seq.
FIELDS: dict[str, tuple[str, ...]] = {
    "decision": ("cause", "solver", "by_clock"),
    "advised": ("cause", "solver"),
    "arrived": (),
    "started": ("jobs",),
    "stopped": ("jobs",),
    "finished": ("jobs",),
    "failed": ("jobs", "reason"),
    "lost": ("jobs", "reason", "setbacks"),
    "refused": ("jobs", "reason", "setbacks"),
    "cancelled": ("jobs",),
    "held": ("jobs",),
    "released": ("jobs",),
    "node_down": ("node",),
    "node_up": ("node",),
    "node_usable": ("node", "gpus"),
    "node_added": ("name", "gpu", "gpus"),
    "node_removed": ("node",),
    "tenant_set": ("tenant", "weight", "quotas"),
    "limits_set": ("tenant", "limits"),
    "policy_set": ("policy", "parameters", "instead_of"),
    "settings_set": ("settings",),
}
_OF_JOB = ("id", "tenant", "model", "gpus", "steps")


class LogLines:
    """Implements `LogConsumer`: writes lines, beginning with what happens after the first start with it."""

    name = "log"
    kinds: Collection[str] = frozenset(FIELDS)

    def __init__(self, reads: Reads, write: Callable[[dict[str, Any]], None]) -> None:
        self._reads, self._write = reads, write
        self._change = 0

    def begin(self, memory: Any) -> int:
        self._change = last_change(self._reads) if memory is None else int(memory["change"])
        return self._reads.last_seq()

    def take(self, page: list[FollowedRecord]) -> None:
        for record in page:
            if record.kind in FIELDS:
                self._write(line_of(record))
        for change in changes_after(self._reads, self._change, _CHANGES):
            self._write(change_line(change))
            self._change = change.number

    def settled(self, last: int) -> int:
        return last

    def memory(self) -> Any:
        return {"change": self._change}


def line_of(record: FollowedRecord) -> dict[str, Any]:
    body = record.body
    line: dict[str, Any] = {"time": instant(record.time_s), "level": _level(record), "event": record.kind}
    line["seq"] = record.seq
    if record.kind in ("decision", "advised"):
        moved = [id_ for id_ in body["stop"] if id_ in body["start"]]
        started = [id_ for id_ in body["start"] if id_ not in moved]
        stopped = [id_ for id_ in body["stop"] if id_ not in moved]
        for name, ids in (("started", started), ("stopped", stopped), ("moved", moved)):
            line |= {name: len(ids), f"{name}_jobs": ids[:MOST_JOBS]}
    if record.kind == "arrived":
        line |= {name: body["job"][name] for name in _OF_JOB}
    for name in FIELDS[record.kind]:
        if name == "jobs":
            line |= {"jobs": body["jobs"][:MOST_JOBS], "count": len(body["jobs"])}
        elif name in body:
            line[name] = body[name]
    return line


def change_line(change: ChangeRow) -> dict[str, Any]:
    """An entry of the audit log. Tokens are in it by id, never by secret."""
    return {
        "time": instant(change.time_s),
        "level": "info",
        "event": "change",
        "number": change.number,
        "actor": change.actor,
        "action": change.action,
        "target": change.target,
        "detail": change.detail,
    }


def message_line(text: str, level: str = "info") -> dict[str, Any]:
    return {"time": instant(datetime.now(UTC).timestamp()), "level": level, "event": "message", "message": text}


def instant(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _level(record: FollowedRecord) -> str:
    bad = record.kind in ("failed", "lost", "refused", "node_down") or record.body.get("instead_of")
    return "warning" if bad else "info"


class JsonOutput:
    """Writes lines to a descriptor, from any thread."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._lock = descriptor, threading.Lock()

    def write(self, line: dict[str, Any]) -> None:
        data = f"{json.dumps(line, separators=(',', ':'))}\n".encode()
        with self._lock:
            while data:
                data = data[os.write(self._descriptor, data) :]


@contextmanager
def stderr_as_json() -> Iterator[JsonOutput]:
    """Standard error on which every line is a JSON object: what this process and its children print becomes messages."""
    target = os.dup(2)
    reading, writing = os.pipe()
    os.dup2(writing, 2)
    os.close(writing)
    output = JsonOutput(target)
    thread = threading.Thread(target=_copy, args=(reading, output), name="stderr", daemon=True)
    thread.start()
    try:
        yield output
    finally:
        sys.stderr.flush()
        os.dup2(target, 2)
        thread.join(_LAST_LINES_S)  # a child that still lives may keep the pipe open


def _copy(reading: int, output: JsonOutput) -> None:
    with open(reading, encoding="utf-8", errors="replace") as lines:
        for text in lines:
            if text.strip():
                with suppress(OSError):  # such as a full disk: this line is lost, but printing still works
                    output.write(message_line(printable(text.rstrip("\n").removeprefix("fairlead: "))))
