"""A theoretical division of GPUs between tenants: read an instance, divide it by a rule, audit the result."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.errors import InputError
from fairlead.model.words import choose, did_you_mean
from fairlead.numerics.fairness import Audit, audit, gain_by_lying, normalise
from fairlead.numerics.random import stream
from fairlead.policies.gandiva_fair import gandiva_fair
from fairlead.policies.gavel import divide_max_min
from fairlead.policies.oef import Split, cooperative, non_cooperative
from fairlead.policies.tenants import split_weights

MOST = 1e12  # a larger number of GPUs, weight or speedup is assumed to be a mistake


@dataclass(frozen=True)
class TenantInstance:
    """Columns by virtual user (l): one per tenant, or one per job type of a tenant that names several."""

    types: tuple[str, ...]  # t
    capacity: FloatArray  # t
    tenants: tuple[str, ...]  # u
    tenant_of: IntArray  # l
    names: tuple[str, ...]  # l  the tenant, or tenant/job
    weight: FloatArray  # l
    speedup: FloatArray  # l,t  normalised


def _equal(speedup: FloatArray, capacity: FloatArray, weight: FloatArray) -> Split:
    return _as_split(speedup, np.outer(weight / weight.sum(), capacity), weight, "equal")


def _gavel(speedup: FloatArray, capacity: FloatArray, weight: FloatArray) -> Split:
    shares = divide_max_min(speedup, capacity, weight)
    return _equal(speedup, capacity, weight) if shares is None else _as_split(speedup, shares, weight, "optimal")


def _gandiva(speedup: FloatArray, capacity: FloatArray, weight: FloatArray) -> Split:
    return _as_split(speedup, gandiva_fair(speedup, capacity, weight), weight, "traded")


def _as_split(speedup: FloatArray, shares: FloatArray, weight: FloatArray, status: str) -> Split:
    level = (normalise(speedup) * shares).sum(axis=1) / weight
    return Split(shares, level, np.full(shares.shape[1], np.nan), status)


DIVISIONS: dict[str, Callable[[FloatArray, FloatArray, FloatArray], Split]] = {
    "oef-coop": cooperative,
    "oef-noncoop": non_cooperative,
    "gavel": _gavel,
    "equal-share": _equal,
    "gandiva-fair": _gandiva,
}


def find_division(name: str) -> Callable[[FloatArray, FloatArray, FloatArray], Split]:
    return DIVISIONS[choose("rule of division", name, DIVISIONS)]


def divide(instance: TenantInstance, policy: str) -> dict[str, Any]:
    """The result of `fairlead allocate` as JSON values; it includes the instance, so that it can be audited by itself."""
    rule = find_division(policy)
    started_s = time.process_time()
    split = rule(instance.speedup, instance.capacity, instance.weight)
    solve_s = time.process_time() - started_s
    efficiency = (instance.speedup * split.shares).sum(axis=1)  # l
    return {
        "fairlead": "allocation/1",
        "policy": policy,
        "shares": _by_tenant(instance, split.shares),
        "virtual_shares": {
            name: _by_type(instance, row) for name, row in zip(instance.names, split.shares, strict=True)
        },
        "efficiency": _sums(instance, efficiency),
        "total": float(efficiency.sum()),
        "prices": {t: _or_none(float(p)) for t, p in zip(instance.types, split.price, strict=True)},
        "audit": audit_json(instance, audit(instance.speedup, split.shares, instance.capacity, instance.weight)),
        "status": split.status,
        "solve_s": solve_s,
        "instance": _instance_json(instance),
    }


def audit_shares(instance: TenantInstance, shares: FloatArray) -> dict[str, Any]:
    return audit_json(instance, audit(instance.speedup, shares, instance.capacity, instance.weight))


def audit_json(instance: TenantInstance, result: Audit) -> dict[str, Any]:
    names = instance.names
    return {
        "max_envy": result.max_envy,
        "envious": None if result.envious is None else [names[l] for l in result.envious],
        "min_sharing_incentive": result.min_sharing_incentive,
        "worst_off": None if result.worst_off is None else names[result.worst_off],
        "pareto_gap": result.pareto_gap,
    }


def audit_lies(instance: TenantInstance, policy: str, seed: int = 0) -> dict[str, Any]:
    """The largest gain of a virtual user by each kind of lie, and the user's name."""
    rule = find_division(policy)

    def allocate(speedup: FloatArray, capacity: FloatArray, weight: FloatArray) -> FloatArray:
        return rule(speedup, capacity, weight).shares

    by_direction: dict[str, Any] = {}
    for direction in ("exaggerate", "under-report"):
        gains: list[tuple[float, str]] = []
        for user, name in enumerate(instance.names):
            random = stream(seed, f"lies of {name}")
            lie = gain_by_lying(
                allocate,
                instance.speedup,
                instance.capacity,
                instance.weight,
                user,
                direction,
                random,
                tries=10,
            )
            gains.append((math.inf if lie.gain is None else lie.gain, name))
        best, liar = max(gains, key=lambda pair: pair[0])
        by_direction[direction] = {"gain": _or_none(best), "tenant": liar if best > 0 else None}
    return by_direction


