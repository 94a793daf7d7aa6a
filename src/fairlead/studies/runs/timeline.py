"""Which job held which GPUs when: recorded during a run, and read as averages over time slices."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fairlead.model import events as ev
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.cluster import Cluster
from fairlead.model.decision import Decision
from fairlead.rounds.nodes import Nodes

_LEAVE = (ev.Finished, ev.Failed, ev.Lost, ev.Refused, ev.Cancelled, ev.Held)
NO_NODE = -1
NEARLY_ALL = 0.97  # of the jobs
LONG_TAIL = 1.5  # times the time in which nearly all jobs end
_END = (ev.Finished, ev.Failed, ev.Cancelled)


@dataclass(frozen=True, slots=True, eq=False)
class Stays:
    """One row per stay of a job on a node, or, where GPUs go from job to job with every task, on a type."""

    job: IntArray
    node: IntArray  # NO_NODE where only the type is known
    type: IntArray
    gpus: FloatArray  # whole on a node, an average on a type
    start_s: FloatArray
    end_s: FloatArray


@dataclass(frozen=True, slots=True)
class TenantSeries:
    """For a tenant, by slice: the part of all GPUs that it held, and the part to which it was entitled."""

    share: list[float]
    entitled: list[float]


@dataclass(frozen=True, slots=True)
class Series:
    """A run over time, as averages over slices. Fragments are None if only the type of a stay is known."""

    hour: list[float]  # middle of each slice, since the first arrival
    utilisation: Mapping[str, list[float]]  # by type
    tenants: Mapping[str, TenantSeries]
    fragmented_gpus: list[float] | None
    free_gpus: list[float] | None
    mean_fragmented_gpus: float | None


def series_from_json(value: Mapping[str, Any]) -> Series:
    return Series(**{**value, "tenants": {name: TenantSeries(**one) for name, one in value["tenants"].items()}})


class NodeChange(NamedTuple):
    """From `time_s` on, `there` of the node's `size` GPUs are available to us."""

    time_s: float
    node: int
    type: int
    there: int
    size: int


class Timeline:
    """Receives every event and decision, like a journal."""

    def __init__(self, cluster: Cluster) -> None:
        self.first = cluster
        self._nodes = Nodes(cluster)  # used without taking GPUs from it
        self.tenants: dict[str, int] = {}
        self.tenant_of: list[int] = []  # j
        self.width: list[int] = []  # j
        self.arrival_s: list[float] = []  # j
        self.end_s: list[float] = []  # j  inf while it has not ended
        self.node_changes: list[NodeChange] = []
        self.now_s = 0.0
        self._open: dict[int, list[int]] = {}  # job -> its rows that have not ended
        self._rows = array("q")  # job, node, type, job, node, type, ...
        self._gpus, self._start_s, self._end_s = array("d"), array("d"), array("d")

    @property
    def cluster(self) -> Cluster:
        """The cluster after the events so far."""
        return self._nodes.cluster

    def event(self, event: ev.Event) -> None:
        self.now_s = event.time_s
        if isinstance(event, ev.Arrived):
            self.tenant_of.append(self.tenants.setdefault(event.spec.tenant, len(self.tenants)))
            self.width.append(event.spec.gpus)
            self.arrival_s.append(event.time_s)
            self.end_s.append(np.inf)
        elif isinstance(event, _LEAVE):
            for j in event.jobs.tolist():
                self._leave(j, event.time_s)
                if isinstance(event, _END):
                    self.end_s[j] = event.time_s
        elif isinstance(event, ev.Served):
            for j, gpus in zip(event.jobs.tolist(), event.gpus.tolist(), strict=True):
                self._leave(j, event.time_s)
                self._stay(j, [(NO_NODE, t, held) for t, held in enumerate(gpus) if held], event.time_s)
        elif isinstance(event, ev.NodeDown | ev.NodeUp | ev.NodeUsable | ev.NodeAdded | ev.NodeRemoved):
            node = self._nodes.fold(event)
            there = int(self._nodes.usable[node]) if self._nodes.up[node] else 0
            size = int(self.cluster.node_gpus[node])
            self.node_changes.append(NodeChange(event.time_s, node, self._nodes.types[node], there, size))

    def decision(self, decision: Decision) -> None:
        self.now_s, types = decision.time_s, self.cluster.node_type
        for j in decision.stop.tolist():
            self._leave(j, decision.time_s)
        for j, spot in zip(decision.start.tolist(), decision.spots, strict=True):
            self._stay(j, [(node, int(types[node]), gpus) for node, gpus in spot], decision.time_s)

    def _stay(self, j: int, rows: list[tuple[int, int, float]], time_s: float) -> None:
        first = len(self._start_s)
        for node, type_, gpus in rows:
            self._rows.extend((j, node, type_))
            self._gpus.append(gpus)
            self._start_s.append(time_s)
            self._end_s.append(np.inf)
        self._open[j] = list(range(first, len(self._start_s)))

    def _leave(self, j: int, time_s: float) -> None:
        for row in self._open.pop(j, ()):
            self._end_s[row] = time_s

    def stays(self) -> Stays:
        job, node, type_ = np.array(self._rows, dtype=np.int64).reshape(-1, 3).T
        start_s, end_s = np.array(self._start_s), np.minimum(np.array(self._end_s), self.now_s)
        return Stays(job, node, type_, np.array(self._gpus), start_s, end_s)


