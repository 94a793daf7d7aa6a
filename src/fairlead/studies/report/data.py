"""The data of the charts as plain numbers, which both the page and the figures draw."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fairlead.model.assumptions import Assumption
from fairlead.model.cluster import Cluster
from fairlead.studies.compare.answer import Cell
from fairlead.studies.compare.compare import Comparison
from fairlead.studies.compare.run_records import RunRecord, StayColumns
from fairlead.studies.report.axes import log_range
from fairlead.studies.report.labels import Area, Spot, place_labels
from fairlead.studies.report.style import Style, styles_of

MOST_POINTS = 300  # of a distribution's curve
MOST_GPUS = 64  # rows of a Gantt chart
MOST_BARS = 6000  # of a Gantt chart
GANTT_H = 24.0
LEAST_RATIO = 0.01  # a logarithmic axis cannot show 0
CDFS = {
    "jct_s": "JCT, hours",
    "ftf": "finish-time fairness (FTF)",
    "latency_ratio": f"latency ratio (below {LEAST_RATIO:g} drawn there)",
}

Range = tuple[float, float, float]  # over seeds: mean, smallest, largest


@dataclass(frozen=True, slots=True)
class Curve:
    policy: str
    x: list[float]
    y: list[float]


@dataclass(frozen=True, slots=True)
class Point:
    policy: str
    x: Range
    y: Range
    whole: bool  # every job finished
    assumed: tuple[Assumption, ...] = ()


@dataclass(frozen=True, slots=True)
class Bar:
    """One job on one GPU."""

    row: int
    start_h: float
    end_h: float
    tenant: str
    job: int


@dataclass(frozen=True, slots=True)
class Gantt:
    policy: str
    rows: list[str]  # names of GPUs, top to bottom
    bars: list[Bar]
    from_h: float
    to_h: float
    left_out: int  # GPUs that have no row


def styles(comparison: Comparison) -> dict[str, Style]:
    return styles_of(comparison.answer.policy_names)


def of_load(comparison: Comparison, load: float | None) -> list[RunRecord]:
    return [record for record in comparison.answer.runs if record.load == load]


def first_runs(comparison: Comparison, load: float | None) -> list[RunRecord]:
    """One run per policy, of the first seed that it finished, for charts over time."""
    runs: dict[str, RunRecord] = {}
    for record in of_load(comparison, load):
        runs.setdefault(record.policy, record)
    return [runs[name] for name in comparison.answer.policy_names if name in runs]


def names_of(records: Sequence[RunRecord]) -> list[str]:
    return list(dict.fromkeys(record.policy for record in records))


def distribution(comparison: Comparison, load: float | None, column: str) -> list[Curve]:
    """Distributions by policy over all finished jobs of all seeds: the part of the jobs at or below x."""
    records = of_load(comparison, load)
    curves = []
    for policy in names_of(records):
        values = np.concatenate([np.array(r.jobs[column], dtype=np.float64) for r in records if r.policy == policy])
        values = values / 3600 if column == "jct_s" else np.maximum(values, LEAST_RATIO)
        if len(values):
            part = np.linspace(0, 1, min(len(values), MOST_POINTS) + 1)[1:]
            curves.append(Curve(policy, np.quantile(values, part, method="inverted_cdf").tolist(), part.tolist()))
    return curves


def frontier(comparison: Comparison, load: float | None) -> list[Point]:
    """Efficiency against fairness: mean JCT in hours, and the largest FTF."""
    points = []
    for row in comparison.answer.rows_at(load):
        jct_s, ftf = range_of(row.metrics["jct_mean"]), range_of(row.metrics["ftf_max"])
        if jct_s is not None and ftf is not None:
            mean_s, low_s, high_s = jct_s
            x = mean_s / 3600, low_s / 3600, high_s / 3600
            points.append(Point(row.policy, x, ftf, row.jobs_finished == row.jobs_total, row.assumed))
    return points


def undominated(points: Sequence[Point]) -> list[Point]:
    """The points that no other beats in both means, by JCT, among policies that left no job unfinished.

    Only policies under the same rules are compared: those under the rules that most policies had.
    """
    counts = Counter(point.assumed for point in points)
    rules = max(counts, key=counts.__getitem__, default=())
    best: list[Point] = []
    for point in sorted((p for p in points if p.whole and p.assumed == rules), key=lambda p: (p.x[0], p.y[0])):
        if not best or point.y[0] < best[-1].y[0]:
            best.append(point)
    return best


@dataclass(frozen=True, slots=True)
class Frame:
    """The axes of the frontier: bounds of both, and the position of each name."""

    x: tuple[float, float]
    y: tuple[float, float]
    labels: list[Spot]


def frame_of(points: Sequence[Point], area: Area) -> Frame:
    x, y = log_range(v for p in points for v in p.x), log_range(v for p in points for v in p.y)

    def part(value: float, bounds: tuple[float, float]) -> float:
        return math.log(max(value, bounds[0]) / bounds[0]) / math.log(bounds[1] / bounds[0])

    at = [(part(p.x[0], x), part(p.y[0], y)) for p in points]
    whiskers = [(part(p.x[1], x), part(p.x[2], x), part(p.y[1], y), part(p.y[2], y)) for p in points]
    return Frame(x, y, place_labels([p.policy for p in points], at, whiskers, area))


def bars_of(comparison: Comparison, load: float | None, metric: str) -> list[tuple[str, Range]]:
    """(policy, range over seeds) of a metric of the table."""
    ranges = [(row.policy, range_of(row.metrics[metric])) for row in comparison.answer.rows_at(load)]
    return [(policy, value) for policy, value in ranges if value is not None]


def range_of(cell: Cell) -> Range | None:
    if cell.mean is None or cell.low is None or cell.high is None:
        return None
    return cell.mean, cell.low, cell.high


def utilisation_of(comparison: Comparison, load: float | None, label: str) -> list[Curve]:
    """The part of a type's GPUs in use, over hours since the first arrival."""
    return [Curve(run.policy, run.series.hour, run.series.utilisation[label]) for run in first_runs(comparison, load)]


