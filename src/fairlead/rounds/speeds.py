"""The rates of jobs by type, computed when they arrive and again when the cluster changes."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.lifecycle import ENDED, Phase
from fairlead.model.outcomes import Reason
from fairlead.rates.estimator import allowed_rates, mixable_types, runs_somewhere
from fairlead.rates.spot import spot_rate
from fairlead.rates.three_layer import Learns
from fairlead.rounds.waiting import set_reason

if TYPE_CHECKING:
    from fairlead.rounds.state import State


def draw_up_rates(state: State, j: int) -> None:
    """Compute the rates of the job on the current cluster."""
    state.best_rate[j] = allowed_rates(state.specs[j], state.cluster, state.estimator)
    label_rates(state, j)


def label_rates(state: State, j: int) -> None:
    spec, rates = state.specs[j], state.best_rate[j]
    mixable = mixable_types(spec, state.cluster, state.estimator)
    state.alike[j] = state.labels.alike(spec, rates)
    state.mixable_row[j] = state.labels.mixable(mixable)
    if state.phase[j] in ENDED:
        return
    if not runs_somewhere(rates, mixable):
        state.run_nowhere.add(j)
        note_never_fits(state, np.array([j]))
        return
    state.run_nowhere.discard(j)
    if state.reason[j] == Reason.NEVER_FITS:
        set_reason(state, np.array([j]), Reason.UNDECIDED, state.now_s)


def note_never_fits(state: State, jobs: IntArray) -> None:
    """Set the reason of those of these jobs that wait and run nowhere. No decision sets it: such jobs are hidden."""
    if not state.run_nowhere:
        return
    nowhere = np.array([j for j in jobs.tolist() if j in state.run_nowhere], dtype=np.int64)
    news = (state.phase[nowhere] == Phase.WAITING) & (state.reason[nowhere] != Reason.NEVER_FITS)
    if news.any():
        set_reason(state, nowhere[news], Reason.NEVER_FITS, state.now_s)


def draw_up_again(state: State) -> None:
    """Recompute what depends on nodes after some joined or left. Jobs that have ended keep their rates."""
    types = len(state.cluster.types)
    state.estimator = state.estimator.for_cluster(state.cluster)
    state.learner = state.estimator if isinstance(state.estimator, Learns) else None
    state.type_speed = state.estimator.type_speed()
    state.best_rate = _widened(state.best_rate, types)
    state.served = {j: _widened(row, types) for j, row in state.served.items()}
    state.labels.forget_cluster()
    state.queue.fixed = {}
    for j in range(state.jobs):
        if state.phase[j] in ENDED:
            label_rates(state, j)
        else:
            draw_up_rates(state, j)
    state.draw_up_quotas()
    state.spread_rate = {}
    note_spread(state, [j for j, spot in enumerate(state.spots) if len(spot) > 1])


def note_spread(state: State, jobs: Iterable[int]) -> None:
    """Record jobs that are slower on their spot than on the fewest nodes: policies see their actual speed."""
    for j in jobs:
        t, spot = int(state.held_type[j]), state.spots[j]
        if len(spot) > 1 and t >= 0 and state.held_gpus[j] == state.width[j]:
            rate = spot_rate(partial(state.estimator.at, state.specs[j].model), spot, state.cluster.type_of)
            if rate != state.best_rate[j, t]:
                state.spread_rate[j] = rate
                _look_again(state)


def forget_spread(state: State, j: int) -> None:
    if state.spread_rate.pop(j, None) is not None:
        _look_again(state)


def _look_again(state: State) -> None:
    for name in ("rate", "alike"):
        state.queue.fixed.pop(name, None)


def rate_at_their_spots(state: State, jobs: IntArray, time_s: float) -> FloatArray:
    """j,t  Samples/s at the reference width: on the fewest nodes, or on its spot where a job is spread."""
    rate = state.best_rate.take(jobs, axis=0)
    if state.spread_rate:
        spread, rows = _spread(state, jobs)
        rate[rows, state.held_type[spread]] = [state.spread_rate[j] for j in spread.tolist()]
    return rate


def alike_at_their_spots(state: State, jobs: IntArray, time_s: float) -> IntArray:
    """j  The same number for equal rates, width and weight."""
    alike = state.alike.take(jobs)
    if state.spread_rate:
        spread, rows = _spread(state, jobs)
        types, speeds = state.held_type[spread].tolist(), [state.spread_rate[j] for j in spread.tolist()]
        first, numbers = int(alike.max(initial=0)) + 1, dict[tuple[int, int, float], int]()
        kinds = zip(alike[rows].tolist(), types, speeds, strict=True)
        alike[rows] = [first + numbers.setdefault(kind, len(numbers)) for kind in kinds]
    return alike


def _spread(state: State, jobs: IntArray) -> tuple[IntArray, IntArray]:
    """The spread jobs among these, and their rows."""
    spread = np.array(sorted(state.spread_rate), dtype=np.int64)
    spread = spread[np.isin(spread, jobs)]
    return spread, np.searchsorted(jobs, spread)


def _widened(rows: FloatArray, types: int) -> FloatArray:
    """The rows with zeros appended for new types, along the last axis."""
    new = types - rows.shape[-1]
    return np.pad(rows, [(0, 0)] * (rows.ndim - 1) + [(0, new)]) if new else rows
