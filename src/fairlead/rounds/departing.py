"""The part of the fold that records how jobs came off their GPUs, and what restarts cost them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.decision import Decision
from fairlead.model.pre_emption import WINDOW_S

if TYPE_CHECKING:
    from fairlead.rounds.state import State


class How(StrEnum):
    STOPPED = "stopped"  # by a decision, which gave its GPUs to others
    LOST = "lost"  # with its node, or out of sight
    REFUSED = "refused"  # the engine could not start it
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Departure:
    """How a job that holds no GPUs came off those that it held last."""

    time_s: float
    how: How
    detail: str = ""  # in the words of the engine
    taken_by: tuple[str, ...] = ()  # ids of the jobs that a decision started on its nodes
    gain: float = 0.0  # of that whole decision, in GPUs at full speed


def note_stops(state: State, decision: Decision) -> None:
    """Remember the jobs that the decision stops and starts nowhere else; nothing if it does not say why."""
    if decision.why is None:
        return
    for j, jobs in decision.why.successors.items():
        taken_by = tuple(state.specs[k].id for k in jobs)
        state.departures[j] = Departure(decision.time_s, How.STOPPED, "", taken_by, decision.why.gain)


def charge_pre_emptions(state: State, decision: Decision) -> None:
    """Remember for an hour what the jobs that the decision stops or moves lose, before they leave their GPUs."""
    cost = state.held_gpus[decision.stop] * state.restart_s[decision.stop]  # GPU-seconds
    if not state.pre_empted and not np.count_nonzero(cost):
        return
    by_tenant = np.bincount(state.tenant[decision.stop], cost)  # u
    recent = [charge for charge in state.pre_empted if decision.time_s - charge[0] < WINDOW_S]
    state.pre_empted = recent + [(decision.time_s, u, float(by_tenant[u])) for u in np.flatnonzero(by_tenant).tolist()]


def note_departures(state: State, jobs: IntArray, time_s: float, how: How, detail: str) -> None:
    state.departures.update((j, Departure(time_s, how, detail)) for j in jobs.tolist())


def end_departures(state: State, jobs: IntArray) -> None:
    """These jobs hold GPUs again."""
    for j in jobs.tolist() if state.departures else ():
        state.departures.pop(j, None)


def charge_restarts(state: State, jobs: IntArray, resume_s: FloatArray) -> None:
    """Charge jobs that ran before for the time from their lease to `resume_s`, when they are expected to work again."""
    ran = ~np.isnan(state.first_start_s[jobs])
    if ran.any():
        jobs, resume_s = jobs[ran], resume_s[ran]
        state.restart_gpu_s[jobs] += state.held_gpus[jobs] * np.maximum(resume_s - state.since_s[jobs], 0.0)


def refund_restarts(state: State, jobs: IntArray, time_s: float) -> None:
    """Jobs that give their GPUs back before they work again were charged for time that others use."""
    resume_s = state.resume_s[jobs]
    if (resume_s > time_s).any():
        early_s = np.maximum(resume_s - time_s, 0.0)
        charge = np.minimum(state.held_gpus[jobs] * early_s, state.restart_gpu_s[jobs])
        state.restart_gpu_s[jobs] -= charge


def charge_lost_work(state: State, jobs: IntArray, samples: FloatArray, time_s: float) -> None:
    """Charge jobs that keep only `samples` for the GPU time in which they must do the rest again."""
    rate = state.rate[jobs]
    again_s = np.divide(state.done_at(jobs, time_s) - samples, rate, out=np.zeros(len(jobs)), where=rate > 0)
    state.restart_gpu_s[jobs] += state.held_gpus[jobs] * np.maximum(again_s, 0.0)
