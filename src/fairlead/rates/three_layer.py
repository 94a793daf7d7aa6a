"""Rates learnt from what jobs did: on this very node, on this type, else by the table (Hops, SoCC 2024)."""

from __future__ import annotations

from enum import StrEnum
from statistics import median
from typing import Any, Protocol, runtime_checkable

import numpy as np

from fairlead.model.allocation import Spot
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.cluster import Cluster
from fairlead.rates.estimator import Estimator, TableEstimator
from fairlead.rates.profile import Profile
from fairlead.rates.relaxed import mixed_rate
from fairlead.rates.unmeasured import WithUnmeasured


class Sensing(StrEnum):
    """What is learnt while jobs run. Each also does what those before it do."""

    TABLE = "table"  # nothing
    TYPES = "types"  # this job on this type
    SERVERS = "servers"  # this job on this node: the paper's three layers
    THREE_LAYER = "three-layer"  # and how fast a node is for all jobs


@runtime_checkable
class Learns(Protocol):
    """An estimator that wants to know how fast jobs turned out to be. What it learns is part of the folded state."""

    def observe(self, job: int, model: str, spot: Spot, rate: float) -> None: ...

    def relative(self, jobs: IntArray) -> FloatArray: ...

    def learnt(self) -> Any:
        """All of it, as JSON can hold it."""

    def learn_again(self, learnt: Any) -> None: ...


class ThreeLayer:
    """Observed rates over the table's, read from the top:

    1    this job on this node: the mean of what was observed
    1.5  this node, whatever the job: the median over jobs (with `Sensing.THREE_LAYER`; the paper keys by job only)
    2    this job on this type: the mean
    3    the table, or the formula that its rows were made by

    On several nodes the slowest sets the pace and nobody sees which it was, so that such rounds tell of the type alone,
    and of each of its types alike where a job mixes them.
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

    def best(self, model: str, gpus: int) -> FloatArray:
        return self._table.best(model, gpus)

    def at(self, model: str, type_: int, gpus: int, nodes: int) -> float:
        return self._table.at(model, type_, gpus, nodes)

    def type_speed(self) -> FloatArray:
        return self._table.type_speed()

    def samples_per_step(self, model: str, gpus: int) -> float:
        return self._table.samples_per_step(model, gpus)

    def restart_s(self, model: str) -> float:
        return self._table.restart_s(model)

    def observe(self, job: int, model: str, spot: Spot, rate: float) -> None:
        """The job made `rate` samples a second there."""
        predicted = self._predicted(model, spot, np.ones(len(self._node_type)))
        if predicted <= 0 or rate <= 0:
            return
        ratio = rate / predicted
        for t in {self._node_type[node] for node, _ in spot}:
            self._on_type.setdefault(job, {}).setdefault(t, _Mean()).add(ratio)
        if len(spot) == 1 and self._sensing is not Sensing.TYPES:
            node = spot[0][0]
            self._on_node.setdefault(job, {}).setdefault(node, _Mean()).add(ratio)
            self._of_node.setdefault(node, {}).setdefault(job, _Mean()).add(ratio)
            if self._sensing is Sensing.THREE_LAYER:
                self._factor[node] = median(seen.value for seen in self._of_node[node].values())

    def relative(self, jobs: IntArray) -> FloatArray:
        """j,n  expected rate on a node / the table's."""
        found = np.ones((len(jobs), len(self._node_type)))
        known = np.array(sorted(self._factor), dtype=np.int64)
        factor = np.array([self._factor[node] for node in known.tolist()])
        for row, job in enumerate(jobs.tolist()):
            for t, seen in self._on_type.get(job, {}).items():
                found[row, self._nodes_of[t]] = seen.value
        if known.size:
            found[:, known] = factor
        for row, job in enumerate(jobs.tolist()):
            for node, seen in self._on_node.get(job, {}).items():
                found[row, node] = seen.value
        return found

    def learnt(self) -> dict[str, Any]:
        tables = {"on_node": self._on_node, "on_type": self._on_type, "of_node": self._of_node}
        return {
            **{
                name: [[one, other, *seen.parts] for one, row in table.items() for other, seen in row.items()]
                for name, table in tables.items()
            },
            "factor": list(self._factor.items()),
        }

    def learn_again(self, learnt: Any) -> None:
        for name, table in (("on_node", self._on_node), ("on_type", self._on_type), ("of_node", self._of_node)):
            table.clear()
            for one, other, count, total in learnt[name]:
                table.setdefault(one, {})[other] = _Mean(count, total)
        self._factor = dict(learnt["factor"])

    def predict(self, job: int, model: str, spot: Spot) -> float:
        """Samples a second on this spot."""
        return self._predicted(model, spot, self.relative(np.array([job]))[0])

    def _predicted(self, model: str, spot: Spot, relative: FloatArray) -> float:
        """The table's rate with every node (n) so many times as fast; 0 on no node at all."""
        gpus = sum(count for _, count in spot)
        at = [self._table.at(model, self._node_type[node], gpus, len(spot)) for node, _ in spot]
        if len({self._node_type[node] for node, _ in spot}) > 1:
            pairs = zip(at, spot, strict=True)
            return mixed_rate([(rate * float(relative[node]), count) for rate, (node, count) in pairs])
        return at[0] * min(float(relative[node]) for node, _ in spot) if spot else 0.0


class _Mean:
    __slots__ = ("_count", "_total")

    def __init__(self, count: int = 0, total: float = 0.0) -> None:
        self._count, self._total = count, total

    def add(self, value: float) -> None:
        self._count += 1
        self._total += value

    @property
    def parts(self) -> tuple[int, float]:
        return self._count, self._total

    @property
    def value(self) -> float:
        return self._total / self._count


def build_estimator(
    profile: Profile,
    cluster: Cluster,
    restart_s: float | None,
    sensing: Sensing = Sensing.TABLE,
    *,
    unmeasured: bool = False,
) -> Estimator:
    """`unmeasured` takes models that the profile does not know, as a live cluster must."""
    known = TableEstimator(profile, cluster, restart_s=restart_s)
    table = WithUnmeasured(known) if unmeasured else known
    return table if sensing is Sensing.TABLE else ThreeLayer(table, cluster, sensing)
