"""The estimator interface: a rate for every job and place that a policy may ask about."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from fairlead.model.arrays import BoolArray, FloatArray
from fairlead.model.cluster import Cluster
from fairlead.model.jobs import JobSpec
from fairlead.rates.factors import RateSource, source_in
from fairlead.rates.profile import Profile


class Estimator(Protocol):
    """Estimates rates in samples per second of the whole job; 0 where it cannot run."""

    def best(self, model: str, gpus: int) -> FloatArray:
        """t  rates by type, on the fewest nodes that hold `gpus`."""

    def at(self, model: str, type_: int, gpus: int, nodes: int) -> float: ...

    def type_speed(self) -> FloatArray:
        """t  speeds of types over all models: geometric mean of single-GPU rates, relative to the fastest type."""

    def sources(self, model: str, gpus: int) -> tuple[RateSource, ...]:
        """t  where the rates of `best` come from."""

    def knows(self, model: str) -> bool:
        """Whether its rates come from a profile; otherwise they are made up."""

    def samples_per_step(self, model: str, gpus: int) -> float: ...

    def restart_s(self, model: str) -> float: ...

    def for_cluster(self, cluster: Cluster) -> Estimator:
        """An estimator with the same knowledge, including what was learnt, for a cluster that has changed."""


def allowed_types(spec: JobSpec, cluster: Cluster) -> list[int]:
    """Positions of the types that the job's owner allows, by the name of the GPU or of the type."""
    pairs = enumerate(zip(cluster.gpu, cluster.types, strict=True))
    return [t for t, (gpu, label) in pairs if not spec.types or gpu in spec.types or label in spec.types]


def allowed_rates(spec: JobSpec, cluster: Cluster, estimator: Estimator) -> FloatArray:
    """t  samples/s at the reference width, 0 where the job may not or cannot run.

    That is on the fewest nodes, unless the number of nodes is fixed.
    """
    best = estimator.best(spec.model, spec.gpus)
    rates = best if spec.nodes is None else _rates_on_exactly(spec, spec.nodes, cluster, estimator)
    if not spec.types:
        return rates
    allowed = np.zeros_like(rates)
    types = allowed_types(spec, cluster)
    allowed[types] = rates[types]
    return allowed


def _rates_on_exactly(spec: JobSpec, nodes: int, cluster: Cluster, estimator: Estimator) -> FloatArray:
    """t  the rates of a job whose number of nodes is fixed, 0 where too few nodes are large enough."""
    large = np.bincount(
        cluster.node_type[cluster.node_gpus >= spec.gpus // nodes], minlength=len(cluster.types)
    )  # t  nodes
    return np.array(
        [estimator.at(spec.model, t, spec.gpus, nodes) if count >= nodes else 0.0 for t, count in enumerate(large)]
    )


def mixable_types(spec: JobSpec, cluster: Cluster, estimator: Estimator) -> BoolArray:
    """t  types whose GPUs may be part of a grant that mixes types: allowed, with enough memory, and measured.

    Such a grant is on several nodes, and a type may have fewer GPUs than the job needs in total. No type is mixable if
    all of them together have too few.
    """
    mixable = np.zeros(len(cluster.types), dtype=np.bool_)
    if spec.relaxed and spec.gpus > 1:
        for t in allowed_types(spec, cluster):
            mixable[t] = cluster.capacity[t] > 0 and estimator.at(spec.model, t, spec.gpus, 2) > 0
    return mixable & (mixable @ cluster.capacity >= spec.gpus)


def runs_somewhere(rates: FloatArray, mixable: BoolArray) -> bool:
    """Whether one type (`rates`, t) or a mix of types (`mixable`, t) can run a job, if the whole cluster is free."""
    return bool(rates.any() or mixable.any())


class TableEstimator:
    """Rates from a profile, without learning; results are cached."""

    def __init__(self, profile: Profile, cluster: Cluster, *, restart_s: float | None = None) -> None:
        self.profile = profile
        self.cluster = cluster
        self._restart_s = restart_s
        self._best: dict[tuple[str, int], FloatArray] = {}
        self._at: dict[tuple[str, int, int, int], float] = {}
        self._sources: dict[tuple[str, int], tuple[RateSource, ...]] = {}

    def best(self, model: str, gpus: int) -> FloatArray:
        row = self._best.get((model, gpus))
        if row is None:
            cluster = self.cluster
            row = np.zeros(len(cluster.types))
            for t in np.flatnonzero(gpus <= cluster.capacity).tolist():
                row[t] = self.at(model, t, gpus, cluster.fewest_nodes(t, gpus))
            row.flags.writeable = False
            self._best[model, gpus] = row
        return row

    def at(self, model: str, type_: int, gpus: int, nodes: int) -> float:
        key = (model, type_, gpus, nodes)
        rate = self._at.get(key)
        if rate is None:
            fits = self.profile.facts_of(model).memory_gib <= self.cluster.memory_gib[type_]
            rate = self.profile.samples_per_s(model, self.cluster.gpu[type_], gpus, nodes) if fits else 0.0
            self._at[key] = rate
        return rate

    def type_speed(self) -> FloatArray:
        rates = np.array([[self.at(m, t, 1, 1) for t in range(len(self.cluster.types))] for m in self.profile.models])
        return relative_speed(rates.reshape(-1, len(self.cluster.types)))

    def sources(self, model: str, gpus: int) -> tuple[RateSource, ...]:
        row = self._sources.get((model, gpus))
        if row is None:
            cluster = self.cluster
            nodes = [
                cluster.fewest_nodes(t, gpus) if gpus <= cluster.capacity[t] else 1 for t in range(len(cluster.gpu))
            ]
            row = tuple(source_in(self.profile, model, gpu, gpus, n) for gpu, n in zip(cluster.gpu, nodes, strict=True))
            self._sources[model, gpus] = row
        return row

    def knows(self, model: str) -> bool:
        return True  # an unknown model is an error

    def samples_per_step(self, model: str, gpus: int) -> float:
        return self.profile.samples_per_step(model, gpus)

    def restart_s(self, model: str) -> float:
        return self.profile.facts_of(model).restart_s if self._restart_s is None else self._restart_s

    def for_cluster(self, cluster: Cluster) -> TableEstimator:
        return TableEstimator(self.profile, cluster, restart_s=self._restart_s)


def relative_speed(rate: FloatArray) -> FloatArray:
    """t  from rates m,t: the speed of types over all models, each model relative to its own mean; the fastest type is 1.

    A model does not count for types on which it does not run; a type on which no model runs gets 0.
    """
    runs = rate > 0
    logs = np.log(np.where(runs, rate, 1.0))
    own = logs.sum(axis=1, keepdims=True) / np.maximum(runs.sum(axis=1, keepdims=True), 1)
    mean = np.where(runs, logs - own, 0.0).sum(axis=0) / np.maximum(runs.sum(axis=0), 1)
    speed = np.where(runs.any(axis=0), np.exp(mean), 0.0)
    return np.asarray(speed / max(float(speed.max(initial=0.0)), 1e-300))
