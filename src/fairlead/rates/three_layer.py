"""Rates learnt from observed jobs: on the same node, on the same type, or else the profile's (Hops, SoCC 2024)."""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from statistics import median
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from fairlead.model.allocation import Spot
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.cluster import Cluster
from fairlead.rates.estimator import Estimator, TableEstimator
from fairlead.rates.factors import RateFactors, RateSource
from fairlead.rates.profile import Profile
from fairlead.rates.spot import spot_rate
from fairlead.rates.unmeasured import WithUnmeasured


class Sensing(StrEnum):
    """What is learnt while jobs run. Each value includes the ones before it."""

    TABLE = "table"  # nothing
    TYPES = "types"  # this job on this type
    SERVERS = "servers"  # this job on this node: the paper's three layers
    THREE_LAYER = "three-layer"  # and how fast a node is for all jobs


class LearntLayer(StrEnum):
    """The layer that provides the rate of a job on a node."""

    JOB_ON_NODE = "this job on this node"
    NODE = "this node for other jobs"
    JOB_ON_TYPE = "this job on this type"
    PROFILE = "profile"


@runtime_checkable
class Learns(Protocol):
    """An estimator that learns from the observed rates of jobs. What it has learnt is part of the folded state."""

    def observe(self, job: int, model: str, spot: Spot, rate: float) -> None: ...

    def relative(self, jobs: IntArray) -> FloatArray: ...

    def spread(self, jobs: IntArray) -> FloatArray: ...

    def predict(self, job: int, model: str, spot: Spot) -> float: ...

    def factors(self, job: int, model: str, gpus: int) -> RateFactors:
        """What is known about the job's rates by type, from its own observations."""

    def learnt(self) -> Any:
        """Everything that it has learnt, as JSON values."""

    def learn_again(self, learnt: Any) -> None: ...

    def copy(self) -> Learns:
        """An independent copy that has learnt the same."""


