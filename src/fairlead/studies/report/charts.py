"""Charts of the page, as plain objects that the script of the look draws (studies/look/charts.js).

A chart has panels with two axes each, and series, each of which is in one panel: lines, points, bars, or spans of time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from fairlead.studies.compare.compare import Comparison
from fairlead.studies.report import data
from fairlead.studies.report.axes import log_range, log_ticks, tick_text
from fairlead.studies.report.labels import Area
from fairlead.studies.report.style import OTHERS, Style, tenant_colours

Chart = dict[str, Any]  # {"label": ..., "panels": [...], "series": [...], "height": ...}
Axis = dict[str, Any]
FRONTIER = Area(560, 385, 7.4, 16)  # pixels in a narrow window; in a wide one, names are further apart
HOURS = "hours since the first arrival"
INK = "#222222"


def frontier(comparison: Comparison, load: float | None) -> Chart:
    points, styles = data.frontier(comparison, load), data.styles(comparison)
    best = data.undominated(points)
    frame = data.frame_of(points, FRONTIER)
    line = {
        "kind": "line",
        "name": "frontier",
        "x": [point.x[0] for point in best],
        "y": [point.y[0] for point in best],
        "colour": "#777777",
        "dash": "dot",
        "step": True,
    }
    marks = [
        {
            "kind": "points",
            "name": point.policy,
            "x": point.x,
            "y": point.y,
            "colour": styles[point.policy].colour,
            "marker": styles[point.policy].marker,
            "label": [round(spot.dx, 1), round(spot.dy, 1)],
            "far": spot.far,
            "words": f"{point.policy}: mean JCT {point.x[0]:.3g} h, max FTF {point.y[0]:.3g}",
        }
        for point, spot in zip(points, frame.labels, strict=True)
    ]
    panel = {
        "x": _log_axis("mean JCT, hours (left is faster)", *frame.x),
        "y": _log_axis("max FTF (down is fairer)", *frame.y),
    }
    return _chart("Efficiency against fairness", [panel], [line, *marks], FRONTIER.height)


def distribution(comparison: Comparison, load: float | None, column: str) -> Chart:
    curves, styles = data.distribution(comparison, load, column), data.styles(comparison)
    bounds = log_range((x for curve in curves for x in (curve.x[0], curve.x[-1])), room=0.02)
    panel: dict[str, Any] = {"x": _log_axis(data.CDFS[column], *bounds), "y": _axis("part of the jobs", 1.01)}
    if column == "ftf":
        panel["lines"] = [1.0]
    series = [_line(curve, styles[curve.policy], step=True) for curve in curves]
    return _chart(f"Distribution of {data.CDFS[column]}", [panel], series, 260, legend=True)


def utilisation(comparison: Comparison, load: float | None) -> Chart:
    """One panel per GPU type."""
    types, styles = comparison.answer.cluster.gpus, data.styles(comparison)
    series = [
        _line(curve, styles[curve.policy], panel=k)
        for k, label in enumerate(types)
        for curve in data.utilisation_of(comparison, load, label)
    ]
    titles = [f"{label} ({count} GPUs)" for label, count in types.items()]
    panels = _panels(titles, "part in use", 1.02, data.shown_hours(comparison, load))
    return _chart("GPUs in use by type", panels, series, 150, legend=True, columns=2)


def fragmentation(comparison: Comparison, load: float | None) -> Chart:
    curves, styles = data.fragments_of(comparison, load), data.styles(comparison)
    highest = 1.05 * max((value for curve in curves for value in curve.y), default=1.0) or 1.0
    panel = {"x": _axis(HOURS, data.shown_hours(comparison, load)), "y": _axis("fragmented GPUs", highest)}
    series = [_line(curve, styles[curve.policy]) for curve in curves]
    return _chart("Fragmented GPUs", [panel], series, 240, legend=True)


def tenants(comparison: Comparison, load: float | None) -> dict[str, Chart]:
    """By policy: one panel per tenant with what it held and its entitlement."""
    names, styles = data.tenants_shown(comparison, load), data.styles(comparison)
    highest, hours = data.highest_share(comparison, load), data.shown_hours(comparison, load)
    charts = {}
    for record in data.first_runs(comparison, load):
        series: list[Any] = []
        for k, name in enumerate(names):
            rows = record.series.tenants.get(name)
            if rows is None:
                continue
            common = {"kind": "line", "panel": k, "step": True, "x": _round(record.series.hour)}
            colour = styles[record.policy].colour
            series.append({**common, "name": "held", "y": _round(rows.share), "colour": colour, "fill": True})
            entitled = {"name": "entitled to", "y": _round(rows.entitled), "colour": INK, "dash": "dash"}
            series.append({**common, **entitled})
        panels = _panels(names, "part of all GPUs", highest, hours)
        label = f"Tenants under {record.policy}: held against entitled"
        charts[record.policy] = _chart(label, panels, series, 150, legend=True, columns=2)
    return charts


def gantts(comparison: Comparison, window_h: tuple[float, float] | None) -> dict[str, Chart]:
    colours = tenant_colours(data.tenants_shown(comparison, comparison.answer.loads[-1]))
    order = {name: place for place, name in enumerate(colours)}
    charts = {}
    for chart in data.gantts(comparison, window_h):
        by_tenant: dict[str, list[data.Bar]] = {}
        for bar in chart.bars:
            by_tenant.setdefault(bar.tenant if bar.tenant in colours else "others", []).append(bar)
        series = [
            {
                "kind": "spans",
                "name": name,
                "rows": [bar.row for bar in bars],
                "from": [round(bar.start_h, 3) for bar in bars],
                "to": [round(bar.end_h, 3) for bar in bars],
                "jobs": [bar.job for bar in bars],
                "colour": colours.get(name, OTHERS),
            }
            for name, bars in sorted(by_tenant.items(), key=lambda item: order.get(item[0], len(order)))
        ]
        x = _axis(HOURS, chart.to_h, low=chart.from_h)
        panel = {"x": x, "y": {"title": "", "names": chart.rows, "down": True}}
        label = f"Who ran where under {chart.policy}"
        left = min(24 + max((6 * len(row) for row in chart.rows), default=0), 130)
        charts[chart.policy] = _chart(label, [panel], series, 13 * len(chart.rows), legend=True, left=left)
    return charts


def bars(comparison: Comparison, load: float | None, metric: str, label: str, *, log: bool = False) -> Chart:
    rows, styles = data.bars_of(comparison, load, metric), data.styles(comparison)
    ranges = [values for _, values in rows]
    series = {
        "kind": "bars",
        "name": label,
        "names": [policy for policy, _ in rows],
        "x": list(range(len(rows))),
        "y": [mean for mean, _, _ in ranges],
        "low": [low for _, low, _ in ranges],
        "high": [high for _, _, high in ranges],
        "colours": [styles[policy].colour for policy, _ in rows],
    }
    bounds = [bound for _, low, high in ranges for bound in (low, high)]
    y = _log_axis(label, *log_range(bounds)) if log else _axis(label, 1.05 * max(bounds, default=1.0) or 1.0)
    panel = {"x": {"title": "", "names": series["names"]}, "y": y}
    longest = max((len(policy) for policy, _ in rows), default=0)
    return _chart(label, [panel], [series], 240, bottom=24 + min(5 * longest, 90))


def _chart(label: str, panels: Sequence[Any], series: Sequence[Any], height: float, **more: Any) -> Chart:
    """`height` is that of a panel's inside, in pixels."""
    return {"label": label, "panels": panels, "series": series, "height": height, **more}


def _line(curve: data.Curve, style: Style, *, panel: int = 0, step: bool = False) -> dict[str, Any]:
    return {
        "kind": "line",
        "name": curve.policy,
        "panel": panel,
        "x": _round(curve.x),
        "y": _round(curve.y),
        "colour": style.colour,
        "dash": style.dash,
        "step": step,
    }


def _axis(title: str, high: float, *, low: float = 0.0) -> Axis:
    return {"title": title, "range": [low, high]}


def _log_axis(title: str, low: float, high: float) -> Axis:
    ticks = [[tick, tick_text(tick)] for tick in log_ticks(low, high)]
    return {"title": title, "range": [low, high], "log": True, "ticks": ticks}


def _panels(titles: Sequence[str], y: str, highest: float, hours: float) -> list[dict[str, Any]]:
    """Small multiples with the same axes."""
    return [{"title": title, "x": _axis(HOURS, hours), "y": _axis(y, highest)} for title in titles]


def _round(values: Iterable[float]) -> list[float]:
    return [float(f"{value:.5g}") for value in values]
