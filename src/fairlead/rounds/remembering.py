"""What a loop carries from one decision to the next as JSON and back, so that another process can continue it.

Only data is read, never code: a policy's memory may be made of numbers, texts, arrays, lists, tuples and tables of
these, of the dataclasses that the policy lists in `remembers`, and of those of an answer. Any other memory is left out,
and the policy then starts without one; so it does if its classes have changed since. Deficits are always kept.
"""

from __future__ import annotations

import json
import math
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from fairlead.model.allocation import Answer, Shares
from fairlead.model.cluster import Cluster
from fairlead.model.outcomes import Terms
from fairlead.placement.rounding import NOTHING_OWED, Deficits
from fairlead.policies.policy import Policy
from fairlead.rounds.decide import Memory
from fairlead.rounds.loop import Carried

CARRIED = "carried"  # of a header: what the loop carried when the journal or the snapshot begins
MOST_BYTES = 1 << 24  # of a policy's memory in JSON; a larger one is left out
_ANSWER = (Answer, Shares, Terms)
_NAMELESS = ("", "optimal")  # texts that name nobody
_POLICY = "policy"
# What JSON that is no memory can raise.
_WRONG = (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError)


class _NotPlainError(Exception):
    """A memory has something that is not data."""


def memory_to_json(memory: Memory, policy: Policy) -> dict[str, Any]:
    record: dict[str, Any] = {
        "owed": {"owners": _to_json(memory.owed.owner_key), "gpus": _to_json(memory.owed.gpus)},
        "held_back": [[int(job), float(since_s)] for job, since_s in memory.held_back.items()],
    }
    try:
        own = None if memory.policy is None else _to_json(memory.policy, _classes(policy))
        fits = own is not None and len(json.dumps(own)) <= MOST_BYTES
    except Exception:  # not data, or whatever else the memory of a user's policy does when it is read
        fits = False
    return {**record, _POLICY: own} if fits else record


def memory_from_json(record: Mapping[str, Any], policy: Policy, cluster: Cluster) -> Memory:
    """The memory of a policy that last decided on this cluster."""
    owed, held_back = record["owed"], {int(job): float(since_s) for job, since_s in record["held_back"]}
    owners, gpus = _from_json(owed["owners"]), _from_json(owed["gpus"])
    if owners.ndim != 1 or gpus.ndim != 2 or len(owners) != len(gpus):
        raise ValueError("the deficits do not fit their owners")
    try:
        own = _from_json(record.get(_POLICY), _classes(policy))
    except _WRONG:
        own = None
    return Memory(own, Deficits(owners, gpus) if owners.size else NOTHING_OWED, cluster, held_back)


def memory_to_bytes(memory: Memory, policy: Policy) -> bytes:
    return json.dumps(memory_to_json(memory, policy), separators=(",", ":")).encode()


def carried_to_json(carried: Carried, policy: Policy, cluster: Cluster) -> dict[str, Any]:
    """What the loop carries on this cluster."""
    memory = memory_to_json(carried.memory, policy)
    if carried.memory.of_policy(cluster) is None:
        memory = without_policy(memory)
    return with_boundaries(memory, carried)


def with_boundaries(memory: Mapping[str, Any] | None, carried: Carried) -> dict[str, Any]:
    """A stored memory (None: an empty one) with the boundaries of the rounds that `carried` has."""
    times = {name: getattr(carried, name) for name in ("due_s", "last_s")}
    return {"memory": memory, **{name: None if math.isinf(time) else time for name, time in times.items()}}


def carried_from_json(record: object, policy: Policy, cluster: Cluster) -> Carried | None:
    """What `carried_to_json` wrote; None if there is nothing, or nothing that can be read."""
    if not isinstance(record, Mapping):
        return None
    try:
        stored = record["memory"]
        memory = Memory() if stored is None else memory_from_json(stored, policy, cluster)
        due_s = math.inf if record["due_s"] is None else float(record["due_s"])
        last_s = -math.inf if record["last_s"] is None else float(record["last_s"])
        return None if math.isnan(due_s) or math.isnan(last_s) else Carried(memory, due_s, last_s)
    except _WRONG:
        return None


def without_policy(memory: Mapping[str, Any]) -> dict[str, Any]:
    """A stored memory without that of the policy, which begins without one."""
    return {key: value for key, value in memory.items() if key != _POLICY}


def without_names(carried: Mapping[str, Any]) -> dict[str, Any]:
    """What is carried, without a policy's memory that has texts: they may name jobs, tenants, nodes or models.

    Everything else refers to them by number.
    """
    memory = carried["memory"] or {}
    named = any(text not in _NAMELESS for text in _texts(memory.get(_POLICY)))
    return {**carried, "memory": without_policy(memory)} if named else dict(carried)


def _classes(policy: Policy) -> dict[str, type]:
    return {one.__name__: one for one in (*_ANSWER, *policy.remembers)}


def _to_json(value: Any, classes: Mapping[str, type] | None = None) -> Any:
    """The value, exactly: a tuple is not a list, and an array has its bytes."""
    classes = classes or {}
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"number": str(value)}
    if isinstance(value, np.generic):
        return _to_json(value.item(), classes)
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        body = b64encode(np.ascontiguousarray(value).tobytes()).decode("ascii")
        return {"array": value.dtype.str, "shape": list(value.shape), "bytes": body}
    if type(value) is list:
        return [_to_json(item, classes) for item in value]
    if type(value) is tuple:
        return {"tuple": [_to_json(item, classes) for item in value]}
    if type(value) is dict:
        return {"table": [[_to_json(key, classes), _to_json(item, classes)] for key, item in value.items()]}
    name = type(value).__name__
    if classes.get(name) is type(value) and is_dataclass(value):
        parts = {field.name: _to_json(getattr(value, field.name), classes) for field in fields(value)}
        return {"class": name, "fields": parts}
    raise _NotPlainError(name)


def _from_json(record: Any, classes: Mapping[str, type] | None = None) -> Any:
    """The value. Raises one of `_WRONG` if it is none, or if a class has other fields now."""
    classes = classes or {}
    if isinstance(record, list):
        return [_from_json(item, classes) for item in record]
    if not isinstance(record, dict):
        return record
    if "number" in record:
        return float(record["number"])
    if "array" in record:
        kind, shape = np.dtype(record["array"]), tuple(int(length) for length in record["shape"])
        if kind.kind not in "biuf":
            raise ValueError(f"an array cannot have the type {kind}")
        return np.frombuffer(b64decode(record["bytes"], validate=True), dtype=kind).reshape(shape).copy()
    if "tuple" in record:
        return tuple(_from_json(item, classes) for item in record["tuple"])
    if "table" in record:
        return {_from_json(key, classes): _from_json(item, classes) for key, item in record["table"]}
    one, parts = classes[record["class"]], record["fields"]
    if parts.keys() != {field.name for field in fields(one)}:
        raise ValueError(f"{record['class']} has other fields")
    return one(**{name: _from_json(part, classes) for name, part in parts.items()})


def _texts(record: Any) -> Iterator[str]:
    """The texts that a policy has stored, apart from the names that the form itself has."""
    if isinstance(record, str):
        yield record
    elif isinstance(record, list):
        for item in record:
            yield from _texts(item)
    elif isinstance(record, dict) and not {"array", "number"} & record.keys():
        for part in record.get("tuple", ()), record.get("table", ()), *record.get("fields", {}).values():
            yield from _texts(part)
