"""Who held which GPUs from when to when: kept while a run goes on, and read as averages over slices of time."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairlead.model import events as ev
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.cluster import Cluster
from fairlead.model.decision import Decision

_LEAVE = (ev.Finished, ev.Failed, ev.Lost, ev.Refused, ev.Cancelled)
NEARLY_ALL = 0.97  # of the jobs
LONG_TAIL = 1.5  # times as long as nearly all jobs take
_END = (ev.Finished, ev.Failed, ev.Cancelled)


@dataclass(frozen=True, slots=True, eq=False)
class Stays:
    """One row per stay of a job on a node."""

    job: IntArray
    node: IntArray
    gpus: IntArray | FloatArray
    start_s: FloatArray
    end_s: FloatArray


class Timeline:
    """Told of every event and decision, like a journal."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.tenants: dict[str, int] = {}
        self.tenant_of: list[int] = []  # j
        self.width: list[int] = []  # j
        self.arrival_s: list[float] = []  # j
        self.end_s: list[float] = []  # j  inf while it has not ended
        self.node_changes: list[tuple[float, int, bool]] = []  # (when, node, is up now)
        self.now_s = 0.0
        self._open: dict[int, list[int]] = {}  # job -> its rows that have not ended
        self._rows = array("q")  # job, node, GPUs, job, node, GPUs, ...
        self._start_s, self._end_s = array("d"), array("d")
        # Where GPUs change hands by task: averages by job and type, on the first node of the type.
        self._first_node = [int(np.argmax(cluster.node_type == t)) for t in range(len(cluster.types))]
        self._serving: dict[int, list[int]] = {}
        self._shared_rows = array("q")  # job, node, job, node, ...
        self._shared_gpus, self._shared_start_s, self._shared_end_s = array("d"), array("d"), array("d")

    def event(self, event: ev.Event) -> None:
        self.now_s = event.time_s
        if isinstance(event, ev.Arrived):
            self.tenant_of.append(self.tenants.setdefault(event.spec.tenant, len(self.tenants)))
            self.width.append(event.spec.gpus)
            self.arrival_s.append(event.time_s)
            self.end_s.append(np.inf)
        elif isinstance(event, ev.Served):
            self._share(event)
        elif isinstance(event, _LEAVE):
            for j in event.jobs.tolist():
                self._leave(j, event.time_s)
                if isinstance(event, _END):
                    self.end_s[j] = event.time_s
        elif isinstance(event, ev.NodeDown | ev.NodeUp):
            self.node_changes.append((event.time_s, event.node, isinstance(event, ev.NodeUp)))

    def decision(self, decision: Decision) -> None:
        self.now_s = decision.time_s
        for j in decision.stop.tolist():
            self._leave(j, decision.time_s)
        for j, spot in zip(decision.start.tolist(), decision.spots, strict=True):
            first = len(self._start_s)
            for node, gpus in spot:
                self._rows.extend((j, node, gpus))
                self._start_s.append(decision.time_s)
                self._end_s.append(np.inf)
            self._open[j] = list(range(first, len(self._start_s)))

    def _share(self, event: ev.Served) -> None:
        for j, gpus in zip(event.jobs.tolist(), event.gpus.tolist(), strict=True):
            self._leave(j, event.time_s)
            first = len(self._shared_gpus)
            for node, held in zip(self._first_node, gpus, strict=True):
                if held:
                    self._shared_rows.extend((j, node))
                    self._shared_gpus.append(held)
                    self._shared_start_s.append(event.time_s)
                    self._shared_end_s.append(np.inf)
            self._serving[j] = list(range(first, len(self._shared_gpus)))

    def _leave(self, j: int, time_s: float) -> None:
        for row in self._open.pop(j, ()):
            self._end_s[row] = time_s
        for row in self._serving.pop(j, ()):
            self._shared_end_s[row] = time_s

    def stays(self) -> Stays:
        job, node, gpus = np.array(self._rows, dtype=np.int64).reshape(-1, 3).T
        start_s, end_s = np.array(self._start_s), np.minimum(np.array(self._end_s), self.now_s)
        return Stays(job, node, gpus, start_s, end_s)

    def shared(self) -> Stays:
        """What was held on average where GPUs change hands by task; of the node only the type counts."""
        job, node = np.array(self._shared_rows, dtype=np.int64).reshape(-1, 2).T
        start_s, end_s = np.array(self._shared_start_s), np.minimum(np.array(self._shared_end_s), self.now_s)
        return Stays(job, node, np.array(self._shared_gpus), start_s, end_s)

    def held(self) -> Stays:
        """Both."""
        one, other = self.stays(), self.shared()
        names = ("job", "node", "gpus", "start_s", "end_s")
        return Stays(*(np.concatenate((getattr(one, name), getattr(other, name))) for name in names))


