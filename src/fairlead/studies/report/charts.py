"""Charts of the page, as plain objects that plotly.js draws."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import Any

from fairlead.studies.compare.compare import Comparison
from fairlead.studies.report import data
from fairlead.studies.report.axes import log_range, log_ticks, tick_text
from fairlead.studies.report.labels import Area, Spot
from fairlead.studies.report.style import Style, tenant_colours

Chart = dict[str, Any]  # {"data": [...], "layout": {...}}
FONT = {"family": "system-ui, sans-serif", "size": 13, "color": "#222"}
GRID = "#e6e6e6"
COLUMNS = 2  # of small multiples
FRONTIER = Area(560, 385, 7.4, 16)  # pixels in a narrow window; in a wide one, names are further apart
BELOW = 110  # pixels under a plot, for the axis' title and the legend


def frontier(comparison: Comparison, load: float | None) -> Chart:
    points, styles = data.frontier(comparison, load), data.styles(comparison)
    best = data.undominated(points)
    traces: list[Any] = [
        {
            "type": "scatter",
            "mode": "lines",
            "x": [p.x[0] for p in best],
            "y": [p.y[0] for p in best],
            "line": {"color": "#999", "dash": "dot", "width": 1.5, "shape": "hv"},
            "name": "frontier",
            "hoverinfo": "skip",
        }
    ]
    frame = data.frame_of(points, FRONTIER)
    layout = _layout("mean JCT, hours (left is faster)", "max FTF (down is fairer)", height=460)
    layout["annotations"] = []
    for point, spot in zip(points, frame.labels, strict=True):
        style = styles[point.policy]
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": _safe(point.policy),
                "x": [point.x[0]],
                "y": [point.y[0]],
                "error_x": _whiskers(point.x, style.colour),
                "error_y": _whiskers(point.y, style.colour),
                "marker": {"color": style.colour, "symbol": style.marker, "size": 11},
                "showlegend": False,
                "hovertemplate": f"{_safe(point.policy)}<br>mean JCT %{{x:.3g}} h<br>max FTF %{{y:.3g}}<extra></extra>",
            }
        )
        layout["annotations"].append(_label(point, spot, style.colour))
    layout["showlegend"] = False
    layout["xaxis"] |= _log_axis(*frame.x)
    layout["yaxis"] |= _log_axis(*frame.y)
    layout["margin"]["b"] = 60
    return {"data": traces, "layout": layout}


def _label(point: data.Point, spot: Spot, colour: str) -> dict[str, Any]:
    """The policy's name, with a line to its point if other points or names are between them."""
    return {
        "text": _safe(point.policy),
        "x": math.log10(point.x[0]),  # plotly wants the exponents here
        "y": math.log10(point.y[0]),
        "ax": round(spot.dx, 1),
        "ay": round(-spot.dy, 1),
        "showarrow": True,
        "arrowhead": 0,
        "arrowwidth": 1,
        "arrowcolor": colour if spot.far else "rgba(0,0,0,0)",
        "standoff": 6,
        "borderpad": 0,
        "bgcolor": "rgba(255,255,255,0.7)",
        "font": {"size": 13},
    }


def distribution(comparison: Comparison, load: float | None, column: str) -> Chart:
    curves, styles = data.distribution(comparison, load, column), data.styles(comparison)
    layout = _layout(data.CDFS[column], "part of the jobs", height=380)
    layout["xaxis"] |= _log_axis(*log_range((x for curve in curves for x in (curve.x[0], curve.x[-1])), room=0.02))
    layout["yaxis"]["range"] = [0, 1.01]
    if column == "ftf":
        layout["shapes"] = [
            {
                "type": "line",
                "x0": 1,
                "x1": 1,
                "y0": 0,
                "y1": 1,
                "yref": "paper",
                "line": {"color": "#999", "dash": "dot"},
            }
        ]
    return {"data": [_line(c, styles[c.policy], shape="hv") for c in curves], "layout": layout}


def utilisation(comparison: Comparison, load: float | None) -> Chart:
    """One panel per GPU type."""
    types, styles = list(comparison.answer.cluster.gpus), data.styles(comparison)
    traces = [
        _line(curve, styles[curve.policy], panel=k, legend=k == 0)
        for k, label in enumerate(types)
        for curve in data.utilisation_of(comparison, load, label)
    ]
    titles = [f"{label} ({count} GPUs)" for label, count in comparison.answer.cluster.gpus.items()]
    return {"data": traces, "layout": _panels(titles, "part in use", 1.02, data.shown_hours(comparison, load))}


