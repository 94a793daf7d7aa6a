"""The folded state to bytes and back, so that a start need not fold a whole log. The data are JSON and numeric columns.

    load(dump(fold(head))) folded with tail  ==  fold(head + tail)

What follows from other facts (labels, kinds of jobs, quota tables) is not stored but computed again.
"""

from __future__ import annotations

import io
import json
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, astuple
from typing import Any

import numpy as np

from fairlead.model.allocation import Spot
from fairlead.model.cluster import Cluster
from fairlead.model.errors import BrokenInvariantError, InputError
from fairlead.model.jobs import JobSpec
from fairlead.model.quotas import Quota
from fairlead.rates.estimator import Estimator
from fairlead.rounds.columns import COLUMNS
from fairlead.rounds.departing import Departure, How
from fairlead.rounds.journal import cluster_from_json, cluster_to_json
from fairlead.rounds.pausing import Pause
from fairlead.rounds.queue import Queue
from fairlead.rounds.records import spec_from_json
from fairlead.rounds.state import State

KIND = "snapshot/3"
_OLDER = ("snapshot/1", "snapshot/2")  # in the first, every GPU of a node was usable; in both, no job was forgotten
_NUMBERS = (
    "now_s",
    "moment",
    "forgotten",
    "active",
    "running",
    "first_arrival_s",
    "busy_gpu_s",
    "up_gpu_s",
    "waiting_time_s",
    "idle_while_waiting_gpu_s",
    "crowd_s",
    "busy_gpus",
    "unserved",
)
_ARRAYS = ("node_up", "node_free", "active_jobs", "best_rate")
_USABLE = "node_usable"
# Older snapshots lack them.
_NEW_COLUMNS = frozenset(
    name
    for name in COLUMNS
    if name.startswith(("number", "reason", "refusals", "restart_gpu_s", "safe", "setbacks", "started_warm", "exact"))
)
_FACTS = "facts.json"
# What reading a damaged file can raise: from zip, its compression, JSON, and from inconsistent data.
_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    RuntimeError,
    struct.error,
    BrokenInvariantError,
)


def dump(state: State) -> bytes:
    facts = {
        "fairlead": KIND,
        "cluster": _fingerprint(state.nodes.first),
        "cluster_now": cluster_to_json(state.cluster),
        "peak": state.nodes.peak.tolist(),
        "numbers": {name: _plain(getattr(state, name)) for name in _NUMBERS},
        "labels": state.labels.to_json(),
        "jobs": [_spec_to_row(spec) for spec in state.specs],
        "spots": {j: spot for j, spot in enumerate(state.spots) if spot},
        "last_spots": {j: spot for j, spot in enumerate(state.last_spots) if spot},
        "tenants": list(state.tenants),
        "tenant_weight": state.tenant_weight,
        "given_weight": state.given_weight,
        "quotas": {u: [asdict(quota) for quota in quotas] for u, quotas in state._given_quotas.items()},
        "served": {j: row.tolist() for j, row in state.served.items()},
        "terms": state.terms,
        "pauses": {j: [pause.until_s, pause.cause] for j, pause in state.pauses.items()},
        "pre_empted": state.pre_empted,
        "departures": {j: list(astuple(departure)) for j, departure in state.departures.items()},
        "restart_costs": [[model, warm, *costs] for (model, warm), costs in state.restart_costs.items()],
        "learnt": None if state.learner is None else state.learner.learnt(),
        "measured": None if state.learner is None else state.measured.to_json(),
        "trials": None if state.learner is None else state.trials.to_json(),
    }
    columns = {name: getattr(state, name)[: state.jobs] for name in COLUMNS}
    arrays = {name: getattr(state, name) for name in _ARRAYS}
    arrays["best_rate"] = arrays["best_rate"][: state.jobs]
    arrays[_USABLE] = state.nodes.usable
    parts = {_FACTS: json.dumps(facts, separators=(",", ":")).encode()}
    for name, values in sorted({**columns, **arrays}.items()):
        npy = io.BytesIO()
        np.lib.format.write_array(npy, np.ascontiguousarray(values), allow_pickle=False)
        parts[f"{name}.npy"] = npy.getvalue()
    return _zipped(parts)


def rewrite(body: bytes, change: Callable[[dict[str, Any]], dict[str, Any]]) -> bytes:
    """A snapshot, as `dump` returns it, with other facts and the same columns."""
    with zipfile.ZipFile(io.BytesIO(body)) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    parts[_FACTS] = json.dumps(change(json.loads(parts[_FACTS])), separators=(",", ":")).encode()
    return _zipped(parts)


