"""Values over time as a drawing: one line for each series, constant within each slice of time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 1000.0, 100.0  # of the drawing's own coordinates, which are stretched to the room that there is


@dataclass(frozen=True, slots=True)
class ChartLine:
    name: str
    points: str  # of a polyline; empty if there is no value


@dataclass(frozen=True, slots=True)
class LineChart:
    lines: tuple[ChartLine, ...]
    top: float  # the value at the upper edge; the lower one is 0
    from_s: float
    to_s: float


def draw_lines(from_s: float, slice_s: float, series: Mapping[str, Sequence[float]]) -> LineChart:
    """Lines over slices of equal length. All series have the same number of values."""
    slices = max((len(values) for values in series.values()), default=0)
    top = max((value for values in series.values() for value in values), default=0.0)
    return LineChart(
        tuple(ChartLine(name, _points(values, slices, top)) for name, values in series.items()),
        top,
        from_s,
        from_s + slices * slice_s,
    )


def _points(values: Sequence[float], slices: int, top: float) -> str:
    points = []
    for k, value in enumerate(values):
        y = HEIGHT - (HEIGHT * value / top if top > 0 else 0.0)
        points += [f"{WIDTH * k / slices:.1f},{y:.1f}", f"{WIDTH * (k + 1) / slices:.1f},{y:.1f}"]
    return " ".join(points)
