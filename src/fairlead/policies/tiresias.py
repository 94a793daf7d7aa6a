"""Tiresias (NSDI 2019): least attained service with queues and promotion, and the variant in FFT's paper."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fairlead.model.allocation import Answer, Grants, Level
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.view import View
from fairlead.numerics.random import stream
from fairlead.placement.fill import fill_in_order
from fairlead.policies.policy import Knows, RoundPolicy
from fairlead.policies.ranges import Ascending, Number, Whole, Word
from fairlead.policies.type_queues import TypeQueues, join, remaining_times


@dataclass(frozen=True, slots=True, eq=False)
class Marks:
    """By job: its attained service at its last promotion, and its waiting time when it last ran or was promoted."""

    job: IntArray  # j  ascending
    attained_gpu_s: FloatArray  # j
    wait_s: FloatArray  # j


def tiresias(
    view: View,
    memory: Marks | None,
    *,
    queues_gpu_s: tuple[float, ...] = (3600.0, 36000.0),
    promote: float = 8.0,
) -> tuple[Grants, Marks]:
    """Two-dimensional least attained service, in queues, blind to lengths and to the speeds of models on GPU types.

    Attained service is GPUs x time. A job moves to the next queue at each of `queues_gpu_s`; inside a queue the earlier
    arrival goes first. A job that has waited `promote` times as long as it has run (the paper's PROMOTEKNOB; 0: never)
    returns to the first queue, and its service counts from zero. A running job keeps its type until it is pre-empted.
    `las` has no promotion and does not keep types: it moves a job whenever a faster GPU becomes free.
    Departs: the values of the queues and of `promote` are ours; the paper tunes them to the cluster.
    """
    marks = _recall(view, memory)
    served = view.attained_gpu_s - marks.attained_gpu_s  # j  GPU-seconds since the last promotion
    waited_s = view.wait_s - marks.wait_s  # j
    waits = view.held_gpus == 0
    owed_s = promote * served / view.width - waited_s  # j  until it is promoted
    promoted = waits & (served > 0) & (owed_s <= 0) & (promote > 0)
    marks = Marks(
        view.job,
        np.where(promoted, view.attained_gpu_s, marks.attained_gpu_s),
        np.where(promoted | ~waits, view.wait_s, marks.wait_s),
    )
    served = np.where(promoted, 0.0, served)
    bounds = np.array(queues_gpu_s)
    queue = np.searchsorted(bounds, served, side="right")  # j
    order = np.lexsort((view.job, queue))
    liking = np.where(view.rate > 0, view.type_speed, 0.0)  # j,t
    running = np.flatnonzero(view.held_type >= 0)
    liking[running, view.held_type[running]] += 1.0  # the fastest type is 1
    jobs, types, gpus = fill_in_order(order, view.width, liking, view.capacity)
    to_next_s = (np.append(bounds, np.inf)[queue[jobs]] - served[jobs]) / gpus
    idle = np.ones(view.jobs, dtype=np.bool_)
    idle[jobs] = False
    lifts_s = owed_s[idle & waits & (served > 0)] if promote > 0 else np.empty(0)
    changes_s = min(float(to_next_s.min(initial=np.inf)), float(lifts_s.min(initial=np.inf)))
    # A job that is stopped now starts to wait now, so the decision is not valid beyond the next round.
    stopped = bool((idle & ~waits).any())
    until_s = view.now_s if stopped else view.now_s + max(changes_s, 0.0)
    return Grants(jobs, types, gpus, Answer(holds_until_s=until_s)), marks


def tiresias_fft(
    view: View, memory: TypeQueues | None, *, join_by: str = "service", seed: int = 0
) -> tuple[Grants, TypeQueues]:
    """One queue per type, shortest remaining service (GPUs x time) first in each; jobs never change queues.

    An arrival joins the queue with the least remaining service ("service"), or any on which it can run ("random").
    Departs: Tiresias itself knows no lengths; this is the clairvoyant variant with which FFT (ICS 2025) compares itself.
    A job that does not fit is skipped. The service of a queue is divided by its GPUs.
    """
    remaining_s = remaining_times(view)  # j,t

    def least(j: int, backlog_s: FloatArray, run_s: FloatArray) -> int:
        can = np.flatnonzero(np.isfinite(run_s))
        if join_by == "random":
            return int(stream(seed, f"queue of job {int(view.job[j])}").choice(can))
        return int(can[np.argmin(backlog_s[can])])

    queues = join(view, memory, remaining_s, least)
    placed = np.flatnonzero(queues.type >= 0)
    mine = queues.type[placed]
    service = np.full(view.jobs, np.inf)
    service[placed] = view.width[placed] * remaining_s[placed, mine]
    liking = np.zeros(view.rate.shape)  # j,t
    liking[placed, mine] = 1.0
    order = np.lexsort((view.job, service))
    # Running jobs get shorter and waiting jobs do not, so the order is valid until a job arrives or ends.
    return Grants(*fill_in_order(order, view.width, liking, view.capacity)), queues


def _recall(view: View, memory: Marks | None) -> Marks:
    attained, wait = np.zeros(view.jobs), np.zeros(view.jobs)
    if memory is not None and memory.job.size and view.jobs:
        at = np.minimum(np.searchsorted(memory.job, view.job), len(memory.job) - 1)
        known = memory.job[at] == view.job
        attained[known], wait[known] = memory.attained_gpu_s[at[known]], memory.wait_s[at[known]]
    return Marks(view.job, attained, wait)


POLICIES = (
    RoundPolicy(
        name="tiresias",
        summary="Least attained GPU-time first, in queues with promotion; a running job keeps its type.",
        paper="Tiresias (NSDI 2019)",
        level=Level.GRANTS,
        allocate=tiresias,
        remembers=(Marks,),
        ranges={"queues_gpu_s": Ascending(1e-3, 1e12), "promote": Number(0.0, 1e6)},
    ),
    RoundPolicy(
        name="tiresias-fft",
        summary="One queue per type, shortest remaining GPU-time first in each, no moves between types.",
        paper="Tiresias (NSDI 2019), as FFT's paper uses it",
        level=Level.GRANTS,
        allocate=tiresias_fft,
        remembers=(TypeQueues,),
        ranges={"join_by": Word("service", "random"), "seed": Whole(0, 2**63 - 1)},
        knows=frozenset({Knows.LENGTHS}),
    ),
)
