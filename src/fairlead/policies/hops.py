"""Latency-ratio fairness and a priority-weighted program over concrete configurations (Hops, SoCC 2024)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from fairlead.model.allocation import NOWHERE, Answer, Level, Placement
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.outcomes import Terms
from fairlead.model.view import View
from fairlead.numerics.metrics import isolated_rate
from fairlead.placement.pool import free_after
from fairlead.policies.hops_planner import POWER, SIGMA, Planner, free_for_planning
from fairlead.policies.policy import Knows, RoundPolicy
from fairlead.policies.ranges import FLAG, Maybe, Number, Ranges, Whole, Word
from fairlead.rates.age import expected_age_s, latency_ratio

PLANS = 100  # of `hops`, which ends when nothing more can be placed
LATE_PLANS = 3  # of `hops-late`, which widens jobs into what is left
FTF_POWER = 2.0  # lambda of the priority "ftf"
SERVED = 2.0  # K of `hops-late`: the worth of each GPU of its smallest width to the latest job
SLACK = 0.25  # the part of its age by which a running job may fall behind before it counts as late


def hops(
    view: View,
    memory: None,
    *,
    priority: str = "latency-ratio",
    power: float | None = None,
    bias: float | None = None,
    sigma: float = SIGMA,
    plans: int = PLANS,
    solve_s: float | None = None,
) -> tuple[Placement, None]:
    """The head of the priority queue, as far as the GPUs suffice, enters a program over configurations.

        max  sum_ic u_i^lambda G_ic X_ic     s.t.  sum_c X_ic <= 1,    sum_ic X_ic a_icn <= S_n,   X in {0,1}     (11-13)

    G is the rate of job i in configuration c relative to its smallest rate, S_n the idle GPUs of node n and
    u_i = (prior_i + bias) relative to the largest. `power` is lambda: unless it is set, 1, and 2 for the priority "ftf", as
    in the paper. While GPUs are idle, a further plan is made for them, until one places no job, up to `plans`; its window is
    adjusted so that jobs which lose speed when they are spread do not keep fragments from jobs which do not.

    Departs: a gang whose smallest width needs several nodes may be spread at all its widths, not only the smallest.
    A GPU in use is worth 1e-2, and weights stay within a factor of 1e4. Jobs that have to stay (they have just started,
    or a round is in progress) are not planned at all. A job of unknown length has the median age of the others.
    Later plans include only jobs that fit into the fragments, so that a gang at the head does not keep them idle.
    Neighbours are nodes of one type that are consecutive among those with idle GPUs.
    `solve_s` limits every solve on a live cluster; if a solve exceeds it, running jobs of the window stay where they are
    and the others follow in queue order.
    """
    prior = _priority(view, priority, PRINTED)  # j
    planner = Planner(view, prior, _power(priority, power), 0.0, bias, sigma, False, solve_s)
    return _placed(view, prior, planner, plans, widen=False), None


def hops_late(
    view: View,
    memory: None,
    *,
    priority: str = "lateness",
    power: float | None = None,
    served: float = SERVED,
    bias: float | None = None,
    sigma: float = SIGMA,
    plans: int = LATE_PLANS,
    restart: bool = True,
    widen: bool = True,
    solve_s: float | None = None,
) -> tuple[Placement, None]:
    """Hops with four changes of ours, each of which can be switched off; without all four, and with its plans, it is `hops`.

        max  sum_ic (u_i^lambda G_ic + K u_i^4 R_i) X_ic

    R_i is the job's smallest width and `served` is K. The second term decides which jobs get GPUs at all (the late ones),
    the first where the fast GPUs go (off: served=0). The priority is the larger of the latency ratio and the part of its age
    by which the job fell behind while it ran, less a quarter (off: priority=latency-ratio). With `restart`, every
    configuration except the present one is multiplied by (T - n S) / (T + S), at least 0.5, where the job has run for T
    and paid n restarts of S; in the paper, moves are free. GPUs that no plan can use go to placed jobs that are worth more
    with them (`widen`). The measurements are in decisions/0042.
    """
    prior = _priority(view, priority, PRIORITIES)  # j
    planner = Planner(view, prior, _power(priority, power), served, bias, sigma, restart, solve_s)
    return _placed(view, prior, planner, plans, widen), None


def _placed(view: View, prior: FloatArray, planner: Planner, plans: int, widen: bool) -> Placement:
    pinned = np.zeros(view.jobs, dtype=np.bool_) if view.pinned is None else view.pinned
    free = free_for_planning(view, pinned)
    spots = {j: view.spots[j] for j in np.flatnonzero(pinned).tolist()}
    queue = queue_order(prior)
    queue = queue[~pinned[queue]]
    fragments_only = bool(pinned.any()) and len(spots) == len(view.spots)
    solver = "optimal"
    considered = pinned.copy()  # j
    for number in range(2 if fragments_only else 1, plans + 1):
        if not queue.size or not free.any():
            break
        if number == 1:
            jobs = window(queue, planner.least, int(free.sum()))
        else:
            fitting = planner.fitting(queue, free)
            jobs = window(fitting, planner.least, int(free.sum()))
            jobs = adjust(jobs, fitting, planner.sensitivity, planner.least, int(free.sum()))
        considered[jobs] = True
        plan = planner.plan(jobs, free)
        if plan.solver != "optimal":
            solver = plan.solver
        if not plan.spots:
            break
        spots.update(plan.spots)
        free = free_after(free, taken=plan.spots.values())
        queue = queue[~np.isin(queue, list(plan.spots))]
    if widen:
        spots.update(planner.widened({j: spot for j, spot in spots.items() if not pinned[j]}, free))
    placed = tuple(spots.get(j, NOWHERE) for j in range(view.jobs))
    terms = Terms(("latency ratio", "priority"), np.column_stack((latency_ratio(view), prior)))
    return Placement(placed, Answer(holds_until_s=view.now_s, solver=solver, terms=terms, considered=considered))


def queue_order(prior: FloatArray) -> IntArray:
    """Jobs with the highest priority first, ties by arrival."""
    return np.argsort(-prior, kind="stable")


def window(queue: IntArray, least: IntArray, gpus: int) -> IntArray:
    """The head of the queue, until the smallest widths add up to the available GPUs."""
    before = np.cumsum(least[queue]) - least[queue]
    return queue[before < gpus]


def adjust(jobs: IntArray, queue: IntArray, sensitivity: FloatArray, least: IntArray, gpus: int) -> IntArray:
    """The window, extended by later jobs that lose less by being spread than the queue does on average.

    They are added one after another as long as the window's mean is above that of the queue, and only if they could fit.
    """
    if not queue.size:
        return jobs
    minds = np.minimum(sensitivity, 1e6)  # finite also for jobs that do not run spread at all
    mean = float(minds[queue].mean())
    total, chosen = float(minds[jobs].sum()), jobs.tolist()
    inside = set(chosen)
    for j in queue.tolist():
        if total <= mean * len(chosen):
            break
        if j not in inside and minds[j] < mean and least[j] <= gpus:
            chosen.append(j)
            total += float(minds[j])
    return np.array(chosen, dtype=np.int64)


def late_by(view: View) -> FloatArray:
    """j  max(LR, (time in the system + what remains at the expected speed) / age - 1 - slack)

    Apart from the slack, the two are equal as long as a job runs as fast as expected. For a job of unknown length, only
    its waiting time is known.
    """
    age_s, ratio = expected_age_s(view), latency_ratio(view)
    behind = (view.now_s - view.arrival_s + _remaining_s(view)) / age_s - 1.0 - SLACK
    return np.where(np.isfinite(_total(view)), np.maximum(ratio, behind), ratio)


def _priority(view: View, name: str, known: Mapping[str, Priority]) -> FloatArray:
    return np.asarray(known[name](view))


def _power(priority: str, power: float | None) -> float:
    """lambda: as set, or else the paper's for this priority."""
    if power is not None:
        return power
    return FTF_POWER if priority == "ftf" else POWER


