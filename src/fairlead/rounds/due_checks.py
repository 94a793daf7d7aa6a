"""Checks of declared speeds: which rates nobody has measured yet, and when that is worth a check.

The rates of a model are believed until its jobs have run. A tenant whose jobs stay on one type could declare anything
about the others, and be entitled to more by it. So while several tenants compete, a running job of a tenant and model is
moved for a short time to each type that it could use and on which none of its group has ever run. It does its own work
there, and its reports are the measurement.

A check takes a round and two restarts. It is due once it, and all trials of the group before it, cost at most a given
share of the GPU time that the jobs of the group have held: short-lived groups are never checked, and no tenant pays more.
Jobs that the service has forgotten do not count.
"""

from __future__ import annotations

import math

import numpy as np

from fairlead.model.arrays import IntArray
from fairlead.model.trial_jobs import CheckJob
from fairlead.rounds.measured import SURE, Group
from fairlead.rounds.model_trials import TrialCost, types_to_try
from fairlead.rounds.speeds import group_of
from fairlead.rounds.state import State


def checks(state: State, active: IntArray, round_s: float, share: float) -> tuple[CheckJob, ...]:
    """The job of every tenant and model with unmeasured rates that is moved when a check is due; rows are those of `active`."""
    if state.learner is None or not share or not state.running:
        return ()
    tenant = state.tenant.take(active)
    if (tenant == tenant[0]).all():
        return ()  # nobody to take from
    running = np.flatnonzero((state.held_type.take(active) >= 0) & (state.exact_nodes.take(active) == 0))
    on_trial = {group_of(state, j) for j in state.trials.on}
    rows: dict[Group, int] = {}
    for row in running[np.argsort(state.held_gpus.take(active[running]), kind="stable")].tolist():
        rows.setdefault(group_of(state, int(active[row])), row)  # its narrowest job
    unknown = (
        (row, group, _unmeasured(state, int(active[row]))) for group, row in rows.items() if group not in on_trial
    )
    return tuple(
        CheckJob(row, types, _due_s(state, int(active[row]), group, round_s, share))
        for row, group, types in sorted(unknown)
        if types
    )


def next_check_s(state: State, round_s: float, share: float) -> float:
    """When the next check is due if jobs keep what they hold."""
    return min((check.due_s for check in checks(state, state.active_jobs, round_s, share)), default=math.inf)


def _unmeasured(state: State, j: int) -> tuple[int, ...]:
    """Types that the job could use at its present number of GPUs and whose rates are only declared, the most memory first."""
    confidence, held = state.measured.confidence(group_of(state, j)), int(state.held_gpus[j])
    return tuple(
        t
        for t in types_to_try(state, j)
        if confidence[t] < SURE and t != state.held_type[j] and state.capacity[t] >= held
    )


def _due_s(state: State, j: int, group: Group, round_s: float, share: float) -> float:
    """When the group will have held enough GPU time for its next check."""
    jobs = np.flatnonzero((state.tenant[: state.jobs] == group[0]) & (state.model[: state.jobs] == group[1]))
    cost = float(state.held_gpus[j]) * (round_s + 2.0 * float(state.restart_s[j]))
    spent = state.trials.cost.get(group, TrialCost()).gpu_s
    missing = (spent + cost) / share - float(state.attained_at(jobs, state.now_s).sum())
    return state.now_s + max(missing, 0.0) / float(state.held_gpus.take(jobs).sum())
