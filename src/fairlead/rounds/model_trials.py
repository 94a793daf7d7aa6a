"""Trials of new models: the part of the folded state that knows which models were measured where, and at what cost.

A model is new to a tenant until a job of that tenant has run on every GPU type that it can use, each for a bounded time:
the type with the most memory first (ICS 2025). The job does its own work meanwhile. One job of a group is
tried; the others wait for it, and later jobs of the group start from what it taught. Whether new models are tried at
all is for the policy to declare (`RoundPolicy.trial_s`), or for the settings of the run.

A running job that is moved to a type to check its declared speed there (`rounds/due_checks.py`) is on trial as well, but
no other job waits for it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fairlead.model.arrays import IntArray
from fairlead.model.decision import Decision
from fairlead.model.lifecycle import ENDED, HAS_GPUS, Phase
from fairlead.model.outcomes import Reason
from fairlead.model.trial_jobs import TrialJob, WaitsForTrials
from fairlead.rounds.measured import SURE, Group
from fairlead.rounds.speeds import draw_up_rates, group_of, trust_measured

if TYPE_CHECKING:
    from fairlead.rounds.state import State

CHECK_S = 60.0  # to measure a job on a type, where the policy does not declare how long


@dataclass(frozen=True, slots=True)
class ModelTrial:
    """A job that runs on a type to be measured there."""

    type: int
    gpus: int
    since_s: float  # the decision
    began_s: float = math.inf  # when its processes ran and had restored their state


@dataclass(frozen=True, slots=True)
class TrialCost:
    """What the trials of one group have cost so far."""

    trials: int = 0
    gpu_s: float = 0.0


class ModelTrials:
    """All trials so far; mutable, because it is part of the state."""

    def __init__(self) -> None:
        self.new: set[int] = set()  # jobs that are not over, of models without a profile
        self.on: dict[int, ModelTrial] = {}  # job -> its present trial
        self.tried: dict[Group, set[int]] = {}  # types on which a group was tried
        self.unfit: dict[Group, set[int]] = {}  # types on which a group ended with an error
        self.cost: dict[Group, TrialCost] = {}

    @property
    def gpu_s(self) -> float:
        return sum(cost.gpu_s for cost in self.cost.values())

    def renumber(self, position: Mapping[int, int]) -> None:
        """Jobs have new positions; those without one are over."""
        self.new = {position[j] for j in self.new}
        self.on = {position[j]: trial for j, trial in self.on.items()}

    def models(self) -> set[int]:
        return {model for table in (self.tried, self.unfit, self.cost) for _, model in table}

    def copy(self) -> ModelTrials:
        other = ModelTrials()
        other.restore(self.to_json())
        return other

    def to_json(self) -> dict[str, Any]:
        return {
            "new": sorted(self.new),
            "on": [[j, t.type, t.gpus, t.since_s, _or_none(t.began_s)] for j, t in self.on.items()],
            "tried": [[*group, sorted(types)] for group, types in self.tried.items()],
            "unfit": [[*group, sorted(types)] for group, types in self.unfit.items()],
            "cost": [[*group, asdict(cost)] for group, cost in self.cost.items()],
        }

    def restore(self, facts: dict[str, Any]) -> None:
        self.new = set(facts["new"])
        self.on = {
            j: ModelTrial(type_, gpus, since_s, math.inf if began_s is None else began_s)
            for j, type_, gpus, since_s, began_s in facts["on"]
        }
        self.tried = {(u, m): set(types) for u, m, types in facts["tried"]}
        self.unfit = {(u, m): set(types) for u, m, types in facts["unfit"]}
        self.cost = {(u, m): TrialCost(**cost) for u, m, cost in facts["cost"]}


def _or_none(time_s: float) -> float | None:
    return None if math.isinf(time_s) else time_s


# ---- what decisions need to know ----------------------------------------------------------------------------------------


def jobs_to_try(state: State, trial_s: float) -> list[TrialJob]:
    """The jobs on trial and the next one of each new model, in order of arrival, without rows of a view.

    With a `trial_s` of 0 new models are not tried, and only checks can be under way.
    """
    first: dict[Group, int] = {}
    for j in _new_jobs(state) if trial_s else ():
        group = group_of(state, j)
        if group not in first or j in state.trials.on:
            first[group] = j
    trials = (_trial_job(state, j, trial_s) for j in sorted({*first.values(), *state.trials.on}))
    return [trial for trial in trials if trial is not None]


def jobs_that_wait_for_trials(state: State) -> list[int]:
    """Jobs without GPUs whose model has not been tried on every type that they could use now; policies do not see them."""
    return [j for j in _new_jobs(state) if not state.held_gpus[j] and types_to_try(state, j)]


def without_reason(state: State, waiting: list[int]) -> tuple[WaitsForTrials, ...]:
    """Those of the waiting jobs whose reason was another one so far."""
    news = (j for j in waiting if state.reason[j] != Reason.MEASURING)
    tried = state.trials.tried
    return tuple(
        WaitsForTrials(j, int(state.width[j]), len(tried.get(group_of(state, j), ())), len(types_to_try(state, j)))
        for j in news
    )


def types_to_try(state: State, j: int) -> tuple[int, ...]:
    """The types that the job could use now and on which its group was not tried, the one with the most memory first."""
    width, tried = int(state.width[j]), state.trials.tried.get(group_of(state, j), set())
    may = (state.best_rate[j] > 0) & (state.capacity >= width)
    if state.quotas is not None:
        may &= state.quotas.ever_hold(int(state.tenant[j]), state.capacity) >= width
    largest_first = np.argsort(-state.cluster.memory_gib, kind="stable").tolist()
    return tuple(t for t in largest_first if may[t] and t not in tried)


def _trial_job(state: State, j: int, trial_s: float) -> TrialJob | None:
    """None if there is nothing left to try, or if the job holds GPUs that a policy gave it."""
    trial, types = state.trials.on.get(j), types_to_try(state, j) if trial_s and j in state.trials.new else ()
    width, u = int(state.width[j]), int(state.tenant[j])
    if trial is None:
        return None if state.held_gpus[j] or not types else TrialJob(j, None, u, width, types, state.now_s)
    is_sure = state.measured.confidence(group_of(state, j))[trial.type] >= SURE
    until_s = state.now_s if is_sure else min(trial.began_s, state.now_s) + (trial_s or CHECK_S)
    types = tuple(t for t in types if t != trial.type)
    return TrialJob(j, None, u, width, types, until_s) if types or until_s > state.now_s else None


def _new_jobs(state: State) -> Iterator[int]:
    return (j for j in sorted(state.trials.new) if _may_run(state, j))


def _may_run(state: State, j: int) -> bool:
    return (state.phase[j] == Phase.WAITING and j not in state.pauses) or int(state.phase[j]) in HAS_GPUS


def trial_costs(state: State) -> dict[str, dict[str, TrialCost]]:
    """What trials cost, by tenant and model."""
    tenants = list(state.tenants)
    models = state.labels.model_names()
    costs: dict[str, dict[str, TrialCost]] = {}
    for (u, m), cost in state.trials.cost.items():
        costs.setdefault(tenants[u], {})[models[m]] = cost
    return costs


# ---- the fold -----------------------------------------------------------------------------------------------------------


def note_arrival(state: State, j: int) -> None:
    """A job of a new model is tried, unless its nodes are fixed: trials take whatever nodes have room."""
    if state.exact_nodes[j]:
        return
    if state.learner is not None and not state.estimator.knows(state.specs[j].model):
        state.trials.new.add(j)


def note_started(state: State, jobs: IntArray) -> None:
    """The time of a trial counts from here."""
    for j in jobs.tolist():
        if j in state.trials.on:
            began_s = max(state.now_s, float(state.resume_s[j]))
            state.trials.on[j] = replace(state.trials.on[j], began_s=began_s)


def fold_trials(state: State, decision: Decision) -> None:
    """Trials that the decision ends or begins; call it before jobs leave their GPUs and take others."""
    trials, starts = state.trials, dict(zip(decision.start.tolist(), decision.spots, strict=True))
    for j in list(trials.on):
        if j not in decision.trials or j in starts:
            end_trial(state, j, tried=True)
    for j in decision.trials:
        if j in starts:
            if state.held_type[j] >= 0:  # it has run there, so an error on the next type is that of the type
                trials.tried.setdefault(group_of(state, j), set()).add(int(state.held_type[j]))
            type_ = int(state.cluster.node_type[starts[j][0][0]])
            trials.on[j] = ModelTrial(type_, sum(count for _, count in starts[j]), decision.time_s)


def note_unfit(state: State, jobs: IntArray) -> None:
    """The groups of these jobs do not run on the types on which they are tried."""
    for j in jobs.tolist():
        if j not in state.trials.on:
            continue
        group, type_ = group_of(state, j), state.trials.on[j].type
        state.trials.unfit.setdefault(group, set()).add(type_)
        end_trial(state, j, tried=True)
        for other in range(state.jobs):
            if group_of(state, other) == group and int(state.phase[other]) not in ENDED:
                draw_up_rates(state, other)
        state.queue.fixed = {}


def fails_because_of_the_type(state: State, j: int) -> bool:
    """Whether an error of the job, which is tried on a type, does not count against it: it has run on another type."""
    return j in state.trials.on and bool(state.trials.tried.get(group_of(state, j)))


def leave_trials(state: State, jobs: IntArray, *, over: bool, tried: bool = False) -> None:
    """Jobs came off their GPUs; `over` if they will not run again. Their trials are repeated unless `tried`."""
    for j in jobs.tolist():
        if j in state.trials.on:
            end_trial(state, j, tried=tried)
        if over:
            state.trials.new.discard(j)


def end_trial(state: State, j: int, *, tried: bool) -> None:
    """Count the cost of a trial; with `tried` the type is not tried again, and what was measured counts at once.

    A check of a job that has not reported anything is repeated: nobody may avoid it by reporting seldom.
    """
    trials, group = state.trials, group_of(state, j)
    trial, cost = trials.on.pop(j), trials.cost.get(group, TrialCost())
    trials.cost[group] = TrialCost(cost.trials + 1, cost.gpu_s + trial.gpus * (state.now_s - trial.since_s))
    if tried and (j in trials.new or state.measured.confidence(group)[trial.type] > 0):
        trials.tried.setdefault(group, set()).add(trial.type)
        trust_measured(state, group, trial.type)