def _finish_time_fairness(view: View) -> FloatArray:
    """j  rho = (time in the system + what remains at the expected speed) / the same work alone on 1/n of the cluster."""
    alone = isolated_rate(view.ideal_rate, view.width, view.cluster.capacity, np.full(view.jobs, float(view.jobs)))
    work = expected_age_s(view) * np.maximum(
        view.ideal_rate.mean(axis=1), 1e-300
    )  # samples, also for jobs without a declared length
    total = np.where(np.isfinite(_total(view)), _total(view), work)
    alone_s = total / np.maximum(alone, 1e-300)
    return np.asarray((view.now_s - view.arrival_s + _remaining_s(view)) / np.maximum(alone_s, 1e-9))


def _remaining_s(view: View) -> FloatArray:
    assert view.done is not None
    left = 1.0 - view.done / _total(view)
    return expected_age_s(view) * np.clip(np.nan_to_num(left, nan=1.0), 0.0, 1.0)


def _total(view: View) -> FloatArray:
    assert view.total is not None
    return view.total


Priority = Callable[[View], FloatArray]
PRINTED: dict[str, Priority] = {
    "latency-ratio": latency_ratio,
    "ftf": _finish_time_fairness,
    "las": lambda view: np.asarray(-view.attained_gpu_s / 3600.0),
    "sjf": lambda view: -expected_age_s(view) / 3600.0,
    "srtf": lambda view: -_remaining_s(view) / 3600.0,
}
PRIORITIES: dict[str, Priority] = {"lateness": late_by, **PRINTED}

_RANGES: Ranges = {  # of both
    "power": Maybe(Number(0.0, 16.0)),
    "bias": Maybe(Number(0.0, 1e6)),
    "sigma": Number(0.0, 1e6),
    "plans": Whole(1, 100),
    "solve_s": Maybe(Number(1e-3, 3600.0)),
}


POLICIES = (
    RoundPolicy(
        name="hops",
        summary="Jobs with the largest latency ratio first; each gets concrete nodes from a priority-weighted program.",
        paper="Hops (SoCC 2024)",
        level=Level.PLACEMENT,
        allocate=hops,
        ranges={"priority": Word(*PRINTED), **_RANGES},
        knows=frozenset({Knows.LENGTHS}),
    ),
    RoundPolicy(
        name="hops-late",
        summary="Hops that serves late jobs first, counts the cost of restarts and widens jobs into idle GPUs.",
        paper="ours, going beyond Hops (SoCC 2024)",
        level=Level.PLACEMENT,
        allocate=hops_late,
        ranges={
            "priority": Word(*PRIORITIES),
            "served": Number(0.0, 1e6),
            "restart": FLAG,
            "widen": FLAG,
            **_RANGES,
        },
        knows=frozenset({Knows.LENGTHS}),
    ),
)
