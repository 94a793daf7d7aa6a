"""Figures for papers and reports: one look, colour-blind safe, drawn without a display."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fairlead.model.errors import InputError
from fairlead.traces.formats import Trace
from fairlead.traces.stats import TraceStats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette: told apart with every common kind of colour blindness.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#F0E442", "#000000")
_SUFFIXES = (".png", ".pdf", ".svg")
_MOST_TENANTS = 12
_STYLE: Any = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "svg.hashsalt": "fairlead",
}


def draw_trace(trace: Trace, stats: TraceStats, path: str) -> None:
    """Four panels: arrivals over time, durations, widths, GPU-hours by tenant."""
    figure = new_figure(2, 2, title=f"{stats.name}: {stats.jobs:,} jobs over {stats.span_s / 86400:.3g} days")
    arrivals, durations, widths, tenants = figure.axes
    _draw_arrivals(arrivals, trace)
    _draw_durations(durations, stats)
    _draw_bars(widths, {str(width): count for width, count in stats.widths.items()}, "GPUs of a job", "jobs")
    widths.set_yscale("log")
    _draw_bars(tenants, _largest(dict(stats.gpu_hours_by_tenant)), "tenant", "GPU-hours")
    tenants.tick_params(axis="x", labelrotation=60)
    save(figure, path)


def new_figure(rows: int, columns: int, title: str) -> Figure:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(4.2 * columns, 2.9 * rows), layout="constrained")
        figure.subplots(rows, columns)
        figure.suptitle(title)
    return figure


def save(figure: Figure, path: str, title: str | None = None) -> None:
    """As PNG, PDF or SVG, by the name; without the date, so that the same figure gives the same file.

    The title is for those who ask the file what it is; a paper's figure has a caption instead.
    """
    import matplotlib as mpl

    suffix = Path(path).suffix.lower()
    if suffix not in _SUFFIXES:
        raise InputError(f'figure "{path}": wanted a name that ends in {", ".join(_SUFFIXES)}')
    date: Mapping[str, str | None] = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}.get(suffix, {})
    facts = date if title is None else {**date, "Title": title}
    try:
        with mpl.rc_context(_STYLE):
            figure.savefig(path, dpi=150, metadata=facts)
    except OSError as error:
        raise InputError(f"cannot write the figure: {error.strerror}", path=path) from None


def _draw_arrivals(axes: Axes, trace: Trace) -> None:
    days = np.array([job.arrival_s for job in trace.jobs]) / 86400
    axes.step(days, np.arange(1, len(days) + 1), where="post", color=COLOURS[0])
    axes.set(xlabel="days since the first arrival", ylabel="jobs arrived", ylim=(0, None))


def _draw_durations(axes: Axes, stats: TraceStats) -> None:
    """The distribution, over a logarithmic axis of hours."""
    hours = np.array(stats.duration_percentiles_s) / 3600
    if len(hours):
        axes.plot(hours, np.linspace(0, 1, len(hours)), color=COLOURS[0])
        axes.set_xscale("log")
    axes.set(xlabel=f"hours on {stats.reference}", ylabel="part of jobs", ylim=(0, 1))


def _draw_bars(axes: Axes, counts: dict[str, float], x: str, y: str) -> None:
    axes.bar(list(counts), list(counts.values()), color=COLOURS[0])
    axes.grid(visible=False, axis="x")
    axes.set(xlabel=x, ylabel=y)


def _largest(counts: dict[str, float]) -> dict[str, float]:
    """The largest ones by name, the rest as one."""
    names = list(counts)[:_MOST_TENANTS]
    rest = sum(value for name, value in counts.items() if name not in names)
    return {name: counts[name] for name in names} | ({f"{len(counts) - len(names)} others": rest} if rest else {})