def read_series(line: Timeline, tenant_weight: Mapping[str, float], slices: int, most_tenants: int) -> dict[str, Any]:
    """Averages over slices of the run: GPUs in use by type, shares and entitlements of tenants, fragments.

    Most slices are equal and lie before the time at which nearly all jobs have ended; a long tail gets a few wide ones.

    A tenant is entitled to w_u / (sum of w over tenants with active jobs) of the GPUs, but to no more than its
    active jobs ask for. A free GPU is a *fragment* for a job of width d where its node has fewer than min(d, size of the node) free GPUs;
    fragments are averaged over the widths of the workload.
    """
    stays = line.held()
    first_s = min(line.arrival_s, default=0.0)
    edges_s = _edges(line, first_s, slices)
    node_type = line.cluster.node_type
    use = {label: _mean_held(stays, node_type[stays.node] == t, edges_s) for t, label in enumerate(line.cluster.types)}
    up = {label: _mean_up(line, t, edges_s) for t, label in enumerate(line.cluster.types)}
    all_up = sum(up.values(), start=np.zeros(len(edges_s) - 1))
    if len(line.shared().job):  # nobody waits for a gap on one node
        fragments, free = np.zeros(slices), np.maximum(all_up - sum(use.values(), start=np.zeros(slices)), 0.0)
    else:
        fragments, free = _fragments(line, line.stays(), edges_s)
    return {
        "hour": ((edges_s[:-1] + edges_s[1:]) / 7200 - first_s / 3600).tolist(),
        "utilisation": {t: _ratio(use[t], up[t]).tolist() for t in use},
        "tenants": _tenant_series(line, stays, tenant_weight, edges_s, all_up, most_tenants),
        "fragmented_gpus": fragments.tolist(),
        "free_gpus": free.tolist(),
        "mean_fragmented_gpus": float(np.average(fragments, weights=np.diff(edges_s))),
    }


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
    line: Timeline, stays: Stays, given: Mapping[str, float], edges_s: FloatArray, all_up: FloatArray, most: int
) -> dict[str, dict[str, list[float]]]:
    """Of the tenants that held most: part of all GPUs held, and the part that they were entitled to."""
    tenant_of = np.array(line.tenant_of, dtype=np.int64)
    names = list(line.tenants)
    owner = tenant_of[stays.job] if len(stays.job) else stays.job
    held = np.bincount(owner, stays.gpus * (stays.end_s - stays.start_s), len(names))  # u
    weight = np.array([given.get(name, 1.0) for name in names])
    moments_s, asked = _asked(line, tenant_of, len(names))  # k,  k,u
    total = np.maximum((asked > 0) @ weight, 1e-300)  # k
    part = asked / line.cluster.total_gpus
    shown = sorted(np.argsort(-held, kind="stable")[:most].tolist())
    return {
        names[u]: {
            "share": _ratio(_mean_held(stays, owner == u, edges_s), all_up).tolist(),
            "entitled": _slice_means(moments_s, np.minimum(weight[u] / total, part[:, u]), edges_s).tolist(),
        }
        for u in shown
    }


