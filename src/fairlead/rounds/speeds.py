"""The rates of jobs by type: from the table, when they arrive and when the cluster changes, and as measured since."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.jobs import JobSpec
from fairlead.model.lifecycle import ENDED, Phase
from fairlead.model.outcomes import Reason
from fairlead.rates.estimator import allowed_rates, mixable_types, runs_somewhere
from fairlead.rates.factors import RateSource
from fairlead.rates.spot import GangRate, spot_rate
from fairlead.rates.three_layer import Learns
from fairlead.rounds.labels import TypesOfKind
from fairlead.rounds.measured import Group
from fairlead.rounds.waiting import set_reason

if TYPE_CHECKING:
    from fairlead.rounds.state import State


def draw_up_rates(state: State, j: int) -> None:
    """Compute the rates of the job on the current cluster."""
    state.best_rate[j] = _types_of(state, state.specs[j]).rates
    if state.trials.unfit:
        state.best_rate[j, list(state.trials.unfit.get(group_of(state, j), ()))] = 0.0
    label_rates(state, j)


def label_rates(state: State, j: int) -> None:
    spec = state.specs[j]
    types = _types_of(state, spec)
    state.alike[j] = state.labels.alike(spec, state.best_rate[j])
    state.mixable_row[j] = types.mixable
    if int(state.phase[j]) in ENDED:  # comparing one number of an array with an enum is slow
        return
    if not types.runs_somewhere:
        state.run_nowhere.add(j)
        note_never_fits(state, np.array([j]))
        return
    state.run_nowhere.discard(j)
    if int(state.reason[j]) == Reason.NEVER_FITS:
        set_reason(state, np.array([j]), Reason.UNDECIDED, state.now_s)


def _types_of(state: State, spec: JobSpec) -> TypesOfKind:
    kinds, kind = state.labels.types_of_kind, (spec.model, spec.gpus, spec.types, spec.relaxed, spec.nodes)
    if kind not in kinds:
        rates = allowed_rates(spec, state.cluster, state.estimator)
        mixable = mixable_types(spec, state.cluster, state.estimator)
        kinds[kind] = TypesOfKind(rates, state.labels.mixable(mixable), runs_somewhere(rates, mixable))
    return kinds[kind]


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
    state.measured.widen(types)
    state.served = {j: _widened(row, types) for j, row in state.served.items()}
    state.labels.forget_cluster()
    state.queue.fixed = {}
    for j in range(state.jobs):
        if int(state.phase[j]) in ENDED:
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


def report_measured(state: State, learner: Learns, j: int) -> None:
    """Pass on to the job's group what its reports say about its rates."""
    spec, before = state.specs[j], state.measured.version
    factors = learner.factors(j, spec.model, spec.gpus)
    scaled = state.estimator.knows(spec.model)
    state.measured.report(group_of(state, j), j, factors.factor, factors.confidence, scaled=scaled)
    if state.measured.version != before:
        _look_again(state)


def end_measured(state: State, jobs: IntArray) -> None:
    """Jobs are over: what was measured of them stays with their groups, and their own reports are forgotten."""
    if state.learner is not None:
        for j in jobs.tolist():
            state.measured.end(group_of(state, j), j)
            state.learner.end(j)
        _look_again(state)


def next_round_measured(state: State) -> None:
    """A round was decided: measured rates may move another step until the next one."""
    if state.measured.moves:
        state.measured.next_round()
        _look_again(state)


def trust_measured(state: State, group: Group, type_: int) -> None:
    """A model was measured on a type on purpose: its rates take effect at once."""
    before = state.measured.version
    state.measured.trust(group, type_)
    if state.measured.version != before:
        _look_again(state)


def group_of(state: State, j: int) -> Group:
    return int(state.tenant[j]), int(state.model[j])