def read_json(path: str) -> dict[str, Any]:
    try:
        value = json.loads(Path(path).read_text(encoding="utf-8"), parse_constant=_refuse_constant)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", path=path) from None
    except ValueError as error:
        line = getattr(error, "lineno", None)
        raise InputError(
            f"is not JSON ({getattr(error, 'msg', error)}); wanted an instance with gpus and tenants, or what `fairlead allocate "
            "-o json` prints (`fairlead audit` takes a journal too)",
            path=path,
            line=line,
        ) from None
    if not isinstance(value, dict):
        raise InputError("wanted a JSON object with gpus and tenants", path=path)
    return value


def parse_instance(value: dict[str, Any], path: str) -> TenantInstance:
    """An instance from its JSON object; a type that a tenant does not name is one that it cannot use."""
    try:
        return _parse(value)
    except InputError as error:
        raise error.at(path) from None


def parse_shares(value: dict[str, Any], instance: TenantInstance, path: str) -> FloatArray:
    """l,t  from an allocation file."""
    shares = np.zeros(instance.speedup.shape)
    rows = value.get("virtual_shares") or value.get("shares")
    if not isinstance(rows, dict):
        raise InputError('no "shares"; wanted the output of fairlead allocate -o json', path=path)
    for l, name in enumerate(instance.names):
        row = rows.get(name)
        if not isinstance(row, dict):
            raise InputError(f'no shares of "{name}"; wanted GPUs by type', path=path)
        for t, gpu in enumerate(instance.types):
            shares[l, t] = _number(row.get(gpu, 0.0), f"shares of {name} of {gpu}", zero=True)
    over = np.flatnonzero(shares.sum(axis=0) > instance.capacity * (1 + 1e-6) + 1e-9)
    if over.size:
        gpu = instance.types[over[0]]
        raise InputError(
            f"{shares[:, over[0]].sum():g} GPUs of {gpu} are assigned, but there are {instance.capacity[over[0]]:g}",
            path=path,
        )
    return shares


def _parse(value: dict[str, Any]) -> TenantInstance:
    gpus, tenants = value.get("gpus"), value.get("tenants")
    if not isinstance(gpus, dict) or not gpus:
        raise InputError('no "gpus"; wanted GPUs by type, such as {"k80": 8, "v100": 8}')
    if not isinstance(tenants, list) or not tenants:
        raise InputError('no "tenants"; wanted a list of {"name", "weight", "speedups"}')
    types = tuple(gpus)
    capacity = np.array([_number(count, f"gpus of {gpu}") for gpu, count in gpus.items()])
    names: list[str] = []
    users: list[str] = []
    tenant_of: list[int] = []
    rows: list[list[float]] = []
    weights: list[float] = []
    for tenant in tenants:
        name = tenant.get("name") if isinstance(tenant, dict) else None
        if not isinstance(name, str) or not name or name in names:
            raise InputError(f"tenant {name!r}: wanted a name that no other tenant has")
        weights.append(_number(tenant.get("weight", 1.0), f'weight of tenant "{name}"'))
        for label, speedups in _kinds(tenant, name):
            users.append(label)
            tenant_of.append(len(names))
            rows.append(_speedups(speedups, types, label))
        names.append(name)
    tenant_index = np.array(tenant_of, dtype=np.int64)
    return TenantInstance(
        types=types,
        capacity=capacity,
        tenants=tuple(names),
        tenant_of=tenant_index,
        names=tuple(users),
        weight=split_weights(tenant_index, np.array(weights)),
        speedup=normalise(np.array(rows)),
    )