def _asked(line: Timeline, tenant_of: IntArray, tenants: int) -> tuple[FloatArray, FloatArray]:
    """Moments (k) at which a job arrives or ends, and the GPUs that active jobs of tenants ask for from then on (k,u)."""
    arrival_s, end_s, width = np.array(line.arrival_s), np.array(line.end_s), np.array(line.width, dtype=np.float64)
    moments_s = np.unique(np.concatenate((arrival_s, end_s[np.isfinite(end_s)])))
    change = np.zeros((len(moments_s) + 1, tenants))
    np.add.at(change, (np.searchsorted(moments_s, arrival_s), tenant_of), width)
    np.add.at(change, (np.searchsorted(moments_s, end_s), tenant_of), -width)
    return moments_s, np.cumsum(change, axis=0)[:-1]


def _mean_held(stays: Stays, mine: np.ndarray, edges_s: FloatArray) -> FloatArray:
    """GPUs held, by slice."""
    gpus = stays.gpus[mine].astype(np.float64)
    times_s = np.concatenate((stays.start_s[mine], stays.end_s[mine]))
    order = np.argsort(times_s, kind="stable")
    return _slice_means(times_s[order], np.cumsum(np.concatenate((gpus, -gpus))[order]), edges_s)


def _mean_up(line: Timeline, t: int, edges_s: FloatArray) -> FloatArray:
    """GPUs of the type on nodes that are up, by slice."""
    gpus = line.cluster.node_gpus
    changes = [
        (when, int(gpus[n]) * (1 if is_up else -1))
        for when, n, is_up in line.node_changes
        if line.cluster.node_type[n] == t
    ]
    times_s = np.array([-1.0, *(when for when, _ in changes)])
    return _slice_means(times_s, np.cumsum([int(line.cluster.capacity[t]), *(d for _, d in changes)]), edges_s)


def _fragments(line: Timeline, stays: Stays, edges_s: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Fragments, and free GPUs, by slice."""
    size = line.cluster.node_gpus.tolist()
    lost = {s: _expected_fragments(s, line.width) for s in set(size)}
    free, up = list(size), [True] * len(size)
    node, gpus_of = stays.node.tolist(), stays.gpus.tolist()
    changes: list[tuple[float, int, int, bool | None]] = []
    for times_s, sign in ((stays.start_s.tolist(), -1), (stays.end_s.tolist(), 1)):
        changes += [(when, n, sign * g, None) for when, n, g in zip(times_s, node, gpus_of, strict=True)]
    changes += [(when, n, 0, is_up) for when, n, is_up in line.node_changes]
    changes.sort(key=lambda change: change[0])
    # Starts and ends of one instant may come in any order: only what holds after the last of them is kept.
    fragments, idle = sum(lost[s][s] for s in size), float(sum(size))
    times, values = [-1.0], [(fragments, idle)]
    for when, n, gpus, is_up in changes:
        before = free[n] if up[n] else 0
        free[n] += gpus
        up[n] = up[n] if is_up is None else is_up
        after = free[n] if up[n] else 0
        table = lost[size[n]]
        fragments += table[max(after, 0)] - table[max(before, 0)]
        idle += after - before
        if times[-1] == when:
            values[-1] = (fragments, idle)
        else:
            times.append(when)
            values.append((fragments, idle))
    columns = np.array(values)
    return _slice_means(np.array(times), columns[:, 0], edges_s), _slice_means(np.array(times), columns[:, 1], edges_s)


def _expected_fragments(size: int, widths: Sequence[int]) -> list[float]:
    """By free GPUs of a node of this size: free x part of the jobs that would need more of it."""
    need = np.minimum(np.array(widths, dtype=np.int64), size)
    return [float(free * (need > free).mean()) if len(need) else 0.0 for free in range(size + 1)]


def _slice_means(times_s: FloatArray, values: FloatArray, edges_s: FloatArray) -> FloatArray:
    """Of a function that takes values[k] from times_s[k] to times_s[k + 1], and 0 before the first."""
    if not len(times_s):
        return np.zeros(len(edges_s) - 1)
    area = np.concatenate(([0.0], np.cumsum(np.asarray(values)[:-1] * np.diff(times_s))))
    at = np.interp(edges_s, times_s, area)
    beyond = np.maximum(edges_s - times_s[-1], 0.0) * values[-1]
    return np.asarray(np.diff(at + beyond) / np.diff(edges_s))


def _ratio(part: FloatArray, whole: FloatArray) -> FloatArray:
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > 1e-12)
