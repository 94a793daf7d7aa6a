"""The journal: JSON lines, one record per event and decision, written before it is acted upon.

The header holds all that a replay needs: cluster, profile, policy with parameters, settings, seed, hashes, versions.
Jobs are named by id, nodes by name. Timings never enter it: the same seed gives the same bytes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np

from fairlead.model import events as ev
from fairlead.model.allocation import Spot
from fairlead.model.arrays import IntArray
from fairlead.model.cluster import Cluster
from fairlead.model.decision import Cause, Decision
from fairlead.model.errors import InputError
from fairlead.model.jobs import JobSpec
from fairlead.rates.profile import ModelFacts, Profile, Speed

_T = TypeVar("_T")

KIND = "journal/1"
Record = ev.Event | Decision

_EVENTS: dict[str, type[ev.Event]] = {
    "arrived": ev.Arrived,
    "started": ev.Started,
    "progress": ev.Progress,
    "stopped": ev.Stopped,
    "finished": ev.Finished,
    "failed": ev.Failed,
    "lost": ev.Lost,
    "refused": ev.Refused,
    "cancelled": ev.Cancelled,
    "node_down": ev.NodeDown,
    "node_up": ev.NodeUp,
}
_NAMES = {kind: name for name, kind in _EVENTS.items()}


@dataclass(frozen=True)
class Header:
    """What was run. `more` is free: trace hash, world, versions."""

    cluster: Cluster
    profile: Profile
    restart_s: float | None
    policy: str
    parameters: dict[str, Any]
    settings: dict[str, Any]
    tenant_weight: dict[str, float]
    more: dict[str, Any]


class NoJournal:
    """For runs that nobody wants to read again."""

    def event(self, event: ev.Event) -> None:
        pass

    def decision(self, decision: Decision) -> None:
        pass


class JournalWriter:
    """Appends to an open text file, which the caller closes."""

    def __init__(self, file: IO[str], header: Header) -> None:
        self._file = file
        self._nodes = header.cluster.nodes
        self._ids: list[str] = []
        self._write(_header_to_json(header))

    def event(self, event: ev.Event) -> None:
        if isinstance(event, ev.Arrived):
            self._ids.append(event.spec.id)
            self._write({"event": "arrived", "time_s": event.time_s, "job": asdict(event.spec)})
            return
        record: dict[str, Any] = {"event": _NAMES[type(event)]}
        for field in fields(event):
            value = getattr(event, field.name)
            if field.name == "jobs":
                value = self._names(value)
            elif field.name == "node":
                value = self._nodes[value]
            elif isinstance(value, np.ndarray):
                value = value.tolist()
            record[field.name] = value
        self._write(record)

    def decision(self, decision: Decision) -> None:
        starts = zip(self._names(decision.start), decision.spots, strict=True)
        self._write(
            {
                "event": "decision",
                "time_s": decision.time_s,
                "cause": decision.cause,
                "stop": self._names(decision.stop),
                "start": {job: {self._nodes[node]: count for node, count in spot} for job, spot in starts},
                "holds_until_s": None if math.isinf(decision.holds_until_s) else decision.holds_until_s,
                "solver": decision.solver,
            }
        )
        self._file.flush()

    def _names(self, jobs: IntArray) -> list[str]:
        return [self._ids[j] for j in jobs.tolist()]

    def _write(self, record: dict[str, Any]) -> None:
        self._file.write(json.dumps(record, separators=(",", ":"), allow_nan=False) + "\n")


@dataclass(frozen=True)
class JournalReader:
    """Header and records of a journal file. A last line that was cut off is left out."""

    path: Path

    def header(self) -> Header:
        with self.path.open(encoding="utf-8", errors="replace") as file:
            return self._parse(1, file.readline(), _header_from_json)

    def records(self) -> Iterator[Record]:
        header = self.header()
        reader = _RecordReader(header.cluster)
        with self.path.open(encoding="utf-8", errors="replace") as file:
            next(file)
            for number, line in enumerate(file, start=2):
                if not line.endswith("\n"):
                    return
                yield self._parse(number, line, reader.read)

    def _parse(self, number: int, line: str, build: Callable[[dict[str, Any]], _T]) -> _T:
        try:
            return build(json.loads(line))
        except InputError as error:
            raise error.at(str(self.path), number) from None
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            what = f"{type(error).__name__}: {error}"
            raise InputError(
                f"not a journal record ({what}); is this a file that --journal wrote?", path=str(self.path), line=number
            ) from None


class _RecordReader:
    def __init__(self, cluster: Cluster) -> None:
        self._node = {name: n for n, name in enumerate(cluster.nodes)}
        self._position: dict[str, int] = {}

    def read(self, record: dict[str, Any]) -> Record:
        name = record.pop("event")
        if name == "decision":
            return self._decision(record)
        kind = _EVENTS[name]
        if kind is ev.Arrived:
            job = record["job"]
            spec = JobSpec(**{**job, "widths": tuple(job["widths"]), "types": tuple(job["types"])})
            self._position[spec.id] = len(self._position)
            return ev.Arrived(record["time_s"], spec)
        if "jobs" in record:
            record["jobs"] = self._positions(record["jobs"])
        if "node" in record:
            record["node"] = self._node[record["node"]]
        for column in ("rate", "samples", "resume_s"):
            if column in record:
                record[column] = np.array(record[column], dtype=np.float64)
        return kind(**record)

    def _decision(self, record: dict[str, Any]) -> Decision:
        spots: list[Spot] = [
            tuple((self._node[name], count) for name, count in spot.items()) for spot in record["start"].values()
        ]
        until = record["holds_until_s"]
        return Decision(
            time_s=record["time_s"],
            cause=Cause(record["cause"]),
            stop=self._positions(record["stop"]),
            start=self._positions(list(record["start"])),
            spots=tuple(spots),
            holds_until_s=math.inf if until is None else until,
            solver=record["solver"],
        )

    def _positions(self, ids: list[str]) -> IntArray:
        return np.array([self._position[id_] for id_ in ids], dtype=np.int64)


def _header_to_json(header: Header) -> dict[str, Any]:
    cluster, profile = header.cluster, header.profile
    return {
        "fairlead": KIND,
        "policy": header.policy,
        "parameters": header.parameters,
        "settings": header.settings,
        "tenant_weight": header.tenant_weight,
        "restart_s": header.restart_s,
        **header.more,
        "cluster": {
            "types": cluster.types,
            "gpu": cluster.gpu,
            "memory_gib": cluster.memory_gib.tolist(),
            "nodes": cluster.nodes,
            "node_type": cluster.node_type.tolist(),
            "node_gpus": cluster.node_gpus.tolist(),
        },
        "profile": {
            "name": profile.name,
            "facts": {model: asdict(facts) for model, facts in profile.facts.items()},
            "speeds": [[getattr(row, f.name) for f in fields(Speed)] for row in profile.speeds],
        },
    }


def _header_from_json(record: dict[str, Any]) -> Header:
    if record.get("fairlead") != KIND:
        raise ValueError(f"the first line says {record.get('fairlead')!r}, wanted {KIND!r}")
    cluster, profile = record.pop("cluster"), record.pop("profile")
    for name in ("node_type", "node_gpus"):
        cluster[name] = np.array(cluster[name], dtype=np.int64)
    for name in ("types", "gpu", "nodes"):
        cluster[name] = tuple(cluster[name])
    cluster["memory_gib"] = np.array(cluster["memory_gib"], dtype=np.float64)
    known = ("policy", "parameters", "settings", "tenant_weight", "restart_s")
    return Header(
        cluster=Cluster(**cluster),
        profile=Profile(
            profile["name"],
            tuple(Speed(*row) for row in profile["speeds"]),
            {model: ModelFacts(**facts) for model, facts in profile["facts"].items()},
        ),
        **{name: record[name] for name in known},
        more={key: value for key, value in record.items() if key not in (*known, "fairlead")},
    )
