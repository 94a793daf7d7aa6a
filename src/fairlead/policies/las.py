"""Least attained service in two dimensions with queues (Tiresias, NSDI 2019), blind to GPU types."""

from __future__ import annotations

import numpy as np

from fairlead.model.allocation import Answer, Grants, Level
from fairlead.model.view import View
from fairlead.placement.fill import fill_in_order
from fairlead.policies.policy import RoundPolicy
from fairlead.policies.ranges import Ascending


def las(view: View, memory: None, *, queues_gpu_s: tuple[float, ...] = (3600.0, 36000.0)) -> tuple[Grants, None]:
    """The job that has held the fewest GPU-seconds goes first, on the fastest GPUs that are free.

    Attained service (GPUs x time, on any type) sorts jobs into queues bounded by `queues_gpu_s`; inside a queue the
    earlier arrival goes first, so that jobs do not take turns indefinitely. "Fastest" is one order of the types for all
    jobs: the policy does not consider which model gains most.
    """
    bounds = np.array(queues_gpu_s)
    queue = np.searchsorted(bounds, view.attained_gpu_s, side="right").astype(np.int16)  # j
    order = np.argsort(queue, kind="stable")  # jobs are already in order of arrival
    liking = np.where(view.rate > 0, view.type_speed, 0.0)  # j,t
    jobs, types, gpus = fill_in_order(order, view.width, liking, view.capacity)
    to_next = np.append(bounds, np.inf)[queue[jobs]] - view.attained_gpu_s[jobs]  # GPU-seconds
    sinks_s = (to_next / gpus).min(initial=np.inf)  # until a job changes its queue
    return Grants(jobs, types, gpus, Answer(holds_until_s=view.now_s + float(sinks_s))), None


POLICY = RoundPolicy(
    name="las",
    summary="Least attained GPU-time first, in queues; blind to GPU types, fastest free GPUs first.",
    paper="Tiresias (NSDI 2019), two-dimensional LAS",
    level=Level.GRANTS,
    allocate=las,
    ranges={"queues_gpu_s": Ascending(1e-3, 1e12)},
)
