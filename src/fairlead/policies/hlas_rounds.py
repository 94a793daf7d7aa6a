"""Heterogeneity-aware least attained service in rounds: Hare for a cluster that grants whole GPUs (TCC 2024).

Single tasks are decided on the workers, which split each training round over the granted GPUs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from fairlead.model.allocation import Answer, Grants, Level
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.view import View
from fairlead.placement.fill import fill_in_order
from fairlead.policies.policy import RoundPolicy
from fairlead.policies.ranges import Number, Whole

# A job this close to the end of its queue has reached it, because service is a sum with rounding errors.
REACHED = 1.0 - 1e-6
NOTHING: dict[int, int] = {}


@dataclass(frozen=True, slots=True, eq=False)
class ReferenceService:
    """By job: the GPU-seconds held at the last decision, and what they are worth on the job's best type.

    The latter count from the last promotion. `wait_s` is the waiting time when the job last ran or was promoted.
    """

    job: IntArray  # j  ascending
    attained_gpu_s: FloatArray  # j
    reference_s: FloatArray  # j
    wait_s: FloatArray  # j


def hlas_rounds(
    view: View,
    memory: ReferenceService | None,
    *,
    first_s: float = 900.0,
    growth: float = 4.0,
    queues: int = 7,
    promote: float = 8.0,
    advantage: float = 0.5,
) -> tuple[Grants, ReferenceService]:
    """Queues by attained service A_j / w_j in reference seconds, first come first served inside a queue.

    A GPU-second counts by the job's speed there relative to its best type. Queue 0 ends at `first_s` GPU-seconds, each
    further queue `growth` times later. A job that has waited `promote` times its service A_j / d_j since it last ran (0:
    never) returns to queue 0, and its service counts from zero. Each job takes the type that finishes its work first among those with room, where
    the rate on a type is divided by V_t^advantage, V_t the geometric mean of the active jobs' speeds on it relative to
    their best; a job with relaxed synchronisation takes a mix of free GPUs if that is better. A mix in which a slow GPU
    would idle is taken only if the job fits nowhere else and no other job can use those GPUs.
    Departs: no job waits for a busy GPU, because every round hands out all GPUs again.
    """
    served = _served(view, memory)
    waits = view.held_gpus == 0
    owed_s = promote * served.reference_s / view.width - (view.wait_s - served.wait_s)  # j  until it is promoted
    promoted = waits & (served.reference_s > 0) & (owed_s <= 0) & (promote > 0)
    service = replace(
        served,
        reference_s=np.where(promoted, 0.0, served.reference_s),
        wait_s=np.where(promoted | ~waits, view.wait_s, served.wait_s),
    )
    with np.errstate(over="ignore"):
        edges = REACHED * first_s * growth ** np.arange(queues - 1)
    attained = service.reference_s / view.weight  # j
    queue = np.searchsorted(edges, attained, side="right")
    order = np.argsort(queue, kind="stable")  # jobs are already in order of arrival
    price = _prices(view.ideal_rate, advantage)  # t
    if np.count_nonzero(view.relaxed & (view.width > 1)):
        grants = _with_mixes(view, order, price)
    else:
        grants = Grants(*fill_in_order(order, view.width, view.rate / price, view.capacity))
    idle = np.ones(view.jobs, dtype=np.bool_)
    idle[grants.jobs] = False
    lifts_s = owed_s[idle & waits & (service.reference_s > 0)] if promote > 0 else np.empty(0)
    sinks_s = _sinks_in_s(view, grants, np.append(edges, np.inf)[queue] - attained)
    # A job that is stopped now starts to wait now, so the decision is not valid beyond the next round.
    stopped = bool((idle & ~waits).any()) and promote > 0
    holds_s = 0.0 if stopped else max(min(sinks_s, float(lifts_s.min(initial=np.inf))), 0.0)
    answer = Answer(holds_until_s=view.now_s + holds_s)
    return Grants(grants.jobs, grants.types, grants.gpus, answer), service


def _served(view: View, memory: ReferenceService | None) -> ReferenceService:
    """The service so far. Since the last decision it counts at the speed on the GPUs held now, which did not change."""
    reference_s, before, wait_s = np.zeros(view.jobs), np.zeros(view.jobs), np.zeros(view.jobs)
    if memory is not None and memory.job.size and view.jobs:
        at = np.minimum(np.searchsorted(memory.job, view.job), len(memory.job) - 1)
        known = memory.job[at] == view.job
        reference_s[known], before[known] = memory.reference_s[at[known]], memory.attained_gpu_s[at[known]]
        wait_s[known] = memory.wait_s[at[known]]
    reference_s += (view.attained_gpu_s - before) * _speed(view)
    return ReferenceService(view.job, view.attained_gpu_s, reference_s, wait_s)


def _speed(view: View) -> FloatArray:
    """j  rate on the held GPUs relative to the best type; 1 for jobs that hold nothing (any more)."""
    best = np.maximum(view.ideal_rate.max(axis=1, initial=0.0), 1e-300)
    speed = np.ones(view.jobs)
    pure = np.flatnonzero(view.held_type >= 0)
    speed[pure] = view.rate[pure, view.held_type[pure]] / best[pure]
    for j in np.flatnonzero((view.held_gpus > 0) & (view.held_type < 0)).tolist():
        speed[j] = view.rate_on(j, view.spots[j]) / best[j]
    return np.where(speed > 0, np.minimum(speed, 1.0), 1.0)


def _prices(rate: FloatArray, advantage: float) -> FloatArray:
    """t  V_t^advantage over the active jobs; types that no job can use have a negligible price."""
    best = rate.max(axis=1, initial=0.0)[:, None]
    runs = rate > 0
    logs = np.log(np.divide(rate, best, out=np.ones_like(rate), where=runs))
    return np.asarray(np.exp(advantage * logs.sum(axis=0) / np.maximum(runs.sum(axis=0), 1)))


def _with_mixes(view: View, order: IntArray, price: FloatArray) -> Grants:
    hand = _Hand(view, price)
    wasteful: list[int] = []
    for j in order.tolist():
        if hand.unused == 0:
            break
        gpus_of_type, waste = hand.best(j)
        if gpus_of_type and waste:
            wasteful.append(j)
        elif gpus_of_type:
            hand.give(j, gpus_of_type)
    for j in wasteful:
        hand.give(j, hand.best(j)[0])
    jobs, types, gpus = np.array(list(_entries(hand.granted)), dtype=np.int64).reshape(-1, 3).T
    return Grants(jobs, types, gpus)


def _entries(granted: Iterable[tuple[int, dict[int, int]]]) -> Iterator[tuple[int, int, int]]:
    for j, by_type in granted:
        for t, gpus in sorted(by_type.items()):
            yield j, t, gpus


class _Hand:
    """The GPUs that are left, and the grants so far."""

    def __init__(self, view: View, price: FloatArray) -> None:
        self.granted: list[tuple[int, dict[int, int]]] = []
        self.left: list[int] = view.capacity.tolist()  # t
        self.unused = sum(self.left)
        self._view = view
        self._price: list[float] = price.tolist()
        self._width: list[int] = view.width.tolist()
        liking = view.rate / price
        self._liked: list[list[float]] = liking.tolist()
        self._ranked: list[list[int]] = (-liking).argsort(axis=1, kind="stable").tolist()
        self._mixable: list[list[bool]] = view.mixable.tolist()

    def give(self, j: int, by_type: dict[int, int]) -> None:
        if by_type:
            self.granted.append((j, by_type))
        for t, gpus in by_type.items():
            self.left[t] -= gpus
            self.unused -= gpus

    def best(self, j: int) -> tuple[dict[int, int], bool]:
        """The best GPUs for a job by type, empty if nothing fits; and whether some of them would idle."""
        width = self._width[j]
        if width > self.unused:
            return NOTHING, False
        pure = next((t for t in self._ranked[j] if self.left[t] >= width and self._liked[j][t] > 0), -1)
        value = self._liked[j][pure] if pure >= 0 else 0.0
        if any(self._mixable[j]):
            mix, worth, waste = self._mix(j, width)
            if worth > value and not (waste and pure >= 0):
                return mix, waste
        return ({pure: width} if pure >= 0 else NOTHING), False

    def _mix(self, j: int, width: int) -> tuple[dict[int, int], float, bool]:
        """The best mix of GPUs for a job, its value, and whether one of the GPUs would get no task."""
        rate = {t: self._view.rate_at(j, t, width, 2) for t, may in enumerate(self._mixable[j]) if may and self.left[t]}
        mix: dict[int, int] = {}
        need, cost = width, 0.0
        for t in sorted(rate, key=lambda t: (-rate[t] / self._price[t], t)):
            take = min(need, self.left[t])
            mix[t] = take
            need -= take
            cost += take * self._price[t]
            if not need:
                break
        if need or len(mix) < 2:
            return NOTHING, 0.0, False
        spot = self._view.cluster.compact_spot(mix)
        mixed = self._view.rate_on(j, spot)
        waste = any(self._view.rate_at(j, t, width, len(spot)) < mixed for t in mix)
        return mix, mixed * width / cost, waste


def _sinks_in_s(view: View, grants: Grants, to_next: FloatArray) -> float:
    """Seconds until the first job with a grant moves to the next queue; `to_next` is by job."""
    if not grants.jobs.size:
        return float("inf")
    jobs = np.unique(grants.jobs)
    gpus = np.bincount(grants.jobs, grants.gpus, view.jobs)[jobs]
    # At its fastest rate: if the decision is reviewed too early, it is simply confirmed.
    return max(float((to_next[jobs] * view.weight[jobs] / gpus).min()), 0.0)


POLICY = RoundPolicy(
    name="hlas-rounds",
    summary="Least attained service in reference GPU-seconds first; a relaxed job may mix the free GPUs of several types.",
    paper="ours, after Hare (IEEE TCC 2024): in rounds, for live clusters",
    level=Level.GRANTS,
    allocate=hlas_rounds,
    remembers=(ReferenceService,),
    ranges={
        "first_s": Number(1e-3, 1e9),
        "growth": Number(1.0, 1e6),
        "queues": Whole(1, 100),
        "promote": Number(0.0, 1e6),
        "advantage": Number(0.0, 16.0),
    },
)
