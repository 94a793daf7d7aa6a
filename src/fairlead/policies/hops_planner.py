"""The planner of Hops: the configurations of jobs, the value of each, and one plan for the jobs in the window."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace

import numpy as np

from fairlead.model.allocation import NOWHERE, Spot
from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.model.view import View
from fairlead.numerics.configurations import Choices, Groups, group_nodes, two_stage
from fairlead.numerics.exchange import exchange
from fairlead.numerics.spots import SpotChoices, SpotPlan
from fairlead.placement.pool import fill_nodes, free_after, neighbour_spots
from fairlead.rates.age import restart_factor
from fairlead.rates.configurations import Kinds
from fairlead.rates.spot import spot_rate

POWER = 1.0  # lambda, the power of priorities as weights of speed
SERVED_POWER = 4  # the power of priorities as weights of being served at all
SIGMA = 1.4  # jobs whose sensitivity is lower may be spread
BIAS = 0.01  # above the smallest priority, if one is not positive
USE = 1e-2  # worth of a GPU in use, so that idle GPUs always cost something
LEAST_WEIGHT = 1e-4  # of the largest weight; with less, the solver treats a job's gain as noise
SPEED_BINS = (0.05, 0.1, 0.2)  # nodes whose speeds differ by less are one group
# Jobs x groups above which bins are wider: at 2,048 GPUs, 2 CPU s instead of 6 for 0.5 % of the value.
MOST_CELLS = 25_000
UNEVEN_SPOTS = 4  # per width and type, if only nodes with unequal room together hold a gang
FRAGMENT_JOBS = 12  # waiting jobs that may take what stage 1 leaves


class Planner:
    """The data that all plans of one round share."""

    def __init__(
        self,
        view: View,
        prior: FloatArray,
        power: float = POWER,
        served: float = 0.0,
        bias: float | None = None,
        sigma: float = SIGMA,
        restart: bool = False,
        solve_s: float | None = None,
    ) -> None:
        self._view = view
        self._kinds = Kinds(view)
        minds = self._kinds.sensitivity()  # k
        self._low = minds <= sigma  # k
        self.sensitivity = minds[self._kinds.of]  # j
        self.least = np.array([widths[0] for widths in self._kinds.widths], dtype=np.int64)[self._kinds.of]  # j
        urgency = urgencies(prior, bias)  # j
        self._weight = np.maximum(urgency**power, LEAST_WEIGHT)  # j
        self._served = served * urgency**SERVED_POWER * self.least  # j
        self._smallest = np.array([self._smallest_rate(kind) for kind in range(len(self._kinds))])  # k
        self._moved = restart_factor(view) if restart else np.ones(view.jobs)  # j
        self._relative, self._spread = view.relative, view.relative_spread  # j,n  j,t
        self._kind_of_node, self._fill_order = nodes_alike(view, self._relative)
        self._solve_s = solve_s

    def plan(self, jobs: IntArray, free: IntArray) -> SpotPlan:
        groups = group_nodes(self._kind_of_node, free, self._fill_order)
        order = jobs.tolist()

        def residual(open_jobs: list[int], placed: Container[int], left: IntArray) -> SpotChoices:
            waiting = [j for j in order if j not in placed and j not in open_jobs]
            waiting.sort(key=lambda j: not self._low[self._kinds.of[j]])
            return self.on_nodes([*open_jobs, *waiting[:FRAGMENT_JOBS]], left)

        choices = self._on_groups(jobs, groups, free)
        alike = self._relative is None
        plan = two_stage(choices, groups, free, order, residual, self._view.spots, self._solve_s, alike=alike)
        if alike:
            return plan
        spots, gain = exchange(plan.spots, groups, self._view.spots, self._worth_on)
        return replace(plan, spots=spots, value=plan.value + gain)

    def fitting(self, queue: IntArray, free: IntArray) -> IntArray:
        """The jobs of the queue that could use some of these GPUs."""
        groups = group_nodes(self._kind_of_node, free, self._fill_order)
        fits = np.zeros(len(self._kinds), dtype=np.bool_)  # k
        for kind in np.unique(self._kinds.of[queue]).tolist():
            fits[kind] = bool(self._group_table(kind, groups) or self._uneven_spots(kind, groups, free))
        return queue[fits[self._kinds.of[queue]]]

    def widened(self, spots: dict[int, Spot], free: IntArray) -> dict[int, Spot]:
        """The new spots of jobs that are worth more with additional GPUs that are still idle.

        Jobs are taken in order; each takes GPUs on its own nodes first, and on others only if it may be spread.
        """
        free = free.copy()
        wider: dict[int, Spot] = {}
        for j, spot in spots.items():
            here = {int(self._view.cluster.node_type[node]) for node, _ in spot}
            if len(here) == 1 and free.any() and (more := self._wider(j, spot, here.pop(), free)):
                wider[j] = more
                for node, gpus in more:
                    free[node] -= gpus - dict(spot).get(node, 0)
        return wider

    def _wider(self, j: int, spot: Spot, t: int, free: IntArray) -> Spot | None:
        """The spot of the widest width that idle GPUs of its type allow, if it is worth more than the job's spot."""
        kind, width, own = int(self._kinds.of[j]), sum(gpus for _, gpus in spot), dict(spot)
        others = np.flatnonzero((self._view.cluster.node_type == t) & (free > 0)).tolist()
        others = [node for node in others if node not in own and self._may_spread(kind, t)]
        nodes = [*own, *sorted(others, key=lambda node: -int(free[node]))]
        room = sum(int(free[node]) for node in nodes)
        now = self._kinds.rate_on(kind, spot)
        for more in reversed([w for w in self._kinds.widths[kind] if width < w <= width + room]):
            added = dict(fill_nodes(nodes, free, more - width))
            wider = tuple(sorted((node, own.get(node, 0) + added.get(node, 0)) for node in {*own, *added}))
            rate = self._kinds.rate_on(kind, wider)
            if rate > 0 and self.value(j, rate, wider) > self._value_of(j, now, spot):
                return wider
        return None

    def _value_of(self, j: int, rate: float, spot: Spot) -> float:
        """The value of a spot, which may be the job's present one."""
        moved = 1.0 if spot == self._view.spots.get(j) else float(self._moved[j])
        speed, gpus = rate * self._speed_on(j, spot) * moved, sum(count for _, count in spot)
        return float(self._worth(np.array([j]), np.array([speed]), np.array([gpus]))[0])

    def _on_groups(self, jobs: IntArray, groups: Groups, free: IntArray) -> Choices:
        """Every allowed width on every group that holds it, and spots outside groups.

        The latter are the present spots of jobs, and combinations of nodes with unequal room.
        """
        none: IntArray = np.empty(0, dtype=np.int64)
        job, group, gpus, rate = [none], [none], [none], [np.empty(0)]
        spots: list[tuple[int, float, Spot]] = []
        kinds = self._kinds.of[jobs]
        for kind in np.unique(kinds).tolist():
            same = jobs[kinds == kind]
            table = self._group_table(kind, groups)
            job.append(np.repeat(same, len(table)))
            group.append(np.tile(np.array([g for g, _, _ in table], dtype=np.int64), len(same)))
            gpus.append(np.tile(np.array([width for _, width, _ in table], dtype=np.int64), len(same)))
            rate.append(np.tile(np.array([speed for _, _, speed in table], dtype=np.float64), len(same)))
            odd = self._uneven_spots(kind, groups, free)
            spots += [(j, self.value(j, speed, spot), spot) for j in same.tolist() for speed, spot in odd]
        spots += [stay for j in jobs.tolist() if (stay := self._stay(j, free))]
        i, g, size = np.concatenate(job), np.concatenate(group), np.concatenate(gpus)  # c
        value = self._worth(i, np.concatenate(rate) * self._moved[i] * self._group_speed(i, g, size, groups), size)
        return Choices(
            i,
            value,
            g,
            size,
            np.array([j for j, _, _ in spots], dtype=np.int64),
            np.array([worth for _, worth, _ in spots], dtype=np.float64),
            tuple(spot for _, _, spot in spots),
        )

    def _group_table(self, kind: int, groups: Groups) -> list[tuple[int, int, float]]:
        """(group, GPUs, rate) of every configuration inside one group."""
        table = []
        types = set(self._kinds.types[kind])
        for g, (idle, first) in enumerate(zip(groups.idle.tolist(), groups.nodes, strict=True)):
            t = int(self._view.cluster.node_type[first[0]])
            if t not in types:
                continue
            for width in self._kinds.widths[kind]:
                nodes = -(-width // idle)
                if nodes > len(first) or (nodes > 1 and not self._may_spread(kind, t)):
                    continue
                rate = self._kinds.rate(kind, t, width, nodes)
                if rate > 0:
                    table.append((g, width, rate))
        return table

    def _uneven_spots(self, kind: int, groups: Groups, free: IntArray) -> list[tuple[float, Spot]]:
        """(rate, spot) for widths that no single node and no single group of a type holds."""
        spots = []
        for t in self._kinds.types[kind]:
            here = [g for g, nodes in enumerate(groups.nodes) if self._view.cluster.node_type[nodes[0]] == t]
            most = max((int(groups.idle[g]) * len(groups.nodes[g]) for g in here), default=0)
            for width in self._kinds.widths[kind]:
                if width > most and self._may_spread(kind, t):
                    spots += self._spread_spots(kind, t, width, free)[:UNEVEN_SPOTS]
        return spots

    def _spread_spots(self, kind: int, t: int, width: int, free: IntArray) -> list[tuple[float, Spot]]:
        nodes = np.flatnonzero((self._view.cluster.node_type == t) & (free > 0)).tolist()
        spots = [(self._kinds.rate_on(kind, spot), spot) for spot in neighbour_spots(nodes, free, width)]
        return [(rate, spot) for rate, spot in spots if rate > 0]

    def on_nodes(self, jobs: list[int], free: IntArray) -> SpotChoices:
        """Every configuration on real nodes."""
        job: list[int] = []
        value: list[float] = []
        spots: list[Spot] = []
        by_kind: dict[int, list[tuple[float, Spot]]] = {}
        for j in jobs:
            kind = int(self._kinds.of[j])
            if kind not in by_kind:
                by_kind[kind] = self._node_table(kind, free)
            table = by_kind[kind]
            job += [j] * len(table)
            value += self._values(j, table)
            spots += [spot for _, spot in table]
            if stay := self._stay(j, free):
                job.append(j)
                value.append(stay[1])
                spots.append(stay[2])
        return SpotChoices(np.array(job, dtype=np.int64), np.array(value), spots)

    def _node_table(self, kind: int, free: IntArray) -> list[tuple[float, Spot]]:
        table: list[tuple[float, Spot]] = []
        for t in self._kinds.types[kind]:
            nodes = np.flatnonzero((self._view.cluster.node_type == t) & (free > 0)).tolist()
            for width in self._kinds.widths[kind]:
                fits = [node for node in nodes if free[node] >= width]
                if fits:
                    rate = self._kinds.rate(kind, t, width, 1)
                    table += [(rate, ((node, width),)) for node in fits if rate > 0]
                elif self._may_spread(kind, t):
                    table += self._spread_spots(kind, t, width, free)
        return table

    def _may_spread(self, kind: int, t: int) -> bool:
        """Whether a kind may be spread: it loses little by it, or could not run otherwise."""
        return bool(self._low[kind]) or self._kinds.widths[kind][0] > int(self._view.cluster.largest_node[t])

    def _stay(self, j: int, free: IntArray) -> tuple[int, float, Spot] | None:
        """(job, value, spot) of a running job's present configuration, if its GPUs are still there."""
        spot = self._view.spots.get(j, NOWHERE)
        if not spot or any(free[node] < gpus for node, gpus in spot):
            return None
        return j, self._value_of(j, self._kinds.rate_on(int(self._kinds.of[j]), spot), spot), spot

    def value(self, j: int, rate: float, spot: Spot) -> float:
        return self._values(j, [(rate, spot)])[0]

    def _values(self, j: int, table: list[tuple[float, Spot]]) -> list[float]:
        """The values of configurations to which job j would have to move."""
        if not table:
            return []
        rate = np.array([rate * self._speed_on(j, spot) for rate, spot in table]) * self._moved[j]
        gpus = np.array([sum(count for _, count in spot) for _, spot in table])
        values: list[float] = self._worth(np.full(len(table), j), rate, gpus).tolist()
        return values

    def _worth(self, job: IntArray, rate: FloatArray, gpus: IntArray) -> FloatArray:
        """u^lambda G + K u^4 R, plus a little for every GPU in use."""
        speed = self._weight[job] * rate / self._smallest[self._kinds.of[job]]
        return np.asarray(speed + self._served[job] + USE * gpus)

    def _worth_on(self, j: int, gpus: int, nodes: IntArray) -> FloatArray:
        """n  the worth on single nodes of one type; on its present node the job need not restart."""
        assert self._relative is not None
        rate = self._kinds.rate(int(self._kinds.of[j]), int(self._view.cluster.node_type[nodes[0]]), gpus, 1)
        speed = self._relative[j, nodes] * self._moved[j]
        here = self._view.spots.get(j, NOWHERE)
        if len(here) == 1 and here[0][1] == gpus:
            speed[nodes == here[0][0]] /= self._moved[j]
        return self._worth(np.full(len(nodes), j), rate * speed, np.full(len(nodes), gpus))

    def _speed_on(self, j: int, spot: Spot) -> float:
        """The learnt speed of a spot, relative to the profile's rate."""
        if self._relative is None or self._spread is None:
            return 1.0
        return spot_rate(_as_profiled, spot, self._view.cluster.type_of, self._relative[j], self._spread[j])

    def _group_speed(self, job: IntArray, group: IntArray, gpus: IntArray, groups: Groups) -> FloatArray:
        """The learnt speed of configurations: the mean over the nodes of their group, times that of being spread."""
        if self._relative is None or self._spread is None:
            return np.ones(len(job))
        mean = np.column_stack([self._relative[:, list(nodes)].mean(axis=1) for nodes in groups.nodes])  # j,g
        type_of = self._view.cluster.node_type[[nodes[0] for nodes in groups.nodes]]  # g
        spread = np.where(gpus > groups.idle[group], self._spread[job, type_of[group]], 1.0)
        return np.asarray(spread * mean[job, group])

    def _smallest_rate(self, kind: int) -> float:
        """The smallest rate over all configurations of an empty cluster, so that it does not depend on idle GPUs."""
        rates = [
            self._kinds.rate(kind, t, width, -(-width // int(self._view.cluster.largest_node[t])))
            for t in self._kinds.types[kind]
            for width in self._kinds.widths[kind]
        ]
        return min((rate for rate in rates if rate > 0), default=1.0)


def _as_profiled(type_: int, gpus: int, nodes: int) -> float:
    return 1.0


def urgencies(prior: FloatArray, bias: float | None = None) -> FloatArray:
    """j  (prior + bias) relative to the largest; bias is 0 if all priorities are positive, else |smallest| + 0.01."""
    if not prior.size:
        return prior
    if bias is None:
        bias = 0.0 if prior.min() > 0 else abs(float(prior.min())) + BIAS
    above = np.maximum(prior + bias, 0.0)
    return np.asarray(above / above.max()) if above.max() > 0 else np.ones_like(above)


def nodes_alike(view: View, relative: FloatArray | None) -> tuple[IntArray, IntArray]:
    """n  the kind of each node, by type and speed bin; and all nodes, the fastest first."""
    node_type = view.cluster.node_type
    if relative is None or not len(relative):
        return node_type, np.arange(len(node_type))
    speed = np.exp(np.log(relative).mean(axis=0))  # n
    for width in SPEED_BINS:
        bins = np.floor(np.log(speed) / np.log1p(width)).astype(np.int64)
        bins -= bins.min()
        kind = node_type * (int(bins.max()) + 1) + bins
        if len(np.unique(kind)) * min(view.jobs, int(view.capacity.sum())) <= MOST_CELLS:
            break
    return kind, np.argsort(-speed, kind="stable")


def free_for_planning(view: View, pinned: BoolArray) -> IntArray:
    """n  idle GPUs after every job that may move has released its own."""
    free = free_after(view.node_free, given_back=(spot for j, spot in view.spots.items() if not pinned[j]))
    return np.where(view.node_up, free, 0)