def read_series(line: Timeline, tenant_weight: Mapping[str, float], slices: int, most_tenants: int) -> Series:
    """Averages over slices of the run: GPUs in use by type, shares and entitlements of tenants, fragments.

    Most slices are equal and before the time at which nearly all jobs have ended; a long tail gets a few wide slices.

    A tenant is entitled to w_u / (sum of w over tenants with active jobs) of the GPUs, but to no more than its active
    jobs request. A free GPU is a *fragment* for a job of width d if its node has fewer than min(d, size of the node) free
    GPUs; fragments are averaged over the widths of the workload.
    """
    stays = line.stays()
    first_s = min(line.arrival_s, default=0.0)
    edges_s = _edges(line, first_s, slices)
    use = {label: _mean_held(stays, stays.type == t, edges_s) for t, label in enumerate(line.cluster.types)}
    up = {label: _mean_up(line, t, edges_s) for t, label in enumerate(line.cluster.types)}
    all_up = sum(up.values(), start=np.zeros(len(edges_s) - 1))
    placed = not (stays.node == NO_NODE).any()
    fragments, free = _fragments(line, stays, edges_s) if placed else (None, None)
    return Series(
        hour=((edges_s[:-1] + edges_s[1:]) / 7200 - first_s / 3600).tolist(),
        utilisation={t: _ratio(use[t], up[t]).tolist() for t in use},
        tenants=_tenant_series(line, stays, tenant_weight, edges_s, all_up, most_tenants),
        fragmented_gpus=None if fragments is None else fragments.tolist(),
        free_gpus=None if free is None else free.tolist(),
        mean_fragmented_gpus=None if fragments is None else float(np.average(fragments, weights=np.diff(edges_s))),
    )