class ThreeLayer:
    """Observed rates relative to the table's; the first layer that has observations counts:

    1    this job on this node: the mean of the observations
    1.5  this node, for any job: the median over jobs (with `Sensing.THREE_LAYER`; the paper's tables are by job only)
    2    this job on this type: the mean
    3    the profile: a row, or the iteration-time formula

    On several nodes the slowest sets the pace, and it cannot be observed which node that was. Observations on several
    nodes are therefore kept separately: as the ratio of the job's rate to that of its slowest node, as estimated now,
    when the job is spread over nodes of this type (or of other types, if there is no observation on this one). If a
    spot mixes types, the observation counts for each of them.

    Departs: histories are ratios to the profile, combined over all numbers of GPUs, and of nodes above one; the paper
    keeps a table for each number.
    """

    def __init__(self, table: Estimator, cluster: Cluster, sensing: Sensing = Sensing.THREE_LAYER) -> None:
        self._table = table
        self._cluster = cluster
        self._sensing = sensing
        self._node_type: list[int] = cluster.node_type.tolist()
        self._nodes_of = [np.flatnonzero(cluster.node_type == t) for t in range(len(cluster.types))]
        self._on_node: dict[int, dict[int, _Mean]] = {}  # job -> node
        self._on_type: dict[int, dict[int, _Mean]] = {}  # job -> type
        self._of_node: dict[int, dict[int, _Mean]] = {}  # node -> job
        self._factor: dict[int, float] = {}  # node -> median over jobs
        self._spread: dict[int, dict[Spot, tuple[str, _Mean]]] = {}  # job -> spot of several nodes -> model, ratio

    def best(self, model: str, gpus: int) -> FloatArray:
        return self._table.best(model, gpus)

    def at(self, model: str, type_: int, gpus: int, nodes: int) -> float:
        return self._table.at(model, type_, gpus, nodes)

    def type_speed(self) -> FloatArray:
        return self._table.type_speed()

    def sources(self, model: str, gpus: int) -> tuple[RateSource, ...]:
        return self._table.sources(model, gpus)

    def samples_per_step(self, model: str, gpus: int) -> float:
        return self._table.samples_per_step(model, gpus)

    def restart_s(self, model: str) -> float:
        return self._table.restart_s(model)

    def for_cluster(self, cluster: Cluster) -> ThreeLayer:
        """The same learner for a changed cluster; it forgets nodes that came back with GPUs of another type."""
        again = ThreeLayer(self._table.for_cluster(cluster), cluster, self._sensing)
        again.learn_again(self.learnt())
        now = cluster.node_type.tolist()
        again._forget({node for node, type_ in enumerate(self._node_type) if now[node] != type_})
        return again

    def _forget(self, nodes: set[int]) -> None:
        for node in nodes:
            self._of_node.pop(node, None)
            self._factor.pop(node, None)
            for by_node in self._on_node.values():
                by_node.pop(node, None)
        for by_spot in self._spread.values():
            for spot in [spot for spot in by_spot if nodes & {node for node, _ in spot}]:
                del by_spot[spot]
        self._on_node = {job: by_node for job, by_node in self._on_node.items() if by_node}
        self._spread = {job: by_spot for job, by_spot in self._spread.items() if by_spot}

    def observe(self, job: int, model: str, spot: Spot, rate: float) -> None:
        """Learn that the job ran at `rate` samples per second on this spot."""
        predicted = self._predicted(model, spot, np.ones(len(self._node_type)))
        if predicted <= 0 or rate <= 0:
            return
        ratio = rate / predicted
        if len(spot) > 1:
            by_spot = self._spread.setdefault(job, {})
            _, mean = by_spot.get(spot, (model, _NOTHING))
            by_spot[spot] = (model, mean.with_one(ratio))
            return
        node = spot[0][0]
        _add(self._on_type.setdefault(job, {}), self._node_type[node], ratio)
        if self._sensing is not Sensing.TYPES:
            _add(self._on_node.setdefault(job, {}), node, ratio)
            _add(self._of_node.setdefault(node, {}), job, ratio)
            if self._sensing is Sensing.THREE_LAYER:
                self._factor[node] = median(mean.value for mean in self._of_node[node].values())

    def relative(self, jobs: IntArray) -> FloatArray:
        """j,n  expected rate on a node / the profile's rate."""
        ratio = np.ones((len(jobs), len(self._node_type)))
        known = np.array(sorted(self._factor), dtype=np.int64)
        factor = np.array([self._factor[node] for node in known.tolist()])
        type_of = self._cluster.node_type[known]
        for row, job in enumerate(jobs.tolist()):
            for t, mean in self._on_type.get(job, {}).items():
                ratio[row, self._nodes_of[t]] = mean.value
        if known.size:
            ratio[:, known] = factor
        for row, job in enumerate(jobs.tolist()):
            if known.size and job in self._on_node:
                ratio[row, known] *= self._own(job)[type_of]
            for node, mean in self._on_node.get(job, {}).items():
                ratio[row, node] = mean.value
        return ratio

    def _own(self, job: int) -> FloatArray:
        """t  how much faster this job is than other jobs on nodes of a type, each node relative to its factor."""
        count, total = np.zeros(len(self._nodes_of)), np.zeros(len(self._nodes_of))
        for node, mean in self._on_node[job].items():
            rounds, ratios = mean.parts
            count[self._node_type[node]] += rounds
            total[self._node_type[node]] += ratios / self._factor[node]
        return np.where(count > 0, total / np.maximum(count, 1.0), 1.0)

    def spread(self, jobs: IntArray) -> FloatArray:
        """j,t  expected rate over several nodes / the profile's rate at the speed of the slowest node, by `relative`."""
        ratio = np.ones((len(jobs), len(self._nodes_of)))
        rows = [row for row, job in enumerate(jobs.tolist()) if job in self._spread]
        relative = self.relative(jobs[rows])
        alike = np.ones(len(self._node_type))
        for row, speeds in zip(rows, relative, strict=True):
            count, total = np.zeros(ratio.shape[1]), np.zeros(ratio.shape[1])  # t
            for spot, (model, mean) in self._spread[int(jobs[row])].items():
                slowest = self._predicted(model, spot, speeds) / self._predicted(model, spot, alike)
                rounds, ratios = mean.parts
                for t in {self._node_type[node] for node, _ in spot}:
                    count[t] += rounds
                    total[t] += ratios / slowest
            ratio[row] = np.where(count > 0, total / np.maximum(count, 1), total.sum() / count.sum())
        return ratio

    def learnt(self) -> dict[str, Any]:
        tables = {"on_node": self._on_node, "on_type": self._on_type, "of_node": self._of_node}
        return {
            **{
                name: [[one, other, *mean.parts] for one, row in table.items() for other, mean in row.items()]
                for name, table in tables.items()
            },
            "factor": list(self._factor.items()),
            "spread": [
                [job, spot, model, *mean.parts]
                for job, by_spot in self._spread.items()
                for spot, (model, mean) in by_spot.items()
            ],
        }

    def learn_again(self, learnt: Any) -> None:
        for name, table in (("on_node", self._on_node), ("on_type", self._on_type), ("of_node", self._of_node)):
            table.clear()
            for one, other, count, total in learnt[name]:
                table.setdefault(one, {})[other] = _Mean(count, total)
        self._factor = dict(learnt["factor"])
        self._spread.clear()
        for job, spot, model, count, total in learnt["spread"]:
            nodes = tuple((node, gpus) for node, gpus in spot)
            self._spread.setdefault(job, {})[nodes] = (model, _Mean(count, total))

    def copy(self) -> ThreeLayer:
        other = ThreeLayer(self._table, self._cluster, self._sensing)
        other._on_node, other._on_type, other._of_node = map(_copied, (self._on_node, self._on_type, self._of_node))
        other._factor = dict(self._factor)
        other._spread = {job: dict(by_spot) for job, by_spot in self._spread.items()}
        return other

    def predict(self, job: int, model: str, spot: Spot) -> float:
        """Expected samples per second on this spot."""
        row = np.array([job])
        spread = self.spread(row)[0] if len(spot) > 1 else None
        return spot_rate(partial(self._table.at, model), spot, self._node_type, self.relative(row)[0], spread)

    def factors(self, job: int, model: str, gpus: int) -> RateFactors:
        """The mean of the job's observations on nodes of a type; each observation halves the remaining doubt."""
        count, total = np.zeros(len(self._nodes_of)), np.zeros(len(self._nodes_of))
        for t, mean in self._on_type.get(job, {}).items():
            count[t], total[t] = mean.parts
        for spot, (_, mean) in self._spread.get(job, {}).items():
            types = {self._node_type[node] for node, _ in spot}
            if len(types) == 1:
                rounds, ratios = mean.parts
                count[min(types)] += rounds
                total[min(types)] += ratios
        seen = count > 0
        table = self._table.sources(model, gpus)
        return RateFactors(
            factor=np.where(seen, total / np.maximum(count, 1.0), 1.0),
            confidence=1.0 - 0.5**count,
            source=tuple(RateSource.MEASURED if seen[t] else source for t, source in enumerate(table)),
        )

    def layer(self, job: int, node: int) -> LearntLayer:
        """The layer that provides the rate of the job on this node alone."""
        if node in self._on_node.get(job, {}):
            return LearntLayer.JOB_ON_NODE
        if node in self._factor:
            return LearntLayer.NODE
        return LearntLayer.JOB_ON_TYPE if self._node_type[node] in self._on_type.get(job, {}) else LearntLayer.PROFILE

    def factor_of(self, node: int) -> float | None:
        return self._factor.get(node)

    def jobs_seen_on(self, node: int) -> int:
        return len(self._of_node.get(node, {}))

    def _predicted(self, model: str, spot: Spot, relative: FloatArray) -> float:
        """The table's rate if every node (n) were `relative` times as fast as its type."""
        return spot_rate(partial(self._table.at, model), spot, self._node_type, relative)


class _Mean(NamedTuple):
    """An immutable running mean, which copies of a table may share."""

    observed: int = 0
    total: float = 0.0

    def with_one(self, value: float) -> _Mean:
        return _Mean(self.observed + 1, self.total + value)

    @property
    def parts(self) -> tuple[int, float]:
        return self.observed, self.total

    @property
    def value(self) -> float:
        return self.total / self.observed


_NOTHING = _Mean()


def _add(row: dict[int, _Mean], key: int, ratio: float) -> None:
    row[key] = row.get(key, _NOTHING).with_one(ratio)


def _copied(table: dict[int, dict[int, _Mean]]) -> dict[int, dict[int, _Mean]]:
    return {one: dict(row) for one, row in table.items()}


def build_estimator(
    profile: Profile,
    cluster: Cluster,
    restart_s: float | None,
    sensing: Sensing = Sensing.TABLE,
    *,
    unmeasured: bool = False,
) -> Estimator:
    """The estimator for a sensing mode. `unmeasured` accepts models that are not in the profile, for live clusters."""
    known = TableEstimator(profile, cluster, restart_s=restart_s)
    table = WithUnmeasured(known) if unmeasured else known
    return table if sensing is Sensing.TABLE else ThreeLayer(table, cluster, sensing)
