"""The record of a watching service: one line of JSON for each change, on disk before anything follows from it.

    {"fairlead": "slurm-watch/1"}
    {"time_s": ..., "job": {...}}       a row of `watched`; the last one of a job counts
    {"time_s": ..., "node": {...}}      what sinfo shows of a node: up, usable GPUs, size, type
    {"time_s": ..., "weights": {...}}   the weights of accounts
    {"time_s": ..., "gap": ["from", "why"]}   nobody watched from then until now
    {"time_s": ...}                     nothing has changed, and somebody watched

Lines are only ever appended, and a last line that was cut off by a crash is dropped. From time to time the file is
replaced by one without what has no effect any more, and without jobs that ended long ago (`forget`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fairlead.engines.slurm.watched import WatchedJob, row_from_json, row_to_json
from fairlead.model.errors import InputError

FILE, KIND = "slurm-watch.jsonl", "slurm-watch/1"


@dataclass(frozen=True, slots=True)
class WatchedNode:
    """A node as Slurm has it: its GPUs, and whether they can be used."""

    name: str
    type: str
    gpus: int
    up: bool = True


@dataclass(frozen=True, slots=True)
class Gap:
    """A time in which nobody watched, and why."""

    from_s: float
    to_s: float
    why: str


@dataclass(slots=True)
class WatchRecord:
    """Everything that was recorded: the last row of each job and node."""

    jobs: dict[str, WatchedJob] = field(default_factory=dict)
    nodes: dict[str, WatchedNode] = field(default_factory=dict)
    gaps: list[Gap] = field(default_factory=list)
    weights: dict[str, float] = field(default_factory=dict)  # of accounts; empty: Slurm has no shares
    node_changes: list[tuple[float, WatchedNode]] = field(default_factory=list)  # all rows of nodes, with their times
    aside: dict[str, str] = field(default_factory=dict)  # jobs that cannot be scheduled, and why
    first_s: float | None = None
    last_s: float | None = None

    def add(self, line: dict[str, Any]) -> None:
        at_s = float(line["time_s"])
        self.first_s = at_s if self.first_s is None else self.first_s
        self.last_s = at_s
        if "job" in line:
            row = row_from_json(line["job"])
            self.jobs[row.spec.id] = row
        if "node" in line:
            node = WatchedNode(**line["node"])
            self.nodes[node.name] = node
            self.node_changes.append((at_s, node))
        self.weights = dict(line.get("weights", self.weights))
        if "gap" in line:
            self.gaps.append(Gap(float(line["gap"][0]), at_s, str(line["gap"][1])))
        self.aside.update(line.get("aside", {}))


def read_record(path: Path) -> WatchRecord:
    """The record in the file, which may be written to at the same time."""
    record = WatchRecord()
    try:
        with path.open(encoding="utf-8") as file:
            lines = file.read().split("\n")
    except FileNotFoundError:
        raise InputError(
            f"{path.parent} has no record of a watched cluster ({path.name}); name the state directory of a service that "
            "was started with --shadow"
        ) from None
    for number, text in enumerate(lines[:-1], start=1):  # what follows the last line break was cut off
        try:
            line = json.loads(text)
            if number == 1:
                _check_kind(line)
            else:
                record.add(line)
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"is damaged ({error}); restore a backup", path=str(path), line=number) from None
    return record


def _check_kind(line: Any) -> None:
    if not isinstance(line, dict) or line.get("fairlead") != KIND:
        raise ValueError(f"wanted {KIND} in the first line")


class WatchFile:
    """The record, open for appending."""

    def __init__(self, path: Path) -> None:
        if not path.exists() or not path.read_bytes().endswith(b"\n"):
            _cut_to_last_line(path)
        self.record = read_record(path)
        self._path, self._file = path, path.open("ab")

    def write(self, lines: Iterable[dict[str, Any]]) -> None:
        """Append the lines; on return they are on disk."""
        lines = list(lines)
        if not lines:
            return
        self._file.write(b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines))
        self._file.flush()
        os.fsync(self._file.fileno())
        for line in lines:
            self.record.add(json.loads(json.dumps(line)))

    def forget(self, before_s: float) -> None:
        """Drop jobs, gaps and changes of nodes that were over before then, and whatever later lines have replaced."""
        lines = _lines(self._path)
        kept = _without_old(lines, before_s)
        if len(kept) == len(lines):
            return
        _write(self._path, [{"fairlead": KIND}, *kept])
        self._file.close()
        self._file = self._path.open("ab")
        self.record = read_record(self._path)

    def close(self) -> None:
        self._file.close()


def _lines(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        return [json.loads(text) for text in file.read().split("\n")[1:-1]]


def _without_old(lines: list[dict[str, Any]], before_s: float) -> list[dict[str, Any]]:
    """The lines that still have an effect, in their order. The last one stays: until then somebody has watched."""
    job_of = {number: line["job"]["spec"]["id"] for number, line in enumerate(lines) if "job" in line}
    last_of_job = {id_: number for number, id_ in job_of.items()}
    old_nodes = {line["node"]["name"]: number for number, line in enumerate(lines) if _is_old_node(line, before_s)}
    last_weights = max((number for number, line in enumerate(lines) if "weights" in line), default=-1)

    def stays(number: int, line: dict[str, Any]) -> bool:
        if number == len(lines) - 1:
            return True
        if "job" in line:
            end_s = line["job"]["end_s"]
            return last_of_job[job_of[number]] == number and (not line["job"]["ended"] or (end_s or 0.0) >= before_s)
        if "node" in line:
            return line["time_s"] >= before_s or old_nodes[line["node"]["name"]] == number
        if "weights" in line:
            return number == last_weights
        return ("gap" in line or "aside" in line) and line["time_s"] >= before_s

    return [line for number, line in enumerate(lines) if stays(number, line)]


def _is_old_node(line: dict[str, Any], before_s: float) -> bool:
    return "node" in line and line["time_s"] < before_s


def _write(path: Path, lines: list[dict[str, Any]]) -> None:
    """Replace the file by these lines, which are on disk before it is."""
    draft = path.with_suffix(".draft")
    with draft.open("wb") as file:
        file.write(b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines))
        file.flush()
        os.fsync(file.fileno())
    draft.rename(path)


def job_line(time_s: float, row: WatchedJob) -> dict[str, Any]:
    return {"time_s": time_s, "job": row_to_json(row)}


def node_line(time_s: float, node: WatchedNode) -> dict[str, Any]:
    return {"time_s": time_s, "node": asdict(node)}


def _cut_to_last_line(path: Path) -> None:
    """Drop a line that a crash has cut off; begin the file if it has no whole line."""
    whole = path.read_bytes().rpartition(b"\n")[0] if path.exists() else b""
    draft = path.with_suffix(".draft")
    draft.write_bytes((whole or json.dumps({"fairlead": KIND}).encode()) + b"\n")
    draft.rename(path)
