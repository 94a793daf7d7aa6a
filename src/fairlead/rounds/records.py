"""Events and decisions as JSON: jobs by id, nodes by name. Journals and the service's log both use this format."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, fields
from json import encoder
from typing import Any

import numpy as np

from fairlead.model import events as ev
from fairlead.model.allocation import Spot
from fairlead.model.arrays import IntArray
from fairlead.model.cluster import Cluster
from fairlead.model.decision import Cause, Decision, Why
from fairlead.model.jobs import JobSpec
from fairlead.model.limits import TenantLimits
from fairlead.model.outcomes import REASON_OF_CODE, Outcomes, Reason
from fairlead.model.quotas import Quota

Record = ev.Event | Decision

_EVENTS: dict[str, type[ev.Event]] = {
    "arrived": ev.Arrived,
    "started": ev.Started,
    "progress": ev.Progress,
    "first_progress": ev.FirstProgress,
    "served": ev.Served,
    "stopped": ev.Stopped,
    "finished": ev.Finished,
    "failed": ev.Failed,
    "lost": ev.Lost,
    "refused": ev.Refused,
    "cancelled": ev.Cancelled,
    "held": ev.Held,
    "released": ev.Released,
    "renumbered": ev.Renumbered,
    "forgotten": ev.Forgotten,
    "tenant_set": ev.TenantSet,
    "policy_set": ev.PolicySet,
    "settings_set": ev.SettingsSet,
    "limits_set": ev.LimitsSet,
    "node_down": ev.NodeDown,
    "node_up": ev.NodeUp,
    "node_usable": ev.NodeUsable,
    "node_added": ev.NodeAdded,
    "node_removed": ev.NodeRemoved,
}
_NAMES = {kind: name for name, kind in _EVENTS.items()}
# Fields that are omitted where they have the default of their event.
_OPTIONAL = ("measured", "unfit", "reason", "setbacks", "again_s", "instead_of")
_SPEC = tuple(field.name for field in fields(JobSpec))
_FIELDS = {kind: tuple((field.name, field.default) for field in fields(kind)) for kind in _NAMES}
_LINES = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
# What `_LINES` makes for every line, made once; it is None where Python lacks its compiled part.
_make: Any = getattr(encoder, "c_make_encoder", None)
_PARTS: Any = _make and _make(
    None, _LINES.default, encoder.encode_basestring_ascii, None, ":", ",", False, False, False
)
_quoted = encoder.encode_basestring_ascii
_FLOATS = ("rate", "samples", "cost_s", "resume_s", "part", "gpus")


def to_line(record: dict[str, Any]) -> str:
    return "".join(_PARTS(record, 0)) if _PARTS is not None else _LINES.encode(record)


def spec_to_json(spec: JobSpec) -> dict[str, Any]:
    """The description of a job; the last fields only where they are set, which is rare."""
    record = {name: getattr(spec, name) for name in _SPEC}  # its values are plain, so nothing needs a copy
    for name in ("nodes", "run_limit_s"):
        if record[name] is None:
            del record[name]
    return record


def spec_from_json(record: dict[str, Any]) -> JobSpec:
    return JobSpec(**{**record, "widths": tuple(record["widths"]), "types": tuple(record["types"])})


def _floats(values: Any) -> Any:
    """A list as a column of numbers; a single number, such as the GPUs of a node, unchanged."""
    return np.array(values, dtype=np.float64) if isinstance(values, list) else values


class Records:
    """Converts records to and from JSON. Jobs and nodes are positions here and names in JSON, numbered on arrival.

    Positions of jobs change when earlier ones are forgotten, as in the state.
    """

    def __init__(self, cluster: Cluster, ids: Iterable[str] = ()) -> None:
        self._nodes = list(cluster.nodes)
        self._node = {name: n for n, name in enumerate(cluster.nodes)}
        self._ids: list[str] = list(ids)
        self._rest: dict[tuple[Any, ...], str] = {}  # of the lines of jobs, which are mostly the same
        self._position = {id_: j for j, id_ in enumerate(self._ids)}

    def to_line(self, record: Record) -> str:
        """The line of a record: that of `to_json`, where single jobs that arrive or finish are written directly."""
        if isinstance(record, ev.Arrived):
            self._meet(record.spec)
            return self._arrival(record)
        if isinstance(record, ev.Finished) and len(record.jobs) == 1:
            samples, time_s = record.samples.item(), record.time_s
            if type(time_s) is float and math.isfinite(samples) and math.isfinite(time_s):
                id_ = _quoted(self._ids[record.jobs.item()])
                return f'{{"event":"finished","time_s":{time_s!r},"jobs":[{id_}],"samples":[{samples!r}]}}'
        return to_line(self.to_json(record))

    def _arrival(self, record: ev.Arrived) -> str:
        spec = record.spec
        numbers = record.time_s, spec.arrival_s, spec.steps, spec.weight
        usual = spec.nodes is None and spec.run_limit_s is None and math.isfinite(record.time_s)
        if not usual or not all(type(number) is float for number in numbers):  # 1 is written otherwise than 1.0
            return to_line({"event": "arrived", "time_s": record.time_s, "job": spec_to_json(spec)})
        key = spec.widths, spec.types, spec.weight, spec.relaxed
        rest = self._rest.get(key)
        if rest is None:
            names = ("widths", "types", "weight", "relaxed")
            rest = self._rest[key] = to_line({name: getattr(spec, name) for name in names})[1:]
        return (
            f'{{"event":"arrived","time_s":{record.time_s!r},"job":{{"id":{_quoted(spec.id)},'
            f'"tenant":{_quoted(spec.tenant)},"model":{_quoted(spec.model)},"arrival_s":{spec.arrival_s!r},'
            f'"gpus":{spec.gpus},"steps":{spec.steps!r},{rest}}}'
        )

    def to_json(self, record: Record) -> dict[str, Any]:
        if isinstance(record, Decision):
            return self._decision_to_json(record)
        if isinstance(record, ev.Advised):
            return {**self._decision_to_json(record.decision), "event": "advised", "time_s": record.time_s}
        if isinstance(record, ev.Arrived):
            self._meet(record.spec)
            return {"event": "arrived", "time_s": record.time_s, "job": spec_to_json(record.spec)}
        if isinstance(record, ev.NodeAdded):
            self._meet_node(record.name)
        row: dict[str, Any] = {"event": _NAMES[type(record)]}
        for name, default in _FIELDS[type(record)]:
            value = getattr(record, name)
            if name in _OPTIONAL and value == default:
                continue
            if name == "jobs":
                value = self._names(value)
            elif name == "node":
                value = self._nodes[value]
            elif name == "quotas":
                value = [asdict(quota) for quota in value]
            elif name == "limits":
                value = asdict(value)
            elif isinstance(value, np.ndarray):
                value = value.tolist()
            row[name] = value
        if isinstance(record, ev.Forgotten):
            self._forget(record.jobs)
        return row

    def from_json(self, row: dict[str, Any]) -> Record:
        name = row.pop("event")
        if name == "decision":
            return self._decision_from_json(row)
        if name == "advised":
            return ev.Advised(row["time_s"], self._decision_from_json(row))
        kind = _EVENTS[name]
        if kind is ev.Arrived:
            spec = spec_from_json(row["job"])
            self._meet(spec)
            return ev.Arrived(row["time_s"], spec)
        if kind is ev.NodeAdded:
            self._meet_node(row["name"])
        for field, build in self._builders().items():
            if field in row:
                row[field] = build(row[field])
        if kind is ev.Forgotten:
            self._forget(row["jobs"])
        return kind(**row)

    def _builders(self) -> dict[str, Callable[[Any], Any]]:
        return {
            "jobs": self._positions,
            "leases": lambda numbers: np.array(numbers, dtype=np.int64),
            "node": self._node.__getitem__,
            "quotas": lambda quotas: tuple(Quota(**quota) for quota in quotas),
            "limits": lambda limits: TenantLimits(**limits),
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
            **({"by_clock": True} if decision.by_clock else {}),
            **({"trials": [self._ids[j] for j in decision.trials]} if decision.trials else {}),
            **({} if decision.why is None else self._why_to_json(decision.why)),
        }

    def _why_to_json(self, why: Why) -> dict[str, Any]:
        """Waiting jobs whose reason changed: code, wanted, free, a, b and the policy's terms. Stops: successors."""
        rows = why.outcomes
        columns = [rows.wanted.tolist(), rows.free.tolist(), rows.a.tolist(), rows.b.tolist()]
        terms = [] if rows.terms is None else rows.terms.T.tolist()
        codes = [Reason(code).code for code in rows.reason.tolist()]
        numbers = zip(codes, *columns, *terms, strict=True)
        record: dict[str, Any] = {"why": dict(zip(self._names(rows.job), map(list, numbers), strict=True))}
        if rows.labels and rows.job.size:
            record["terms"] = rows.labels
        if why.successors:
            record["taken_by"] = {self._ids[j]: [self._ids[k] for k in jobs] for j, jobs in why.successors.items()}
        if why.gain:
            record["gain"] = why.gain
        return record

    def _why_from_json(self, record: dict[str, Any]) -> Why | None:
        if "why" not in record:
            return None
        rows, labels = list(record["why"].values()), tuple(record.get("terms", ()))
        code, wanted, free, a, b, *terms = zip(*rows, strict=True) if rows else ((),) * 5
        outcomes = Outcomes(
            job=self._positions(list(record["why"])),
            reason=np.array([REASON_OF_CODE[word] for word in code], dtype=np.int64),
            wanted=np.array(wanted, dtype=np.int64),
            free=np.array(free, dtype=np.int64),
            a=np.array(a, dtype=np.float64),
            b=np.array(b, dtype=np.float64),
            labels=labels,
            terms=np.array(terms, dtype=np.float64).T if labels else None,
        )
        position = self._position
        taken_by = record.get("taken_by", {}).items()
        successors = {position[id_]: tuple(position[other] for other in ids) for id_, ids in taken_by}
        return Why(outcomes, successors, record.get("gain", 0.0))

    def _decision_from_json(self, row: dict[str, Any]) -> Decision:
        spots: list[Spot] = [
            tuple((self._node[name], count) for name, count in spot.items()) for spot in row["start"].values()
        ]
        until = row["holds_until_s"]
        return Decision(
            time_s=row["time_s"],
            cause=Cause(row["cause"]),
            stop=self._positions(row["stop"]),
            start=self._positions(list(row["start"])),
            spots=tuple(spots),
            holds_until_s=math.inf if until is None else until,
            solver=row["solver"],
            why=self._why_from_json(row),
            trials=tuple(self._position[id_] for id_ in row.get("trials", ())),
            by_clock=row.get("by_clock", False),
        )

    def _meet(self, spec: JobSpec) -> None:
        self._position[spec.id] = len(self._ids)
        self._ids.append(spec.id)

    def _forget(self, jobs: IntArray) -> None:
        gone = set(jobs.tolist())
        self._ids = [id_ for j, id_ in enumerate(self._ids) if j not in gone]
        self._position = {id_: j for j, id_ in enumerate(self._ids)}

    def _meet_node(self, name: str) -> None:
        """Assign a position to a new node; a node that returns keeps its position."""
        if name not in self._node:
            self._node[name] = len(self._nodes)
            self._nodes.append(name)

    def _names(self, jobs: IntArray) -> list[str]:
        return [self._ids[j] for j in jobs.tolist()]

    def _positions(self, ids: list[str]) -> IntArray:
        return np.array([self._position[id_] for id_ in ids], dtype=np.int64)