def fragments_of(comparison: Comparison, load: float | None) -> list[Curve]:
    """Fragmented GPUs over hours since the first arrival, except for policies that decide single tasks."""
    runs = [(run, run.series.fragmented_gpus) for run in first_runs(comparison, load)]
    return [Curve(run.policy, run.series.hour, values) for run, values in runs if values is not None]


def shown_hours(comparison: Comparison, load: float | None) -> float:
    """The initial end of charts over time, so that a policy that keeps one job for weeks does not squeeze the others."""
    ends = sorted(record.series.hour[-1] for record in first_runs(comparison, load))
    return min(ends[-1], 1.5 * ends[len(ends) // 2]) if ends else 1.0


def highest_share(comparison: Comparison, load: float | None) -> float:
    """The highest share that a tenant held or was entitled to within the shown hours."""
    end_h = shown_hours(comparison, load)
    values = [
        value
        for record in first_runs(comparison, load)
        for tenant in record.series.tenants.values()
        for column in (tenant.share, tenant.entitled)
        for hour, value in zip(record.series.hour, column, strict=True)
        if hour <= end_h
    ]
    return min(1.02, 1.05 * max(values, default=1.0))


def tenants_shown(comparison: Comparison, load: float | None) -> list[str]:
    """Tenants with a series, in the order of their GPU-hours under the first policy."""
    records = first_runs(comparison, load)
    names = {name: None for record in records for name in record.series.tenants}
    tenants = records[0].summary.tenants if records else {}
    hours = {name: tenant.gpu_hours for name, tenant in tenants.items()}
    return sorted(names, key=lambda name: (-hours.get(name, 0.0), name))


def gantts(comparison: Comparison, window_h: tuple[float, float] | None) -> list[Gantt]:
    """One per policy, over the same hours and GPUs; none for runs with too many changes to keep."""
    kept = [(record, record.stays) for record in first_runs(comparison, comparison.answer.loads[-1])]
    drawn = [(record, stays) for record, stays in kept if stays is not None]
    if not drawn:
        return []
    cluster = comparison.setup.cluster
    nodes = _shown_nodes(cluster)
    first_s = min(job.arrival_s for job in comparison.setup.trace.jobs)
    from_h, to_h = window_h or _busy_window(comparison, [record for record, _ in drawn])
    charts = []
    for record, stays in drawn:
        bars = _bars(stays, cluster, nodes, first_s + 3600 * from_h, first_s + 3600 * to_h, first_s)
        while window_h is None and len(bars) > MOST_BARS:
            to_h = from_h + (to_h - from_h) / 2
            bars = [bar for bar in bars if bar.start_h < to_h]
        rows = [f"{cluster.nodes[n]}/{i}" for n in nodes for i in range(int(cluster.node_gpus[n]))]
        charts.append(Gantt(record.policy, rows, bars, from_h, to_h, cluster.total_gpus - len(rows)))
    shortest_h = min(chart.to_h for chart in charts)
    return [Gantt(g.policy, g.rows, _cut(g.bars, shortest_h), from_h, shortest_h, g.left_out) for g in charts]


def _busy_window(comparison: Comparison, records: Sequence[RunRecord]) -> tuple[float, float]:
    """A day around the median arrival, or the part of it that the run covers."""
    arrivals_h = np.array([job.arrival_s for job in comparison.setup.trace.jobs]) / 3600
    arrivals_h = arrivals_h - arrivals_h.min()
    end_h = min(max(record.series.hour[-1] for record in records), shown_hours(comparison, records[0].load))
    length_h = min(GANTT_H, end_h)
    from_h = float(np.clip(np.median(arrivals_h) - length_h / 2, 0.0, max(end_h - length_h, 0.0)))
    return round(from_h, 2), round(from_h + length_h, 2)


def _shown_nodes(cluster: Cluster) -> list[int]:
    """As many nodes as there is room for, chosen in turn from every type, shown type by type."""
    by_type = [np.flatnonzero(cluster.node_type == t).tolist() for t in range(len(cluster.types))]
    chosen: list[int] = []
    room = MOST_GPUS
    for turn in range(max(map(len, by_type), default=0)):
        for nodes in by_type:
            if turn < len(nodes) and int(cluster.node_gpus[nodes[turn]]) <= room:
                chosen.append(nodes[turn])
                room -= int(cluster.node_gpus[nodes[turn]])
    return sorted(chosen, key=lambda n: (int(cluster.node_type[n]), n))


def _bars(
    stays: StayColumns, cluster: Cluster, nodes: Sequence[int], from_s: float, to_s: float, first_s: float
) -> list[Bar]:
    """GPUs of a node are numbered as they are taken, the lowest free one first; a job that continues keeps its own."""
    first_row = dict(zip(nodes, np.cumsum([0, *(int(cluster.node_gpus[n]) for n in nodes)]).tolist()[:-1], strict=True))
    free = {n: list(range(int(cluster.node_gpus[n]))) for n in nodes}
    leaving: list[tuple[float, int, list[int]]] = []  # (when, node, GPUs)
    bars: dict[tuple[int, int], Bar] = {}  # (row, job) -> its last one
    done: list[Bar] = []
    columns = zip(stays.start_s, stays.node, stays.job, stays.gpus, stays.end_s, strict=True)
    for start_s, node, job, gpus, end_s in sorted(columns):
        if node not in free or end_s <= start_s:
            continue
        while leaving and leaving[0][0] <= start_s:
            _, left, lanes = heapq.heappop(leaving)
            free[left] = sorted(free[left] + lanes)
        mine = sorted(free[node], key=lambda i: (bars.get((first_row[node] + i, job)) is None, i))[:gpus]
        free[node] = [i for i in free[node] if i not in mine]
        heapq.heappush(leaving, (end_s, node, mine))
        if end_s <= from_s or start_s >= to_s:
            continue
        for i in mine:
            row = first_row[node] + i
            start_h, end_h = ((max(start_s, from_s) - first_s) / 3600, (min(end_s, to_s) - first_s) / 3600)
            last = bars.get((row, job))
            if last is not None and abs(last.end_h - start_h) < 1e-6:
                start_h = last.start_h
            elif last is not None:
                done.append(last)
            bars[row, job] = Bar(row, start_h, end_h, stays.tenant[job], job)
    return sorted([*done, *bars.values()], key=lambda bar: (bar.row, bar.start_h))


def _cut(bars: Sequence[Bar], to_h: float) -> list[Bar]:
    return [
        bar if bar.end_h <= to_h else Bar(bar.row, bar.start_h, to_h, bar.tenant, bar.job)
        for bar in bars
        if bar.start_h < to_h
    ]
