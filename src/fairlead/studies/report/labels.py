"""Positions of names next to the points of a chart, so that they cover neither each other nor a point, and stay inside."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

Box = tuple[float, float, float, float]  # left, right, low, high

_FAR = (0.8, 1.8, 3.0, 4.5, 6.5, 9.0)  # lines of text between a point and its name
_EIGHTHS = (2, 14, 6, 10, 0, 8, 4, 12, 1, 3, 5, 7, 9, 11, 13, 15)  # of half a turn, the corners first
_DIRECTIONS = tuple((round(math.cos(k * math.pi / 8), 6), round(math.sin(k * math.pi / 8), 6)) for k in _EIGHTHS)
_SWEEPS = 3
_OUTSIDE = 20.0  # how much worse it is to be outside than to cover something
_WHISKER = 0.15


@dataclass(frozen=True, slots=True)
class Area:
    """The area of a plot, in the unit of text: pixels or points."""

    width: float
    height: float
    letter: float  # width of one
    line: float  # height of one


@dataclass(frozen=True, slots=True)
class Spot:
    """The position of a name: its middle relative to the point, upwards and to the right."""

    dx: float
    dy: float
    far: bool  # needs a line to its point


def place_labels(
    names: Sequence[str], at: Sequence[tuple[float, float]], whiskers: Sequence[Box], area: Area
) -> list[Spot]:
    """Positions of names, for points and whiskers in parts of the area. Greedy in a few passes, and deterministic."""
    points = [(x * area.width, y * area.height) for x, y in at]
    half = area.line / 3
    marks = [(x - half, x + half, y - half, y + half) for x, y in points]
    arms = [
        arm
        for (x, y), box in zip(points, whiskers, strict=True)
        for arm in (
            (box[0] * area.width, box[1] * area.width, y - 1, y + 1),
            (x - 1, x + 1, box[2] * area.height, box[3] * area.height),
        )
    ]
    taken: dict[int, Box] = {}
    spots: dict[int, Spot] = {}
    order = sorted(range(len(names)), key=lambda k: (points[k], names[k]))
    for _ in range(_SWEEPS):
        for k in order:
            taken.pop(k, None)
            options = []
            for rank, (spot, box) in enumerate(_candidates(points[k], names[k], area)):
                covered = sum(_overlap(box, other) for other in (*taken.values(), *marks))
                covered += _WHISKER * sum(_overlap(box, arm) for arm in arms) + _OUTSIDE * _outside(box, area)
                options.append((covered + _reach(spot, area), rank, spot, box))
            _, _, spots[k], taken[k] = min(options)
    return [spots[k] for k in range(len(names))]


def _candidates(point: tuple[float, float], name: str, area: Area) -> list[tuple[Spot, Box]]:
    wide, high = area.letter * len(name) / 2, area.line / 2  # half of each
    candidates = []
    for n, far in enumerate(_FAR):
        for cos, sin in _DIRECTIONS:
            dx = cos * far * area.line + ((cos > 0) - (cos < 0)) * wide
            dy = sin * far * area.line
            x, y = point[0] + dx, point[1] + dy
            candidates.append((Spot(dx, dy, n > 0), (x - wide, x + wide, y - high, y + high)))
    return candidates


def _reach(spot: Spot, area: Area) -> float:
    """The penalty for distance; it is small, because covering something is worse."""
    return 0.02 * area.line * math.hypot(spot.dx, spot.dy) * spot.far


def _overlap(a: Box, b: Box) -> float:
    return max(min(a[1], b[1]) - max(a[0], b[0]), 0.0) * max(min(a[3], b[3]) - max(a[2], b[2]), 0.0)


def _outside(box: Box, area: Area) -> float:
    inside = _overlap(box, (0.0, area.width, 0.0, area.height))
    return (box[1] - box[0]) * (box[3] - box[2]) - inside