def _edges(line: Timeline, first_s: float, slices: int) -> FloatArray:
    end_s = np.array(line.end_s)
    last_s = max(line.now_s, first_s + 1.0)
    ended_s = end_s[np.isfinite(end_s)]
    most_s = float(np.quantile(ended_s, NEARLY_ALL)) if len(ended_s) else last_s
    if last_s - first_s < LONG_TAIL * (most_s - first_s) or most_s <= first_s:
        return np.linspace(first_s, last_s, slices + 1)
    tail = max(slices // 5, 1)
    return np.concatenate((np.linspace(first_s, most_s, slices - tail + 1), np.linspace(most_s, last_s, tail + 1)[1:]))


def _tenant_series(
    line: Timeline, stays: Stays, tenant_weight: Mapping[str, float], edges_s: FloatArray, all_up: FloatArray, most: int
) -> dict[str, TenantSeries]:
    """The series of the tenants that held most."""
    tenant_of = np.array(line.tenant_of, dtype=np.int64)
    names = list(line.tenants)
    owner = tenant_of[stays.job] if len(stays.job) else stays.job
    held = np.bincount(owner, stays.gpus * (stays.end_s - stays.start_s), len(names))  # u
    weight = np.array([tenant_weight.get(name, 1.0) for name in names])
    moments_s, asked = _asked(line, tenant_of, len(names))  # k,  k,u
    total = np.maximum((asked > 0) @ weight, 1e-300)  # k
    part = asked / max(line.cluster.total_gpus, 1)
    shown = sorted(np.argsort(-held, kind="stable")[:most].tolist())
    return {
        names[u]: TenantSeries(
            share=_ratio(_mean_held(stays, owner == u, edges_s), all_up).tolist(),
            entitled=_slice_means(moments_s, np.minimum(weight[u] / total, part[:, u]), edges_s).tolist(),
        )
        for u in shown
    }


def _asked(line: Timeline, tenant_of: IntArray, tenants: int) -> tuple[FloatArray, FloatArray]:
    """Times (k) at which a job arrives or ends, and the GPUs that active jobs of tenants request from then on (k,u)."""
    arrival_s, end_s, width = np.array(line.arrival_s), np.array(line.end_s), np.array(line.width, dtype=np.float64)
    moments_s = np.unique(np.concatenate((arrival_s, end_s[np.isfinite(end_s)])))
    change = np.zeros((len(moments_s) + 1, tenants))
    np.add.at(change, (np.searchsorted(moments_s, arrival_s), tenant_of), width)
    np.add.at(change, (np.searchsorted(moments_s, end_s), tenant_of), -width)
    return moments_s, np.cumsum(change, axis=0)[:-1]


def _mean_held(stays: Stays, mine: np.ndarray, edges_s: FloatArray) -> FloatArray:
    """Mean GPUs held, by slice."""
    gpus = stays.gpus[mine]
    times_s = np.concatenate((stays.start_s[mine], stays.end_s[mine]))
    order = np.argsort(times_s, kind="stable")
    return _slice_means(times_s[order], np.cumsum(np.concatenate((gpus, -gpus))[order]), edges_s)


def _mean_up(line: Timeline, t: int, edges_s: FloatArray) -> FloatArray:
    """Mean GPUs of the type on nodes that are up, by slice."""
    there = dict(enumerate(line.first.node_gpus.tolist()))
    at_first = int(line.first.capacity[t]) if t < len(line.first.types) else 0
    times_s, more = [-1.0], [at_first]
    for change in line.node_changes:
        if change.type == t:
            times_s.append(change.time_s)
            more.append(change.there - there.get(change.node, 0))
        there[change.node] = change.there
    return _slice_means(np.array(times_s), np.cumsum(more), edges_s)


def _fragments(line: Timeline, stays: Stays, edges_s: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Fragments, and free GPUs, by slice."""
    more = len(line.cluster.nodes) - len(line.first.nodes)
    size: list[int] = [*line.first.node_gpus.tolist(), *[0] * more]  # n
    there, held = list(size), [0] * len(size)  # n
    lost = {s: _expected_fragments(s, line.width) for s in {*size, *(change.size for change in line.node_changes)}}
    node, gpus_of = stays.node.tolist(), stays.gpus.astype(np.int64).tolist()
    changes: list[tuple[float, int, int, NodeChange | None]] = []
    for times_s, sign in ((stays.start_s.tolist(), 1), (stays.end_s.tolist(), -1)):
        changes += [(when, n, sign * g, None) for when, n, g in zip(times_s, node, gpus_of, strict=True)]
    changes += [(change.time_s, change.node, 0, change) for change in line.node_changes]
    changes.sort(key=lambda change: change[0])
    # Starts and ends at the same time may come in any order, so only the value after the last of them is kept.
    fragments, idle = sum(lost[s][s] for s in size), float(sum(size))
    times, values = [-1.0], [(fragments, idle)]
    for when, n, gpus, change in changes:
        before = there[n] - held[n] if there[n] else 0
        fragments -= lost[size[n]][max(before, 0)]
        held[n] += gpus
        if change is not None:
            there[n], size[n] = change.there, change.size
        after = there[n] - held[n] if there[n] else 0
        fragments += lost[size[n]][min(max(after, 0), size[n])]
        idle += after - before
        if times[-1] == when:
            values[-1] = (fragments, idle)
        else:
            times.append(when)
            values.append((fragments, idle))
    columns = np.array(values)
    return _slice_means(np.array(times), columns[:, 0], edges_s), _slice_means(np.array(times), columns[:, 1], edges_s)


def _expected_fragments(size: int, widths: Sequence[int]) -> list[float]:
    """By the number of free GPUs of a node of this size: free x part of the jobs that would need more of the node."""
    need = np.minimum(np.array(widths, dtype=np.int64), size)
    return [float(free * (need > free).mean()) if len(need) else 0.0 for free in range(size + 1)]


def _slice_means(times_s: FloatArray, values: FloatArray, edges_s: FloatArray) -> FloatArray:
    """Means by slice of a function that is values[k] from times_s[k] to times_s[k + 1], and 0 before the first."""
    if not len(times_s):
        return np.zeros(len(edges_s) - 1)
    area = np.concatenate(([0.0], np.cumsum(np.asarray(values)[:-1] * np.diff(times_s))))
    at = np.interp(edges_s, times_s, area)
    beyond = np.maximum(edges_s - times_s[-1], 0.0) * values[-1]
    return np.asarray(np.diff(at + beyond) / np.diff(edges_s))


def _ratio(part: FloatArray, whole: FloatArray) -> FloatArray:
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > 1e-12)