def _kinds(tenant: dict[str, Any], name: str) -> list[tuple[str, Any]]:
    """(name, speedups) of each job type."""
    jobs = tenant.get("jobs")
    if jobs is None:
        return [(name, tenant.get("speedups"))]
    if not isinstance(jobs, list) or not jobs or "speedups" in tenant:
        raise InputError(f'tenant "{name}": wanted either "speedups" or a list "jobs" of {{"name", "speedups"}}')
    labels = [job.get("name") if isinstance(job, dict) else None for job in jobs]
    if len(set(labels)) != len(labels) or not all(isinstance(label, str) and label for label in labels):
        raise InputError(f'tenant "{name}": wanted jobs with names, each different')
    return [(f"{name}/{job['name']}", job.get("speedups")) for job in jobs]


def _speedups(by_type: Any, types: tuple[str, ...], label: str) -> list[float]:
    if not isinstance(by_type, dict):
        raise InputError(f'"{label}" has no speedups; wanted a number by GPU type')
    for gpu in by_type:
        if gpu not in types:
            raise InputError(f'"{label}": GPU type "{gpu}" is not in gpus; {did_you_mean(gpu, types)}')
    row = [_number(by_type.get(gpu, 0.0), f'speedup of "{label}" on {gpu}', zero=True) for gpu in types]
    if not any(row):
        raise InputError(f'"{label}" can use no GPU type: all its speedups are 0')
    return row


def _number(value: Any, what: str, *, zero: bool = False) -> float:
    good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not good or not (0 < value <= MOST or (zero and value == 0)):
        raise InputError(f"{what} is {value!r}; wanted a number {'from' if zero else 'above'} 0")
    return float(value)


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number")


def _by_type(instance: TenantInstance, row: FloatArray) -> dict[str, float]:
    return dict(zip(instance.types, row.tolist(), strict=True))


def _by_tenant(instance: TenantInstance, shares: FloatArray) -> dict[str, dict[str, float]]:
    total = np.zeros((len(instance.tenants), len(instance.types)))
    np.add.at(total, instance.tenant_of, shares)
    return {name: _by_type(instance, row) for name, row in zip(instance.tenants, total, strict=True)}


def _sums(instance: TenantInstance, values: FloatArray) -> dict[str, float]:
    total = np.bincount(instance.tenant_of, values, len(instance.tenants))
    return dict(zip(instance.tenants, total.tolist(), strict=True))


def _instance_json(instance: TenantInstance) -> dict[str, Any]:
    """The instance as an input file: one entry per tenant, with jobs if it has several kinds."""
    tenants: list[dict[str, Any]] = []
    for u, name in enumerate(instance.tenants):
        users = np.flatnonzero(instance.tenant_of == u).tolist()
        entry: dict[str, Any] = {"name": name, "weight": float(instance.weight[users].sum())}
        if len(users) == 1 and instance.names[users[0]] == name:
            entry["speedups"] = _by_type(instance, instance.speedup[users[0]])
        else:
            entry["jobs"] = [
                {
                    "name": instance.names[l].removeprefix(f"{name}/"),
                    "speedups": _by_type(instance, instance.speedup[l]),
                }
                for l in users
            ]
        tenants.append(entry)
    return {"gpus": _by_type(instance, instance.capacity), "tenants": tenants}


def _or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None
