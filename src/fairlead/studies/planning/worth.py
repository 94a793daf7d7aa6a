"""What one more GPU of a type is worth: how much more of the work that is there could run at once.

At one instant, y_gt GPUs of type t work for the group g of jobs with the same speeds, which asks for n_g GPUs:

    V(m) = max sum_gt w_gt y_gt   s.t.  sum_t y_gt <= n_g,   sum_g y_gt <= m_t,   y >= 0

where w_gt is the speed of the group on t relative to its fastest type, and m_t the GPUs of type t. V counts GPUs at
full speed. The worth of a GPU of type t is V(m + e_t) - V(m): the shadow price of m_t, for a whole GPU, so that it also
exists for a type of which the cluster has none. Gangs are not whole here, and no job waits for its turn; simulated
futures are the other answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fairlead.model.arrays import FloatArray
from fairlead.model.cluster import Cluster
from fairlead.model.jobs import JobSpec
from fairlead.numerics.solve import LinearProgram, Optimal, solve
from fairlead.rates.estimator import Estimator, allowed_rates
from fairlead.rounds.state import State

MOMENTS = 24  # of a simulated future at which the worth is computed


def largest_value(speed: FloatArray, asked: FloatArray, capacity: FloatArray) -> float:
    """V from w (g,t), n (g) and m (t)."""
    groups, types = speed.shape
    g, t = np.nonzero(speed > 0)
    if not len(g):
        return 0.0
    outcome = solve(
        LinearProgram(
            cost=-speed[g, t],
            low=np.zeros(len(g)),
            high=np.full(len(g), np.inf),
            row_low=np.full(groups + types, -np.inf),
            row_high=np.concatenate((asked, capacity)),
            start=np.arange(0, 2 * len(g) + 1, 2),
            index=np.column_stack((g, groups + t)).ravel(),
            value=np.ones(2 * len(g)),
        )
    )
    assert isinstance(outcome, Optimal), "all rows allow 0, and the value is bounded by the GPUs asked for"
    return -outcome.objective


def worth_of_gpus(speed: FloatArray, asked: FloatArray, capacity: FloatArray) -> FloatArray:
    """t  what one more GPU of each type adds to V."""
    base = largest_value(speed, asked, capacity)
    return np.array([largest_value(speed, asked, capacity + one) - base for one in np.eye(len(capacity))])


@dataclass
class WorthMeter:
    """Computes the worth of GPUs at evenly spaced times of a simulated future; call it with the state after decisions.

    `reference` has all types, those of the cluster and those on offer.
    """

    reference: Cluster
    estimator: Estimator  # for `reference`
    from_s: float
    until_s: float
    rows: list[FloatArray] = field(default_factory=list)  # t  one for each time
    _speeds: dict[tuple[str, int, tuple[str, ...], int | None], FloatArray] = field(default_factory=dict)

    def __call__(self, state: State) -> None:
        passed = len(self.rows) / MOMENTS
        if len(self.rows) < MOMENTS and state.now_s >= self.from_s + passed * (self.until_s - self.from_s):
            self.rows.append(self._worth(state))

    def by_type(self) -> Mapping[str, float]:
        if not self.rows:
            return {}
        return dict(zip(self.reference.types, np.mean(self.rows, axis=0).tolist(), strict=True))

    def _worth(self, state: State) -> FloatArray:
        capacity = np.zeros(len(self.reference.types))
        for type_, gpus in zip(state.cluster.types, state.cluster.capacity.tolist(), strict=True):
            capacity[self.reference.types.index(type_)] = gpus
        asked: dict[bytes, float] = {}
        rows: dict[bytes, FloatArray] = {}
        for j in state.active_jobs.tolist():
            speed = self._speed(state.specs[j])
            rows[speed.tobytes()] = speed
            asked[speed.tobytes()] = asked.get(speed.tobytes(), 0.0) + state.specs[j].gpus
        if not rows:
            return capacity * 0.0
        return worth_of_gpus(np.array(list(rows.values())), np.array(list(asked.values())), capacity)

    def _speed(self, spec: JobSpec) -> FloatArray:
        key = (spec.model, spec.gpus, spec.types, spec.nodes)
        if key not in self._speeds:
            rates = allowed_rates(spec, self.reference, self.estimator)
            self._speeds[key] = rates / max(float(rates.max(initial=0.0)), 1e-300)
        return self._speeds[key]


def mean_worth(rows: Sequence[Mapping[str, float]]) -> dict[str, tuple[float, float, float]]:
    """By type: mean, smallest and largest over simulated futures."""
    values = {type_: [row[type_] for row in rows] for type_ in (rows[0] if rows else ())}
    return {type_: (float(np.mean(own)), min(own), max(own)) for type_, own in values.items()}
