"""A job's grants as a drawing: one lane for each GPU type, and a bar for each stretch of time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fairlead.model.units import format_duration
from fairlead.service.web.history import Grant

WIDTH, LANE = 100.0, 26.0  # per cent of the drawing, and pixels
_LEAST = 0.3  # a bar stays visible
_TICKS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400)


@dataclass(frozen=True, slots=True)
class GrantBar:
    x: float
    width: float
    lane: int
    words: str


@dataclass(frozen=True, slots=True)
class GrantTimeline:
    lanes: tuple[str, ...]  # GPU types
    bars: tuple[GrantBar, ...]
    ticks: tuple[tuple[float, str], ...]  # place, and time since the job was submitted
    height: float  # pixels


def draw_timeline(from_s: float, to_s: float, grants: Sequence[Grant], types: Sequence[str]) -> GrantTimeline:
    """The life of a job from left to right; lanes are the types on which it ever ran, in the order of the cluster."""
    span_s = max(to_s - from_s, 1.0)
    used = {type_ for grant in grants for type_ in grant.types}
    lanes = tuple(type_ for type_ in (*types, "?") if type_ in used)
    bars = []
    for grant in grants:
        x = WIDTH * max(grant.from_s - from_s, 0.0) / span_s
        width = max(WIDTH * grant.seconds(to_s) / span_s, _LEAST)
        ending = grant.ending or "still running"
        for type_, gpus in grant.types.items():
            words = f"{gpus} x {type_} for {format_duration(grant.seconds(to_s))}, {ending}"
            bars.append(GrantBar(min(x, WIDTH - _LEAST), min(width, WIDTH - x), lanes.index(type_), words))
    return GrantTimeline(lanes, tuple(bars), _ticks(span_s), LANE * max(len(lanes), 1))


def _ticks(span_s: float) -> tuple[tuple[float, str], ...]:
    """Three to seven marks at round durations."""
    step = next((one for one in _TICKS if span_s / one <= 6), 86400 * max(round(span_s / 86400 / 5), 1))
    marks = range(0, int(span_s) + 1, int(step))
    return tuple((WIDTH * mark / span_s, format_duration(mark) if mark else "submitted") for mark in marks)