def load(body: bytes, cluster: Cluster, estimator: Estimator) -> State:
    """The state of a snapshot. Raises InputError unless it belongs to this cluster, initially or at that time."""
    try:
        with zipfile.ZipFile(io.BytesIO(body)) as archive:
            facts = json.loads(archive.read(_FACTS))
            if facts.get("fairlead") not in (*_OLDER, KIND):
                raise InputError(f"the snapshot has the format {facts.get('fairlead')!r}; expected {KIND!r}")
            now = cluster_from_json(facts["cluster_now"]) if "cluster_now" in facts else cluster
            if _fingerprint(cluster) not in (facts["cluster"], _fingerprint(now)):
                raise InputError("the snapshot belongs to another cluster")
            stored = set(archive.namelist())
            names = [name for name in (*COLUMNS, *_ARRAYS) if f"{name}.npy" in stored or name not in _NEW_COLUMNS]
            arrays = {name: _array(archive, name) for name in names}
            is_first = facts["fairlead"] == _OLDER[0]
            arrays[_USABLE] = cluster.node_gpus.copy() if is_first else _array(archive, _USABLE)
            return _rebuild(facts, arrays, cluster, estimator)
    except _DAMAGE as error:
        raise InputError(f"not a snapshot ({type(error).__name__}: {error})") from None


def _rebuild(facts: dict[str, Any], arrays: dict[str, Any], cluster: Cluster, estimator: Estimator) -> State:
    now = cluster_from_json(facts["cluster_now"]) if "cluster_now" in facts else cluster
    state = State(cluster, estimator.for_cluster(now), facts["given_weight"])
    peak = np.array(facts.get("peak", now.capacity), dtype=np.int64)
    state.nodes.restore(now, arrays["node_up"], arrays[_USABLE], arrays["node_free"], peak)
    for name in facts["tenants"]:
        state._tenant(name)
    state.tenant_weight = facts["tenant_weight"]
    state._given_quotas = {int(u): tuple(Quota(**quota) for quota in quotas) for u, quotas in facts["quotas"].items()}
    state.draw_up_quotas()
    state.specs = [_spec_from_row(row) for row in facts["jobs"]]
    state.spots = _spots(facts["spots"], state.jobs)
    state.last_spots = _spots(facts["last_spots"], state.jobs)
    arrays.setdefault("safe", arrays["done"].copy())
    for name, (dtype, fresh) in COLUMNS.items():
        setattr(state, name, arrays[name] if name in arrays else np.full(state.jobs, fresh, dtype=dtype))
    state.best_rate = arrays["best_rate"]
    state.queue = Queue(arrays["active_jobs"])
    if "labels" in facts:
        state.labels.restore(facts["labels"])
    else:
        state.number = np.arange(state.jobs)
    numbers = {"forgotten": 0, **facts["numbers"]}
    for name in _NUMBERS:
        value = numbers[name if name in numbers else f"_{name}"]  # the name of two of them in the first format
        setattr(state, name, float("inf") if value is None else value)
    state.served = {int(j): np.array(row) for j, row in facts["served"].items()}
    rows = facts.get("restart_costs", ())
    state.restart_costs = {(model, warm): tuple(costs) for model, warm, *costs in rows}
    state.terms = {int(j): terms for j, terms in facts.get("terms", {}).items()}
    state.pauses = {int(j): Pause(*pause) for j, pause in facts.get("pauses", {}).items()}
    state.pre_empted = [(time_s, u, gpu_s) for time_s, u, gpu_s in facts.get("pre_empted", ())]
    state.departures = {int(j): _departure(*row) for j, row in facts.get("departures", {}).items()}
    state.relabel()
    if state.learner is not None and facts["learnt"] is not None:
        state.learner.learn_again(facts["learnt"])
        state.measured.widen(len(now.types))
        if facts.get("measured"):
            state.measured.restore(facts["measured"])
        if facts.get("trials"):
            state.trials.restore(facts["trials"])
    return state


def _fingerprint(cluster: Cluster) -> list[Any]:
    return [list(cluster.types), list(cluster.nodes), cluster.node_type.tolist(), cluster.node_gpus.tolist()]


def _spec_to_row(spec: JobSpec) -> list[Any]:
    return [getattr(spec, name) for name in JobSpec.__slots__]


def _spec_from_row(row: list[Any]) -> JobSpec:
    return spec_from_json(dict(zip(JobSpec.__slots__, row, strict=False)))  # older rows lack the last fields


def _departure(time_s: float, how: str, detail: str, taken_by: list[str], gain: float) -> Departure:
    return Departure(time_s, How(how), detail, tuple(taken_by), gain)


def _spots(rows: dict[str, list[list[int]]], jobs: int) -> list[Spot]:
    spots: list[Spot] = [()] * jobs
    for j, spot in rows.items():
        spots[int(j)] = tuple((node, count) for node, count in spot)
    return spots


def _array(archive: zipfile.ZipFile, name: str) -> Any:
    return np.lib.format.read_array(io.BytesIO(archive.read(f"{name}.npy")), allow_pickle=False)


def _zipped(parts: Mapping[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, part in parts.items():
            archive.writestr(zipfile.ZipInfo(name), part, zipfile.ZIP_DEFLATED)  # no date: equal states, equal bytes
    return file.getvalue()


def _plain(value: Any) -> Any:
    """The number for JSON, which has no infinity; none of these numbers is ever minus infinity or NaN."""
    value = value.item() if isinstance(value, np.generic) else value
    return None if value == float("inf") else value
