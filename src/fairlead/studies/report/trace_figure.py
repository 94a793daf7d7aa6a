"""A trace as a figure: arrivals, durations, widths and tenants of its jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fairlead.studies.report.figure_files import COLOURS, new_figure, save
from fairlead.traces.formats import Trace
from fairlead.traces.stats import TraceStats

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_TENANTS = 12


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
    """The largest counts by name, and the rest as one."""
    names = list(counts)[:_MOST_TENANTS]
    rest = sum(value for name, value in counts.items() if name not in names)
    return {name: counts[name] for name in names} | ({f"{len(counts) - len(names)} others": rest} if rest else {})
