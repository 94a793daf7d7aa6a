"""AlloX (EuroSys 2020) as a baseline: one queue per GPU type, first come first served, never interrupted."""

from __future__ import annotations

import numpy as np

from fairlead.model.allocation import Answer, Grants, Level
from fairlead.model.arrays import FloatArray
from fairlead.model.view import View
from fairlead.placement.moves import held_by, left_over
from fairlead.policies.policy import Knows, RoundPolicy
from fairlead.policies.ranges import FLAG
from fairlead.policies.type_queues import TypeQueues, join, remaining_times


def allox(view: View, memory: TypeQueues | None, *, overtake: bool = False) -> tuple[Grants, TypeQueues]:
    """An arrival joins the tail of the queue where it adds least to the total of completion times.

    At the tail it delays no other job, so it adds only its own time: the backlog of the type plus its run time there. Jobs
    of a queue start in order and run to their end; with `overtake`, a job that fits passes one in front that does not.
    Departs: AlloX itself matches all waiting jobs to places in the queues again at every event, for jobs of one GPU; gangs
    and the tail rule are from the baseline in FFT (ICS 2025). A job that lost its node starts before later arrivals.
    """
    remaining_s = remaining_times(view)  # j,t

    def soonest(j: int, backlog_s: FloatArray, run_s: FloatArray) -> int:
        return int(np.argmin(backlog_s + run_s))

    queues = join(view, memory, remaining_s, soonest)
    held = held_by(view, np.flatnonzero(view.held_gpus))
    free: list[int] = left_over(view, held).tolist()
    jobs: list[int] = []
    waiting = np.flatnonzero((view.held_gpus == 0) & (queues.type >= 0))
    for j, t, width in zip(waiting.tolist(), queues.type[waiting].tolist(), view.width[waiting].tolist(), strict=True):
        if width <= free[t]:
            free[t] -= width
            jobs.append(j)
        elif not overtake:
            free[t] = 0  # later jobs of the queue wait too
    started = np.array(jobs, dtype=np.int64)
    return Grants(
        np.concatenate((held.jobs, started)),
        np.concatenate((held.types, queues.type[started])),
        np.concatenate((held.gpus, view.width[started])),
        Answer(),
    ), queues


POLICY = RoundPolicy(
    name="allox",
    summary="One queue per type; an arrival joins where it would end first, and is never interrupted.",
    paper="AlloX (EuroSys 2020), as FFT's paper uses it",
    level=Level.GRANTS,
    allocate=allox,
    remembers=(TypeQueues,),
    ranges={"overtake": FLAG},
    knows=frozenset({Knows.LENGTHS}),
)