def fragmentation(comparison: Comparison, load: float | None) -> Chart:
    curves, styles = data.fragments_of(comparison, load), data.styles(comparison)
    layout = _layout("hours since the first arrival", "fragmented GPUs", height=360)
    layout["xaxis"]["range"] = [0, data.shown_hours(comparison, load)]
    return {"data": [_line(c, styles[c.policy]) for c in curves], "layout": layout}


def tenants(comparison: Comparison, load: float | None) -> dict[str, Chart]:
    """By policy: one panel per tenant with what it held and its entitlement."""
    names, styles = data.tenants_shown(comparison, load), data.styles(comparison)
    charts = {}
    for record in data.first_runs(comparison, load):
        colour = styles[record.policy].colour
        traces: list[Any] = []
        for k, name in enumerate(names):
            series = record.series.tenants.get(name)
            if series is None:
                continue
            x, axes = record.series.hour, _axes(k)
            held = {"color": colour, "width": 1.5, "shape": "hvh"}
            traces.append(
                {"type": "scatter", "mode": "lines", "x": x, "y": _round(series.share), "line": held, **axes}
                | {"fill": "tozeroy", "fillcolor": f"{colour}33", "name": "held", "showlegend": k == 0}
            )
            entitled = {"color": "#222", "width": 1.5, "dash": "dash", "shape": "hvh"}
            traces.append(
                {"type": "scatter", "mode": "lines", "x": x, "y": _round(series.entitled), "line": entitled, **axes}
                | {"name": "entitled to", "showlegend": k == 0}
            )
        charts[record.policy] = {
            "data": traces,
            "layout": _panels(
                [_safe(name) for name in names],
                "part of all GPUs",
                data.highest_share(comparison, load),
                data.shown_hours(comparison, load),
            ),
        }
    return charts


def gantts(comparison: Comparison, window_h: tuple[float, float] | None) -> dict[str, Chart]:
    colours = tenant_colours(data.tenants_shown(comparison, comparison.answer.loads[-1]))
    charts = {}
    for chart in data.gantts(comparison, window_h):
        by_tenant: dict[str, list[data.Bar]] = {}
        for bar in chart.bars:
            by_tenant.setdefault(bar.tenant if bar.tenant in colours else "others", []).append(bar)
        traces = [
            {
                "type": "bar",
                "orientation": "h",
                "name": _safe(name),
                "y": [bar.row for bar in bars],
                "base": [round(bar.start_h, 3) for bar in bars],
                "x": [round(bar.end_h - bar.start_h, 4) for bar in bars],
                "customdata": [bar.job for bar in bars],
                "marker": {"color": colours.get(name, "#C8C8C8"), "line": {"color": "#fff", "width": 0.5}},
                "hovertemplate": f"{_safe(name)}, job %{{customdata}}<br>%{{base:.2f}} h for %{{x:.2f}} h<extra></extra>",
            }
            for name, bars in sorted(
                by_tenant.items(), key=lambda item: list(colours).index(item[0]) if item[0] in colours else 99
            )
        ]
        layout = _layout("hours since the first arrival", "", height=BELOW + 20 + 13 * len(chart.rows))
        layout["barmode"] = "overlay"
        layout["bargap"] = 0.1
        layout["xaxis"]["range"] = [chart.from_h, chart.to_h]
        layout["yaxis"] |= {
            "tickvals": list(range(len(chart.rows))),
            "ticktext": [_safe(row) for row in chart.rows],
            "tickfont": {"size": 9},
            "range": [len(chart.rows) - 0.5, -0.5],
            "showgrid": False,
            "automargin": True,
        }
        charts[chart.policy] = {"data": traces, "layout": layout}
    return charts


