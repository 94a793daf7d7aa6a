"""Rates of configurations (type, GPUs, nodes), looked up once for all jobs of one kind."""

from __future__ import annotations

from functools import partial

import numpy as np

from fairlead.model.allocation import Spot
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.view import View
from fairlead.rates.spot import spot_rate


class Kinds:
    """The kinds of a view's jobs: jobs of one kind have the same model, allowed widths, usable types and
    measured group, so the same rates.

    Departs (from the interface): a type on which the reference width does not run counts as not allowed, because the
    view does not distinguish the two.
    """

    def __init__(self, view: View) -> None:
        bits = (view.rate > 0) @ (1 << np.arange(len(view.capacity), dtype=np.int64))
        table = np.column_stack((view.model, view.width_set, bits, view.measured_group))
        _, first, of = np.unique(table, axis=0, return_index=True, return_inverse=True)
        self.of: IntArray = of.reshape(-1).astype(np.int64)  # j
        self.first: list[int] = first.tolist()  # k  a job of each kind
        self.widths: list[tuple[int, ...]] = [view.width_sets[view.width_set[j]] for j in self.first]  # k
        self.types: list[list[int]] = [np.flatnonzero(view.rate[j] > 0).tolist() for j in self.first]  # k
        self._model = list(zip(view.model[first].tolist(), view.measured_group[first].tolist(), strict=True))
        self._view = view
        self._rates: dict[tuple[tuple[int, int], int, int, int], float] = {}

    def __len__(self) -> int:
        return len(self.first)

    def rate(self, kind: int, type_: int, gpus: int, nodes: int) -> float:
        """Samples/s; 0 if the job does not run in this configuration."""
        key = (self._model[kind], type_, gpus, nodes)
        rate = self._rates.get(key)
        if rate is None:
            rate = self._rates[key] = self._view.rate_at(self.first[kind], type_, gpus, nodes)
        return rate

    def rate_on(self, kind: int, spot: Spot) -> float:
        return spot_rate(partial(self.rate, kind), spot, self._view.cluster.type_of)

    def sensitivity(self) -> FloatArray:
        """k  cost of spreading: rate on one GPU / rate per GPU on two GPUs of two nodes, mean over usable types (Hops).

        Infinite if the job does not run spread over nodes at all.
        """
        return np.array([self._sensitivity(kind) for kind in range(len(self))])

    def _sensitivity(self, kind: int) -> float:
        ratios = []
        for t in self.types[kind]:
            one, two = self.rate(kind, t, 1, 1), self.rate(kind, t, 2, 2) / 2
            ratios.append(one / two if two > 0 else np.inf)
        return float(np.mean(ratios)) if ratios else np.inf