def measured_factors(state: State, jobs: IntArray) -> tuple[FloatArray, IntArray] | None:
    """j,t  measured rate / the table's rate, and j, the same number for the same factors; None: all are 1."""
    return state.measured.of_pairs(state.tenant.take(jobs), state.model.take(jobs))


def expected_factors(state: State, jobs: IntArray) -> FloatArray | None:
    """j,t  What the estimator expects, relative to the table, of jobs that it has not observed on a type itself."""
    measured = measured_factors(state, jobs)
    return None if measured is None else measured[0]


def measured_group(state: State, jobs: IntArray, time_s: float) -> IntArray:
    """j  The same number for the same measured factors; 0: the table's rates."""
    measured = measured_factors(state, jobs)
    return np.zeros(len(jobs), dtype=np.int64) if measured is None else measured[1]


def measured_rates(state: State, jobs: IntArray) -> FloatArray:
    """j,t  Samples/s at the reference width on the fewest nodes: the table's rates, corrected by what was measured."""
    table, measured = state.best_rate.take(jobs, axis=0), measured_factors(state, jobs)
    return table if measured is None else table * measured[0]


def rate_sources(state: State, j: int) -> tuple[RateSource, ...]:
    """t  where the rates that policies see for this job come from."""
    spec, group = state.specs[j], group_of(state, j)
    table = state.estimator.sources(spec.model, spec.gpus)
    if not state.measured.has(group):
        return table
    measured = state.measured.confidence(group) > 0
    return tuple(RateSource.MEASURED if seen else source for seen, source in zip(measured, table, strict=True))


def relative_on_nodes(state: State, jobs: IntArray, time_s: float) -> FloatArray | None:
    """j,n  Rate on a node / the measured rate of its type; None if the estimator does not learn."""
    relative, measured = state.relative_to_table(jobs, time_s), measured_factors(state, jobs)
    return relative if relative is None or measured is None else relative / measured[0][:, state.cluster.node_type]


def gang_rate(state: State, j: int) -> GangRate:
    """(type, GPUs, nodes) -> samples/s of the job there: the table's rate, corrected by what was measured."""
    table = partial(state.estimator.at, state.specs[j].model)
    factor = state.measured.factor(group_of(state, j)) if state.measured.version else None
    if factor is None:
        return table

    def rate(type_: int, gpus: int, nodes: int) -> float:
        return table(type_, gpus, nodes) * float(factor[type_])

    return rate


def forget_spread(state: State, j: int) -> None:
    if state.spread_rate.pop(j, None) is not None:
        _look_again(state)


def _look_again(state: State) -> None:
    state.queue.forget("rate", "ideal_rate", "alike", "measured_group")


def rate_at_their_spots(state: State, jobs: IntArray, time_s: float) -> FloatArray:
    """j,t  Samples/s at the reference width: on the fewest nodes, or on its spot where a job is spread."""
    rate = state.best_rate.take(jobs, axis=0)
    if state.spread_rate:
        spread, rows = _spread(state, jobs)
        rate[rows, state.held_type[spread]] = [state.spread_rate[j] for j in spread.tolist()]
    measured = measured_factors(state, jobs)
    return rate if measured is None else rate * measured[0]


def alike_at_their_spots(state: State, jobs: IntArray, time_s: float) -> IntArray:
    """j  The same number for equal rates, width and weight."""
    alike, group = state.alike.take(jobs), measured_group(state, jobs, time_s)
    if group.any():
        _, alike = np.unique(np.column_stack((alike, group)), axis=0, return_inverse=True)
        alike = alike.reshape(-1)
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
    rows = np.searchsorted(jobs, spread)
    among = jobs.take(rows, mode="clip") == spread
    return spread[among], rows[among]


def _widened(rows: FloatArray, types: int) -> FloatArray:
    """The rows with zeros appended for new types, along the last axis."""
    new = types - rows.shape[-1]
    return np.pad(rows, [(0, 0)] * (rows.ndim - 1) + [(0, new)]) if new else rows