def bars(comparison: Comparison, load: float | None, metric: str, label: str, *, log: bool = False) -> Chart:
    rows, styles = data.bars_of(comparison, load, metric), data.styles(comparison)
    trace = {
        "type": "bar",
        "x": [_safe(policy) for policy, _ in rows],
        "y": [mean for _, (mean, _, _) in rows],
        "marker": {"color": [styles[policy].colour for policy, _ in rows]},
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": [high - mean for _, (mean, _, high) in rows],
            "arrayminus": [mean - low for _, (mean, low, _) in rows],
            "color": "#444",
            "thickness": 1.2,
            "visible": any(high > low for _, (_, low, high) in rows),
        },
        "hovertemplate": "%{x}: %{y:.4g}<extra></extra>",
    }
    layout = _layout("", label, height=340)
    layout["margin"]["b"] = 60
    layout["xaxis"] |= {"showgrid": False, "type": "category", "automargin": True, "tickangle": -40}
    if log:
        layout["yaxis"] |= _log_axis(*log_range(bound for _, (_, low, high) in rows for bound in (low, high)))
    return {"data": [trace], "layout": layout}


def _line(
    curve: data.Curve, style: Style, *, panel: int = 0, legend: bool = True, shape: str = "linear"
) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": _safe(curve.policy),
        "legendgroup": curve.policy,
        "showlegend": legend,
        "x": _round(curve.x),
        "y": _round(curve.y),
        "line": {"color": style.colour, "dash": style.dash, "width": 1.8, "shape": shape},
        **_axes(panel),
    }


def _axes(panel: int) -> dict[str, str]:
    n = "" if panel == 0 else str(panel + 1)
    return {"xaxis": f"x{n}", "yaxis": f"y{n}"}


def _layout(x: str, y: str, height: int, top: int = 16) -> dict[str, Any]:
    axis = {"gridcolor": GRID, "zeroline": False, "linecolor": "#888", "ticks": "outside", "tickcolor": "#888"}
    return {
        "font": FONT,
        "height": height,
        "margin": {"l": 64, "r": 16, "t": top, "b": BELOW},
        "paper_bgcolor": "#fff",
        "plot_bgcolor": "#fff",
        "xaxis": {**axis, "title": {"text": x, "standoff": 8}},
        "yaxis": {**axis, "title": {"text": y, "standoff": 8}},
        # The position of a legend is relative to the plot's height: this is a fixed distance below the axis title.
        "legend": {"orientation": "h", "x": 0, "yanchor": "top", "y": -52 / (height - top - BELOW)},
        "hovermode": "closest",
    }


def _log_axis(low: float, high: float) -> dict[str, Any]:
    ticks = log_ticks(low, high)
    bounds = [math.log10(low), math.log10(high)]  # plotly wants the exponents here
    return {"type": "log", "range": bounds, "tickvals": ticks, "ticktext": [tick_text(tick) for tick in ticks]}


def _panels(titles: Sequence[str], y: str, highest: float, hours: float) -> dict[str, Any]:
    """Small multiples, two to a row, with the same axes."""
    rows = max(-(-len(titles) // COLUMNS), 1)
    layout = _layout("", "", height=BELOW + 30 + 190 * rows, top=30)
    layout["grid"] = {"rows": rows, "columns": COLUMNS, "pattern": "independent", "xgap": 0.1, "ygap": 0.32}
    axis = layout.pop("xaxis"), layout.pop("yaxis")
    layout["annotations"] = []
    for k, title in enumerate(titles):
        n = "" if k == 0 else str(k + 1)
        last = k >= len(titles) - COLUMNS
        x = {"text": "hours since the first arrival" if last else "", "standoff": 8}
        layout[f"xaxis{n}"] = {**axis[0], "title": x, "range": [0, hours]} | ({"matches": "x"} if k else {})
        layout[f"yaxis{n}"] = {**axis[1], "title": {"text": "" if k % COLUMNS else y}, "range": [0, highest]}
        place = {
            "xref": f"x{n} domain",
            "yref": f"y{n} domain",
            "x": 0,
            "y": 1.0,
            "xanchor": "left",
            "yanchor": "bottom",
        }
        layout["annotations"].append({**place, "text": f"<b>{title}</b>", "showarrow": False})
    return layout


def _whiskers(value: tuple[float, float, float], colour: str) -> dict[str, Any]:
    mean, low, high = value
    return {
        "type": "data",
        "symmetric": False,
        "array": [high - mean],
        "arrayminus": [mean - low],
        "color": colour,
        "thickness": 1,
        "width": 3,
    }


def _round(values: Sequence[float]) -> list[float]:
    return [float(f"{value:.5g}") for value in values]


def _safe(name: str) -> str:
    """Names come from users' files; plotly reads some HTML in labels."""
    return html.escape(name, quote=False)
