"""The page's charts as figures for a paper: PDF as vector graphics, and PNG for viewing."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fairlead.model.errors import InputError
from fairlead.studies.compare.compare import Comparison
from fairlead.studies.compare.run_records import RunRecord
from fairlead.studies.compare.wording import title_of
from fairlead.studies.report import data
from fairlead.studies.report.axes import log_range, log_ticks, tick_text
from fairlead.studies.report.figure_files import new_figure, save
from fairlead.studies.report.labels import Area
from fairlead.studies.report.style import OTHERS, Style, tenant_colours

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

# The page's names of lines and markers, and matplotlib's.
LINES = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-."}
MARKERS = {"circle": "o", "square": "s", "diamond": "D", "triangle-up": "^", "triangle-down": "v"}
MARKERS |= {"cross": "P", "x": "X", "star": "*"}
FRONTIER = Area(290, 195, 4.4, 9.5)  # points
HOURS = "hours since the first arrival"
MANY_ROWS = 32  # of a Gantt chart; with more rows, only nodes are named


def draw_all(comparison: Comparison, folder: str, window_h: tuple[float, float] | None = None) -> list[str]:
    """Write every figure as PDF and PNG; returns the file names, which include the load if there are several."""
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write figures here: {error.strerror}", path=folder) from None
    written: list[str] = []

    def keep(figure: Figure, name: str) -> None:
        for suffix in ("pdf", "png"):
            written.append(str(Path(folder) / f"{name}.{suffix}"))
            save(figure, written[-1], title_of(comparison.answer))

    for load in comparison.answer.loads:
        end = "" if load is None or len(comparison.answer.loads) == 1 else f"-load-{load:g}"
        for name, draw in _FIGURES.items():
            keep(draw(comparison, load), name + end)
        for record in data.first_runs(comparison, load):
            keep(_tenants(comparison, load, record), f"tenants-{_file_name(record.policy)}{end}")
    for chart in data.gantts(comparison, window_h):
        keep(_gantt(comparison, chart), f"gantt-{_file_name(chart.policy)}")
    return written


def _frontier(comparison: Comparison, load: float | None) -> Figure:
    figure = new_figure(1, 1, "")
    figure.set_size_inches(4.8, 3.4)
    axes = figure.axes[0]
    points, styles = data.frontier(comparison, load), data.styles(comparison)
    best = data.undominated(points)
    axes.step([p.x[0] for p in best], [p.y[0] for p in best], where="post", color="0.6", linestyle=":", linewidth=1)
    frame = data.frame_of(points, FRONTIER)
    for point, spot in zip(points, frame.labels, strict=True):
        style = styles[point.policy]
        (x, low_x, high_x), (y, low_y, high_y) = point.x, point.y
        axes.errorbar(
            x,
            y,
            xerr=[[x - low_x], [high_x - x]],
            yerr=[[y - low_y], [high_y - y]],
            color=style.colour,
            marker=MARKERS[style.marker],
            elinewidth=0.7,
            capsize=2,
        )
        axes.annotate(
            point.policy,
            (x, y),
            xytext=(spot.dx, spot.dy),
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=7.5,
            bbox={"facecolor": "white", "alpha": 0.7, "linewidth": 0, "pad": 0.5},
            arrowprops={"arrowstyle": "-", "color": style.colour, "linewidth": 0.6, "shrinkB": 4} if spot.far else None,
        )
    axes.set(xlabel="mean JCT, hours", ylabel="max FTF")
    _log(axes.xaxis, *frame.x)
    _log(axes.yaxis, *frame.y)
    return figure


def _log(axis: Axis, low: float, high: float) -> None:
    """Ticks at 1, 2, 5, 10 instead of powers of ten, because a chart of policies rarely spans many decades."""
    from matplotlib.ticker import NullLocator

    name = "x" if axis is axis.axes.xaxis else "y"
    axis.axes.set(**{f"{name}scale": "log", f"{name}lim": (low, high)})
    ticks = log_ticks(low, high)
    axis.set_ticks(ticks, [tick_text(tick) for tick in ticks])
    axis.set_minor_locator(NullLocator())


def _distributions(comparison: Comparison, load: float | None) -> Figure:
    figure, styles = new_figure(1, len(data.CDFS), ""), data.styles(comparison)
    for axes, (column, label) in zip(figure.axes, data.CDFS.items(), strict=True):
        curves = data.distribution(comparison, load, column)
        for curve in curves:
            style = styles[curve.policy]
            line = LINES[style.dash]
            axes.step(
                curve.x, curve.y, where="post", color=style.colour, linestyle=line, label=curve.policy, linewidth=1.2
            )
        axes.set(xlabel=label, ylim=(0, 1.01))
        _log(axes.xaxis, *log_range((x for curve in curves for x in (curve.x[0], curve.x[-1])), room=0.02))
        if column == "ftf":
            axes.axvline(1.0, color="0.6", linestyle=":", linewidth=1)
    figure.axes[0].set_ylabel("part of the jobs")
    _legend_below(figure)
    return figure


def _utilisation(comparison: Comparison, load: float | None) -> Figure:
    gpus = comparison.answer.cluster.gpus
    figure, panels = _panels([f"{label} ({count} GPUs)" for label, count in gpus.items()], "part in use")
    for axes, label in zip(panels, gpus, strict=True):
        _lines(axes, data.utilisation_of(comparison, load, label), data.styles(comparison))
        axes.set(ylim=(0, 1.02), xlim=(0, data.shown_hours(comparison, load)))
    _legend_below(figure)
    return figure


def _fragmentation(comparison: Comparison, load: float | None) -> Figure:
    figure = new_figure(1, 1, "")
    _lines(figure.axes[0], data.fragments_of(comparison, load), data.styles(comparison))
    figure.axes[0].set(
        xlabel=HOURS, ylabel="fragmented GPUs", ylim=(0, None), xlim=(0, data.shown_hours(comparison, load))
    )
    _legend_below(figure)
    return figure


def _tenants(comparison: Comparison, load: float | None, record: RunRecord) -> Figure:
    names = [name for name in data.tenants_shown(comparison, load) if name in record.series.tenants]
    figure, panels = _panels(names, "part of all GPUs")
    colour = data.styles(comparison)[record.policy].colour
    for axes, name in zip(panels, names, strict=True):
        series, hour = record.series.tenants[name], record.series.hour
        axes.fill_between(hour, series.share, step="mid", color=colour, alpha=0.25, linewidth=0)
        axes.step(hour, series.share, where="mid", color=colour, linewidth=1, label=f"held ({record.policy})")
        axes.step(hour, series.entitled, where="mid", color="0.15", linewidth=1, linestyle="--", label="entitled to")
        axes.set(ylim=(0, data.highest_share(comparison, load)), xlim=(0, data.shown_hours(comparison, load)))
    _legend_below(figure)
    return figure


def _gantt(comparison: Comparison, chart: data.Gantt) -> Figure:
    from matplotlib.patches import Patch

    figure = new_figure(1, 1, "")
    figure.set_size_inches(7.2, 1.2 + 0.085 * max(len(chart.rows), 12))
    axes = figure.axes[0]
    colours = tenant_colours(data.tenants_shown(comparison, comparison.answer.loads[-1]))
    shades = [colours.get(bar.tenant, OTHERS) for bar in chart.bars]
    axes.barh(
        [bar.row for bar in chart.bars],
        [bar.end_h - bar.start_h for bar in chart.bars],
        left=[bar.start_h for bar in chart.bars],
        height=0.9,
        color=shades,
        edgecolor="white",
        linewidth=0.2,
    )
    named = [i for i, row in enumerate(chart.rows) if len(chart.rows) <= MANY_ROWS or row.endswith("/0")]
    axes.set_yticks(
        named,
        [chart.rows[i].removesuffix("/0") if len(named) < len(chart.rows) else chart.rows[i] for i in named],
        fontsize=6,
    )
    axes.set(xlim=(chart.from_h, chart.to_h), ylim=(len(chart.rows) - 0.5, -0.5), xlabel=f"{HOURS} ({chart.policy})")
    axes.grid(visible=False)
    drawn = {bar.tenant for bar in chart.bars}
    keys = [Patch(color=colour, label=name) for name, colour in colours.items() if name in drawn]
    if drawn - colours.keys():
        keys.append(Patch(color=OTHERS, label="others"))
    figure.legend(handles=keys, loc="outside lower center", ncols=4, fontsize=7.5, frameon=False)
    return figure


def _bars(metric: str, label: str, *, log: bool = False) -> Callable[[Comparison, float | None], Figure]:
    def draw(comparison: Comparison, load: float | None) -> Figure:
        figure = new_figure(1, 1, "")
        axes = figure.axes[0]
        rows, styles = data.bars_of(comparison, load, metric), data.styles(comparison)
        figure.set_figwidth(max(figure.get_figwidth(), 0.3 * len(rows)))
        means = [mean for _, (mean, _, _) in rows]
        spread = [[mean - low for _, (mean, low, _) in rows], [high - mean for _, (mean, _, high) in rows]]
        colours = [styles[policy].colour for policy, _ in rows]
        several = any(high > low for _, (_, low, high) in rows)
        whiskers = spread if several else None
        axes.bar([policy for policy, _ in rows], means, yerr=whiskers, color=colours, ecolor="0.3", capsize=2)
        axes.set_axisbelow(True)
        axes.set_ylabel(label)
        for text in axes.get_xticklabels():
            text.set(rotation=40, ha="right", rotation_mode="anchor")
        axes.grid(visible=False, axis="x")
        if log:
            _log(axes.yaxis, *log_range(bound for _, (_, low, high) in rows for bound in (low, high)))
        return figure

    return draw


_FIGURES: dict[str, Callable[[Comparison, float | None], Figure]] = {
    "frontier": _frontier,
    "distributions": _distributions,
    "utilisation": _utilisation,
    "fragmentation": _fragmentation,
    "migrations": _bars("migrations", "moves per job"),
    "decision-time": _bars("decision_mean", "CPU time of a decision, ms", log=True),
}


def _panels(titles: Sequence[str], y: str) -> tuple[Figure, list[Axes]]:
    """Small multiples, two to a row; axes without a title are removed."""
    columns = min(2, len(titles)) or 1
    rows = max(-(-len(titles) // columns), 1)
    figure = new_figure(rows, columns, "")
    figure.set_size_inches(4.2 * columns, 1.9 * rows + 0.7)
    for k, axes in enumerate(list(figure.axes)):
        if k >= len(titles):
            axes.remove()
            continue
        axes.set_title(titles[k], fontsize=9, loc="left")
        axes.set(xlabel=HOURS if k >= len(titles) - columns else "", ylabel=y if k % columns == 0 else "")
    return figure, list(figure.axes)


def _lines(axes: Axes, curves: Sequence[data.Curve], styles: dict[str, Style]) -> None:
    for curve in curves:
        style = styles[curve.policy]
        axes.plot(curve.x, curve.y, color=style.colour, linestyle=LINES[style.dash], label=curve.policy, linewidth=1)


def _legend_below(figure: Figure) -> None:
    if not figure.axes:
        return
    handles, labels = figure.axes[0].get_legend_handles_labels()
    entry = 0.62 + 0.062 * max(map(len, labels), default=0)  # inches: a line, a gap, and letters of 7.5 points
    columns = max(1, min(len(labels), int(figure.get_figwidth() / entry)))
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, fontsize=7.5, frameon=False)


def _file_name(policy: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "_", policy)
