"""What jobs would do where, drawn up when they arrive and again when the cluster changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fairlead.model.arrays import FloatArray
from fairlead.model.lifecycle import ENDED
from fairlead.rates.estimator import allowed_rates, mixable_types
from fairlead.rates.three_layer import Learns

if TYPE_CHECKING:
    from fairlead.rounds.state import State


def draw_up_rates(state: State, j: int) -> None:
    """What the job would do where, by the cluster as it is."""
    state.best_rate[j] = allowed_rates(state.specs[j], state.cluster, state.estimator)
    label_rates(state, j)


def label_rates(state: State, j: int) -> None:
    spec, rates = state.specs[j], state.best_rate[j]
    mixable = mixable_types(spec, state.cluster, state.estimator)
    state.alike[j] = state.labels.alike(spec, rates)
    state.mixable_row[j] = state.labels.mixable(mixable)
    state.some_run_nowhere |= not rates.any() and not mixable.any()


def draw_up_again(state: State) -> None:
    """Nodes joined or left: what depends on them is drawn up again. Jobs that have ended keep the rates they had."""
    types = len(state.cluster.types)
    state.estimator = state.estimator.for_cluster(state.cluster)
    state.learner = state.estimator if isinstance(state.estimator, Learns) else None
    state.type_speed = state.estimator.type_speed()
    state.best_rate = _widened(state.best_rate, types)
    state.served = {j: _widened(row, types) for j, row in state.served.items()}
    state.labels.forget_cluster()
    state.queue.fixed = {}
    state.some_run_nowhere = False
    for j in range(state.jobs):
        if state.phase[j] in ENDED:
            label_rates(state, j)
        else:
            draw_up_rates(state, j)
    state.draw_up_quotas()


def _widened(rows: FloatArray, types: int) -> FloatArray:
    """With zeros for types that are new, along the last axis."""
    new = types - rows.shape[-1]
    return np.pad(rows, [(0, 0)] * (rows.ndim - 1) + [(0, new)]) if new else rows
