"""Heterogeneity-aware least attained service: Hare for jobs of unknown length (IEEE TCC 2024).

Only the paper's abstract is public: no prior knowledge of jobs, least attained service that is aware of GPU types,
relaxed synchronisation. Departs: queues, thresholds and promotion are those of Tiresias, in reference seconds.
A rule is made from `Known`, which has no lengths, and job n's part of the rule only from jobs that arrived before n.
"""

from __future__ import annotations

import math
from bisect import insort

import numpy as np

from fairlead.model.arrays import FloatArray
from fairlead.model.tasks import Known, Rule, TaskPlan
from fairlead.policies.gpu_choice import MILD_ADVANTAGE, comparative
from fairlead.policies.policy import TaskPolicy
from fairlead.policies.ranges import Number, Whole

SIGMA = 1.3
FIRST_QUEUE_TASKS = 4.0
GROWTH = 4.0
QUEUES = 7
PROMOTE = 8.0  # as in our Tiresias; decisions/0140 has what it costs
ADVANTAGE = 0.5  # strength of comparative advantage in the choice of the GPU; chosen on seeds that no report uses


def plan(
    known: Known,
    *,
    first_tasks: float = FIRST_QUEUE_TASKS,
    growth: float = GROWTH,
    queues: int = QUEUES,
    promote: float = PROMOTE,
    sigma: float = SIGMA,
    advantage: float = MILD_ADVANTAGE,
) -> TaskPlan:
    """`hlas` as a policy; with `promote` = 0 no job is promoted."""
    rule = hlas(
        known,
        first_tasks=first_tasks,
        growth=growth,
        queues=queues,
        promote=promote or math.inf,
        sigma=sigma,
        advantage=advantage,
    )
    return TaskPlan((("least attained service", rule),))


def hlas(
    known: Known,
    *,
    first_tasks: float = FIRST_QUEUE_TASKS,
    growth: float = GROWTH,
    queues: int = QUEUES,
    promote: float = PROMOTE,
    sigma: float = SIGMA,
    advantage: float = ADVANTAGE,
) -> Rule:
    """Queues by attained service A_n / w_n, first come first served inside a queue.

        A_n = sum over tasks started of p_n,   p_n = min_g T[n,g]

    is in reference seconds: the time that the service would have taken on the type that suits the job best, so an hour on
    a slow GPU counts for less than an hour on a fast one. Queue 0 ends at `first_tasks` median tasks, each further queue
    `growth` times later. A job that has waited `promote` times its service A_n / k_n since its last task returns to queue
    0, where it is the first, and its service counts from zero again. So no job waits longer between two of its tasks than
    `promote` times its service so far, plus the tasks that are running then. With promote = inf, no job is promoted, and an
    endless stream of short jobs starves a long one.
    """
    p = known.fastest_s
    return Rule(
        base=np.zeros(known.jobs),
        slope=p / known.weight,
        unit=first_tasks * _median_so_far(p),
        growth=growth,
        queues=queues,
        promote=promote,
        sigma=sigma,
        cost_s=comparative(known, advantage),
    )


def _median_so_far(values: FloatArray) -> FloatArray:
    ranked: list[float] = []
    medians = []
    for value in values.tolist():
        insort(ranked, value)
        medians.append((ranked[(len(ranked) - 1) // 2] + ranked[len(ranked) // 2]) / 2)
    return np.array(medians)


POLICY = TaskPolicy(
    name="hlas",
    summary="Single tasks on mixed GPUs; least attained service in reference seconds first, in queues.",
    paper="Hare (IEEE TCC 2024), our reading of its abstract",
    plan=plan,
    ranges={
        "first_tasks": Number(1e-3, 1e9),
        "growth": Number(1.0, 1e6),
        "queues": Whole(1, 100),
        "promote": Number(0.0, 1e6),
        "sigma": Number(0.0, 1e6),
        "advantage": Number(0.0, 16.0),
    },
)
