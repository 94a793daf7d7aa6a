"""Events and decisions as JSON: jobs by id, nodes by name. Journals and the service's log both speak it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, fields
from typing import Any

import numpy as np

from fairlead.model import events as ev
from fairlead.model.allocation import Spot
from fairlead.model.arrays import IntArray
from fairlead.model.cluster import Cluster
from fairlead.model.decision import Cause, Decision
from fairlead.model.jobs import JobSpec
from fairlead.model.quotas import Quota

Record = ev.Event | Decision

_EVENTS: dict[str, type[ev.Event]] = {
    "arrived": ev.Arrived,
    "started": ev.Started,
    "progress": ev.Progress,
    "served": ev.Served,
    "stopped": ev.Stopped,
    "finished": ev.Finished,
    "failed": ev.Failed,
    "lost": ev.Lost,
    "refused": ev.Refused,
    "cancelled": ev.Cancelled,
    "held": ev.Held,
    "released": ev.Released,
    "tenant_set": ev.TenantSet,
    "policy_set": ev.PolicySet,
    "node_down": ev.NodeDown,
    "node_up": ev.NodeUp,
    "node_usable": ev.NodeUsable,
    "node_added": ev.NodeAdded,
    "node_removed": ev.NodeRemoved,
}
_NAMES = {kind: name for name, kind in _EVENTS.items()}
_FLOATS = ("rate", "samples", "resume_s", "part", "gpus")


def to_line(record: dict[str, Any]) -> str:
    return json.dumps(record, separators=(",", ":"), allow_nan=False)


def spec_from_json(found: dict[str, Any]) -> JobSpec:
    return JobSpec(**{**found, "widths": tuple(found["widths"]), "types": tuple(found["types"])})


def _floats(values: Any) -> Any:
    """Lists are columns of numbers; a single number, such as the GPUs of a node, is itself."""
    return np.array(values, dtype=np.float64) if isinstance(values, list) else values


class Records:
    """Keeps who is who: jobs and nodes are positions inside and names outside, numbered as they arrive in either
    direction.
    """

    def __init__(self, cluster: Cluster, ids: Iterable[str] = ()) -> None:
        self._nodes = list(cluster.nodes)
        self._node = {name: n for n, name in enumerate(cluster.nodes)}
        self._ids: list[str] = list(ids)
        self._position = {id_: j for j, id_ in enumerate(self._ids)}

    def to_json(self, record: Record) -> dict[str, Any]:
        if isinstance(record, Decision):
            return self._decision_to_json(record)
        if isinstance(record, ev.Arrived):
            self._meet(record.spec)
            return {"event": "arrived", "time_s": record.time_s, "job": asdict(record.spec)}
        if isinstance(record, ev.NodeAdded):
            self._meet_node(record.name)
        found: dict[str, Any] = {"event": _NAMES[type(record)]}
        for field in fields(record):
            value = getattr(record, field.name)
            if field.name == "measured" and value:
                continue  # the usual case is left out
            if field.name == "jobs":
                value = self._names(value)
            elif field.name == "node":
                value = self._nodes[value]
            elif field.name == "quotas":
                value = [asdict(quota) for quota in value]
            elif isinstance(value, np.ndarray):
                value = value.tolist()
            found[field.name] = value
        return found

    def from_json(self, found: dict[str, Any]) -> Record:
        name = found.pop("event")
        if name == "decision":
            return self._decision_from_json(found)
        kind = _EVENTS[name]
        if kind is ev.Arrived:
            spec = spec_from_json(found["job"])
            self._meet(spec)
            return ev.Arrived(found["time_s"], spec)
        if kind is ev.NodeAdded:
            self._meet_node(found["name"])
        for field, build in self._builders().items():
            if field in found:
                found[field] = build(found[field])
        return kind(**found)

    def _builders(self) -> dict[str, Callable[[Any], Any]]:
        return {
            "jobs": self._positions,
            "node": self._node.__getitem__,
            "quotas": lambda quotas: tuple(Quota(**quota) for quota in quotas),
            **dict.fromkeys(_FLOATS, _floats),
        }

    def _decision_to_json(self, decision: Decision) -> dict[str, Any]:
        starts = zip(self._names(decision.start), decision.spots, strict=True)
        return {
            "event": "decision",
            "time_s": decision.time_s,
            "cause": decision.cause,
            "stop": self._names(decision.stop),
            "start": {job: {self._nodes[node]: count for node, count in spot} for job, spot in starts},
            "holds_until_s": None if math.isinf(decision.holds_until_s) else decision.holds_until_s,
            "solver": decision.solver,
        }

    def _decision_from_json(self, found: dict[str, Any]) -> Decision:
        spots: list[Spot] = [
            tuple((self._node[name], count) for name, count in spot.items()) for spot in found["start"].values()
        ]
        until = found["holds_until_s"]
        return Decision(
            time_s=found["time_s"],
            cause=Cause(found["cause"]),
            stop=self._positions(found["stop"]),
            start=self._positions(list(found["start"])),
            spots=tuple(spots),
            holds_until_s=math.inf if until is None else until,
            solver=found["solver"],
        )

    def _meet(self, spec: JobSpec) -> None:
        self._position[spec.id] = len(self._ids)
        self._ids.append(spec.id)

    def _meet_node(self, name: str) -> None:
        """A node that comes back keeps its position."""
        if name not in self._node:
            self._node[name] = len(self._nodes)
            self._nodes.append(name)

    def _names(self, jobs: IntArray) -> list[str]:
        return [self._ids[j] for j in jobs.tolist()]

    def _positions(self, ids: list[str]) -> IntArray:
        return np.array([self._position[id_] for id_ in ids], dtype=np.int64)
