"""Rates of models that have not been measured: a live cluster accepts jobs whose speeds are in no table."""

from __future__ import annotations

import numpy as np

from fairlead.model.arrays import BoolArray, FloatArray
from fairlead.model.cluster import Cluster
from fairlead.rates.estimator import TableEstimator
from fairlead.rates.factors import RateSource


class WithUnmeasured:
    """The rates of the table for the models that it knows, and assumed rates for all others.

    Another model runs everywhere: at one sample per second and GPU on the fastest type, and on other types in proportion
    to their speed over all models. A step at its reference width is one sample per GPU. With `all_new` no model has been
    measured: of the table's models it is only known where they run, and their batch.
    """

    def __init__(self, table: TableEstimator, *, all_new: bool = False) -> None:
        self._table = table
        self._all_new = all_new
        self._models = frozenset(table.profile.models)
        self._capacity = table.cluster.capacity
        speed = table.type_speed()
        known = speed[speed > 0]
        # A type without any measurement is assumed to be as slow as the slowest, so that jobs may still run there.
        self._speed = np.where(speed > 0, speed, known.min() if known.size else 1.0)  # t
        self._measured = frozenset[str]() if all_new else self._models

    def best(self, model: str, gpus: int) -> FloatArray:
        if model in self._measured:
            return self._table.best(model, gpus)
        return np.asarray(np.where((gpus <= self._capacity) & self._fits(model), gpus * self._speed, 0.0))

    def at(self, model: str, type_: int, gpus: int, nodes: int) -> float:
        if model in self._measured:
            return self._table.at(model, type_, gpus, nodes)
        return gpus * float(self._speed[type_]) if self._fits(model)[type_] else 0.0

    def _fits(self, model: str) -> BoolArray:
        """t  whether the model runs on a GPU of the type, as far as is known."""
        if model not in self._models:
            return np.ones(len(self._capacity), dtype=np.bool_)
        return np.array([self._table.at(model, t, 1, 1) > 0 for t in range(len(self._capacity))])

    def type_speed(self) -> FloatArray:
        return self._table.type_speed()

    def sources(self, model: str, gpus: int) -> tuple[RateSource, ...]:
        if model in self._measured:
            return self._table.sources(model, gpus)
        return (RateSource.ASSUMED,) * len(self._capacity)

    def knows(self, model: str) -> bool:
        return model in self._measured

    def samples_per_step(self, model: str, gpus: int) -> float:
        return self._table.samples_per_step(model, gpus) if model in self._models else float(gpus)

    def restart_s(self, model: str) -> float:
        return self._table.restart_s(model)

    def for_cluster(self, cluster: Cluster) -> WithUnmeasured:
        return WithUnmeasured(self._table.for_cluster(cluster), all_new=self._all_new)
