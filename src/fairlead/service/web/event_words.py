"""Events of the log in words, for people: those of one kind together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fairlead.model.words import counted

_JOBS = {
    "started": "started",
    "stopped": "stopped",
    "finished": "finished",
    "failed": "failed",
    "lost": "lost their GPUs",
    "refused": "did not start",
    "cancelled": "were cancelled",
    "held": "were put on hold",
    "released": "were released",
    "forgotten": "were forgotten, because they ended long ago",
}
_NODES = {"node_down": "is down", "node_up": "is up", "node_removed": "was removed"}
_SINGULAR = {"were ": "was ", "their ": "its "}
_FEW = 8  # names in one line


def words_of(records: Sequence[dict[str, Any]]) -> list[str]:
    """One line for each kind of event about jobs, and one for each change of the cluster, tenants or policy."""
    jobs: dict[str, list[str]] = {}
    lines: list[str] = []
    reports = 0
    for record in records:
        kind = record["event"]
        if kind == "arrived":
            jobs.setdefault("arrived", []).append(record["job"]["id"])
        elif kind in _JOBS:
            reason = f" ({record['reason']})" if record.get("reason") else ""
            jobs.setdefault(_JOBS[kind], []).extend(f"{id_}{reason}" for id_ in record["jobs"])
        elif "jobs" in record:
            reports += 1
        else:
            lines += _other(record)
    lines += [_line(ids, verb) for verb, ids in jobs.items()]
    return [*lines, *([f"{counted(reports, 'report')} of progress and speed"] if reports else [])]


def _other(record: dict[str, Any]) -> list[str]:
    kind = record["event"]
    if kind in _NODES:
        return [f"node {record['node']} {_NODES[kind]}"]
    if kind == "node_added":
        return [f"node {record['name']} joined with {record['gpus']} x {record['gpu']}"]
    if kind == "node_usable":
        return [f"node {record['node']}: {counted(record['gpus'], 'GPU')} can be used"]
    if kind == "tenant_set":
        return [f"tenant {record['tenant']} has weight {record['weight']:g}"]
    if kind == "policy_set":
        return [f"policy {record['policy']} decides from now on"]
    return [kind.replace("_", " ")]


def _line(ids: Sequence[str], verb: str) -> str:
    more = f" and {len(ids) - _FEW} more" if len(ids) > _FEW else ""
    if len(ids) == 1:
        for plural, singular in _SINGULAR.items():
            verb = verb.replace(plural, singular)
    return f"{', '.join(ids[:_FEW])}{more} {verb}"
