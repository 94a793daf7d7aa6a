"""Decisions as lines of a list. A decision never changes, and may name thousands of jobs, so each is read only once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fairlead.service.api.context import ServiceContext
from fairlead.service.api.routes_cluster import only_of

NAMED = 6  # jobs of a line that are named; the others are counted
MOST_LINES = 5000  # kept, of all readers


@dataclass(frozen=True, slots=True)
class DecisionLine:
    """A decision with the jobs that a reader may see."""

    seq: int
    time_s: float
    cause: str
    start: tuple[str, ...]  # the first of them
    starts: int
    stop: tuple[str, ...]
    stops: int
    reasons: int
    gain: float | None
    solver: str
    by_clock: bool


class DecisionLines:
    """The lines that were shown last, by decision and by the tenant whose jobs they have; None has all."""

    def __init__(self) -> None:
        self._lines: OrderedDict[tuple[int, str | None], DecisionLine] = OrderedDict()

    def newest(self, service: ServiceContext, tenant: str | None, before: int, limit: int) -> list[DecisionLine]:
        return [self._line(service, tenant, seq) for seq in service.reads.decision_numbers(before, limit)]

    def _line(self, service: ServiceContext, tenant: str | None, seq: int) -> DecisionLine:
        line = self._lines.get((seq, tenant))
        if line is None:
            ((_, record),) = service.reads.decisions(seq + 1, 1)
            line = line_of(seq, record if tenant is None else only_of(service, record, tenant))
            self._lines[seq, tenant] = line
            while len(self._lines) > MOST_LINES:
                self._lines.popitem(last=False)
        return line


def line_of(seq: int, record: Mapping[str, Any]) -> DecisionLine:
    return DecisionLine(
        seq=seq,
        time_s=record["time_s"],
        cause=record["cause"],
        start=_first(record["start"]),
        starts=len(record["start"]),
        stop=_first(record["stop"]),
        stops=len(record["stop"]),
        reasons=len(record.get("why", ())),
        gain=record.get("gain"),
        solver=record["solver"],
        by_clock=bool(record.get("by_clock")),
    )


def _first(jobs: Iterable[str]) -> tuple[str, ...]:
    return tuple(jobs)[:NAMED]
