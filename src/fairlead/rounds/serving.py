"""The part of the fold for task-level scheduling: GPUs pass from job to job, and jobs hold averages, not spots."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fairlead.model.arrays import IntArray
from fairlead.model.events import Served
from fairlead.model.lifecycle import Phase, Step

if TYPE_CHECKING:
    from fairlead.rounds.state import State


def serve(state: State, event: Served) -> None:
    fresh = event.jobs[state.phase[event.jobs] == Phase.WAITING]
    if fresh.size:
        state.step(fresh, Step.START)
        state.step(fresh, Step.STARTED)
        state.first_start_s[fresh] = event.time_s
        state.running += len(fresh)
    _settle(state, event.jobs, event.time_s)
    state.report(event.jobs, event.samples, event.rate, event.time_s)
    state.part[event.jobs] = event.part
    state.mean_gpus[event.jobs] = event.gpus.sum(axis=1)
    state.busy_gpus += float(event.gpus.sum())
    state.served.update(zip(event.jobs.tolist(), event.gpus, strict=True))
    state.unserved = float((1.0 - state.part[list(state.served)]).max(initial=0.0))


def leave_served(state: State, jobs: IntArray, time_s: float) -> None:
    if not state.served:
        return
    served = [j for j in jobs.tolist() if state.served.pop(j, None) is not None]
    if served:
        _settle(state, np.array(served), time_s)
        state.running -= len(served)
        if not state.served:
            state.busy_gpus, state.unserved = 0.0, 0.0  # sums of floats do not return to exactly zero


def _settle(state: State, jobs: IntArray, time_s: float) -> None:
    """Count what these jobs held on average since their last report."""
    elapsed_s = time_s - state.at_s[jobs]
    state.attained_gpu_s[jobs] += state.mean_gpus[jobs] * elapsed_s
    state.run_s[jobs] += state.part[jobs] * elapsed_s
    state.busy_gpus -= float(state.mean_gpus[jobs].sum())
    state.mean_gpus[jobs] = state.part[jobs] = 0.0
