"""Goodput over configurations by type (Sia, SOSP 2023), as Hops' paper compares with it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fairlead.model.allocation import NO_GRANTS, Answer, Grants, Level, Spot
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.view import View
from fairlead.numerics.configurations import Choices, Groups, two_stage
from fairlead.numerics.spots import SpotChoices
from fairlead.placement.moves import held_by, joined, left_over
from fairlead.policies.policy import Knows, RoundPolicy
from fairlead.policies.ranges import Number
from fairlead.rates.age import latency_ratio, restart_factor
from fairlead.rates.configurations import Kinds


def sia(view: View, memory: None, *, power: float = -0.5, penalty: float = 1.1) -> tuple[Grants, None]:
    """The widths and types with the best power mean of normalised goodputs, in every round.

        min  sum_ic (r_ic G_ic)^p X_ic + lambda sum_i (1 - sum_c X_ic)     s.t.  sum_c X_ic <= 1,   GPUs of every type

    A configuration c is a type and an allowed width; G is its rate relative to the job's smallest rate; r is the restart
    factor of `restart_factor`, 1 if the job stays unchanged; `power` is p < 0, and `penalty` is lambda, the cost of
    leaving a job out. Nodes are chosen afterwards. If they do not suffice, the higher latency ratio goes first.

    Departs: goodput is the rate, because we cannot change batch sizes; the linear program is made whole by a program over
    what it leaves open, not by branching on all of it. A configuration that is worse than waiting is not offered.
    Jobs that have to stay (they have just started, or a round is in progress) keep what they hold and are not planned.
    """
    order = np.argsort(-latency_ratio(view), kind="stable")
    stay = NO_GRANTS
    if view.pinned is not None:
        stay, order = held_by(view, np.flatnonzero(view.pinned)), order[~view.pinned[order]]
    free = left_over(view, stay)  # t
    types = _types(free)
    table = _choices(view, np.sort(order), free, types, power, penalty)
    choices = Choices(*table, np.empty(0, dtype=np.int64), np.empty(0), ())
    by_job = np.argsort(choices.job, kind="stable")
    sorted_jobs = choices.job[by_job]

    def residual(open_jobs: list[int], placed: object, left: IntArray) -> SpotChoices:
        """The configurations of open jobs, with each type as one large node."""
        first, last = (np.searchsorted(sorted_jobs, open_jobs, side) for side in ("left", "right"))
        columns = [c for low, high in zip(first, last, strict=True) for c in by_job[low:high].tolist()]
        fitting = [c for c in columns if left[types.kind[choices.group[c]]] >= choices.gpus[c]]
        spots: list[Spot] = [((int(types.kind[choices.group[c]]), int(choices.gpus[c])),) for c in fitting]
        return SpotChoices(choices.job[fitting], choices.value[fitting], spots)

    plan = two_stage(choices, types, free, order.tolist(), residual)
    entries = [(j, *plan.spots[j][0]) for j in order.tolist() if j in plan.spots]
    grants = joined(stay, Grants(*np.array(entries, dtype=np.int64).reshape(-1, 3).T))
    return replace(grants, answer=Answer(holds_until_s=view.now_s, solver=plan.solver)), None


def _types(free: IntArray) -> Groups:
    """Every type with GPUs as a group of one large node, which has the number of the type."""
    some = np.flatnonzero(free > 0)
    of = np.full(len(free), -1, dtype=np.int64)
    of[some] = np.arange(len(some))
    return Groups(of, free[some], some, tuple((t,) for t in some.tolist()))


def _choices(
    view: View, jobs: IntArray, free: IntArray, types: Groups, power: float, penalty: float
) -> tuple[IntArray, FloatArray, IntArray, IntArray]:
    """Job, value, group and GPUs of every configuration that is better than waiting and that `free` (t) can hold."""
    kinds, moved = Kinds(view), restart_factor(view)
    none: IntArray = np.empty(0, dtype=np.int64)
    job, group, gpus, goodput = [none], [none], [none], [np.empty(0)]
    for kind in range(len(kinds)):
        table = _table(view, kinds, kind)
        smallest = min((rate for _, _, rate in table), default=1.0)
        table = [row for row in table if row[1] <= free[row[0]]]
        same = jobs[kinds.of[jobs] == kind]
        job.append(np.repeat(same, len(table)))
        group.append(np.tile(types.of[np.array([t for t, _, _ in table], dtype=np.int64)], len(same)))
        gpus.append(np.tile(np.array([width for _, width, _ in table], dtype=np.int64), len(same)))
        goodput.append(np.tile(np.array([rate / smallest for _, _, rate in table], dtype=np.float64), len(same)))
    i, g, width = np.concatenate(job), np.concatenate(group), np.concatenate(gpus)
    stays = (view.held_type[i] == types.kind[g]) & (view.held_gpus[i] == width)
    normalised = np.concatenate(goodput)  # c
    for c in np.flatnonzero(stays & (view.held_nodes[i] > 1)).tolist():
        # At least the smallest configuration: otherwise being spread would look worse than waiting in every round.
        normalised[c] = max(normalised[c] * _slowed(view, int(i[c])), 1.0)
    value = penalty - (normalised * np.where(stays, 1.0, moved[i])) ** power  # c
    better = value > 0
    return i[better], value[better], g[better], width[better]


def _slowed(view: View, j: int) -> float:
    """The rate of a running job where it is / its rate on the fewest nodes."""
    spot = view.spots[j]
    return view.rate_on(j, spot) / view.rate_on(j, view.cluster.compact_spot(view.cluster.gpus_by_type(spot)))


def _table(view: View, kinds: Kinds, kind: int) -> list[tuple[int, int, float]]:
    """(type, GPUs, rate) on the fewest nodes, for all configurations that would run on a cluster without faults."""
    cells = [
        (t, width, kinds.rate(kind, t, width, -(-width // int(view.cluster.largest_node[t]))))
        for t in kinds.types[kind]
        for width in kinds.widths[kind]
        if width <= view.cluster.capacity[t]
    ]
    return [cell for cell in cells if cell[2] > 0]


POLICY = RoundPolicy(
    name="sia",
    summary="In every round the types and widths with the best power mean of normalised goodputs; a restart counts.",
    paper="Sia (SOSP 2023), as Hops' paper compares with it",
    level=Level.GRANTS,
    allocate=sia,
    ranges={"power": Number(-16.0, -1e-3), "penalty": Number(1.01, 1e6)},
    knows=frozenset({Knows.LENGTHS}),
)
