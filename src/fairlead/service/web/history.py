"""A job's life as the log has it: the stretches of time in which it held GPUs, and how each of them ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

_ENDS = {
    "stopped": "stopped for other jobs",
    "finished": "finished",
    "failed": "failed",
    "lost": "lost",
    "refused": "did not start",
    "cancelled": "cancelled",
    "held": "put on hold",
}


@dataclass(frozen=True, slots=True)
class Grant:
    """GPUs that a job held for a while; still holds if `to_s` is None."""

    from_s: float
    nodes: Mapping[str, int]
    types: Mapping[str, int]
    to_s: float | None = None
    ending: str = ""
    detail: str = ""

    @property
    def gpus(self) -> int:
        return sum(self.nodes.values())

    def seconds(self, now_s: float) -> float:
        return max((now_s if self.to_s is None else self.to_s) - self.from_s, 0.0)


def grants_of(job: str, records: Iterable[Mapping[str, Any]], type_of: Mapping[str, str]) -> list[Grant]:
    """All grants of the job in order; `type_of` are the GPU types by node."""
    grants: list[Grant] = []
    for record in records:
        kind = record["event"]
        if kind == "decision" and job in record["start"]:
            _end(grants, record["time_s"], "moved")
            nodes = record["start"][job]
            types: dict[str, int] = {}
            for node, count in nodes.items():
                type_ = type_of.get(node, "?")
                types[type_] = types.get(type_, 0) + count
            grants.append(Grant(record["time_s"], nodes, types))
        elif kind in _ENDS and job in record.get("jobs", ()):
            _end(grants, record["time_s"], _ENDS[kind], record.get("reason", ""))
    return grants


def _end(grants: list[Grant], time_s: float, ending: str, detail: str = "") -> None:
    if grants and grants[-1].to_s is None:
        grants[-1] = replace(grants[-1], to_s=time_s, ending=ending, detail=detail)
