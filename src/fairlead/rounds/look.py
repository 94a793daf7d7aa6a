"""The frozen view that a policy gets: the active jobs as columns, without what the policy may not know."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fairlead.model.allocation import NOWHERE, Spot
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.errors import BrokenInvariantError
from fairlead.model.pre_emption import WINDOW_S
from fairlead.model.view import View
from fairlead.numerics.entitled import entitled_weights
from fairlead.policies.policy import Knows, Policy
from fairlead.rates.spot import spot_rate
from fairlead.rounds.due_checks import checks
from fairlead.rounds.model_trials import jobs_that_wait_for_trials, jobs_to_try, without_reason
from fairlead.rounds.speeds import (
    alike_at_their_spots,
    gang_rate,
    measured_group,
    measured_rates,
    rate_at_their_spots,
    relative_on_nodes,
)
from fairlead.rounds.state import State

_LENGTHS = frozenset({"total", "done"})


def look(state: State, policy: Policy, round_s: float, check_share: float = 0.0) -> View:
    """A view of the state for the policy. Columns are gathered when they are read, before the next fold.

    `check_share` is the part of a tenant's GPU time that checks of its declared speeds may cost.
    """
    (active, fixed), now_s, moment = state.schedulable(), state.now_s, state.moment
    trials = jobs_to_try(state, policy.trial_s) if state.trials.on or state.trials.new else []
    waiting = jobs_that_wait_for_trials(state) if policy.trial_s and state.trials.new else []
    if waiting:
        active, fixed = active[~np.isin(active, waiting)], {}
    if "job" not in fixed:  # the same array while the same jobs are active
        fixed["job"] = state.number.take(active) if state.forgotten else active
    hidden = frozenset() if Knows.LENGTHS in policy.knows else _LENGTHS

    def gather(name: str) -> Any:
        if state.moment != moment:
            raise BrokenInvariantError(f"column {name} of a view was first read after its round was over")
        if name in fixed:
            return fixed[name]
        if name in hidden:
            return None
        if name in _DERIVED:
            values = _DERIVED[name](state, active, now_s)
        else:
            values = getattr(state, _OTHER_NAMES.get(name, name)).take(active, axis=0)
        if name in _FIXED:
            values.flags.writeable = False
            fixed[name] = values
        return values

    def rate_at(j: int, type_: int, gpus: int, nodes: int) -> float:
        return gang_rate(state, active[j])(type_, gpus, nodes)

    def rate_on(j: int, spot: Spot) -> float:
        return spot_rate(gang_rate(state, active[j]), spot, state.cluster.type_of)

    return View(
        now_s=now_s,
        round_s=round_s,
        cluster=state.cluster,
        capacity=state.capacity,
        node_up=state.node_up,
        node_free=state.node_free * state.node_up,
        type_speed=state.type_speed,
        tenant_weight=np.array(state.tenant_weight),
        width_sets=state.labels.width_sets,
        job=fixed["job"],
        position=active,
        spots=_Spots(state, active),
        rate_at=rate_at,
        rate_on=rate_on,
        last_spot=lambda j: state.last_spots[active[j]],
        gather=gather,
        quotas=state.quotas,
        pre_empted=tuple(charge for charge in state.pre_empted if now_s - charge[0] < WINDOW_S),
        waiting_for_trials=without_reason(state, waiting),
        check_jobs=checks(state, active, round_s, check_share),
        trial_jobs=tuple(replace(trial, row=_row(state, active, trial.job)) for trial in trials),
    )


def _row(state: State, active: IntArray, j: int) -> int | None:
    """The row of a job that holds GPUs."""
    return int(np.searchsorted(active, j)) if state.held_gpus[j] else None


# Columns that never change for a job, or only when the state drops them because a job was spread or gathered, or because
# measured rates or the weight of a tenant changed. They are gathered once while the same jobs are active.
_FIXED = frozenset(
    (
        *(
            "tenant",
            "model",
            "kind",
            "alike",
            "arrival_s",
            "weight",
            "width",
            "width_set",
            "relaxed",
            "restart_s",
            "exact_nodes",
        ),
        *("ideal_rate", "rate", "measured_group"),
    )
)
_OTHER_NAMES = {"held_since_s": "since_s"}  # names in the state
# Columns that are computed from the state.
_DERIVED: dict[str, Callable[[State, IntArray, float], Any]] = {
    "attained_gpu_s": State.attained_at,
    "wait_s": lambda state, jobs, now_s: now_s - state.arrival_s.take(jobs) - state.ran_at(jobs, now_s),
    "done": State.done_at,
    "relative": relative_on_nodes,
    "relative_spread": State.relative_spread,
    "mixable": State.mixable_at,
    "rate": rate_at_their_spots,
    "ideal_rate": lambda state, jobs, now_s: measured_rates(state, jobs),
    "measured_group": measured_group,
    "alike": lambda state, jobs, now_s: _apart(alike_at_their_spots(state, jobs, now_s), state, jobs),
    "weight": lambda state, jobs, now_s: _weights(state, jobs),
}


def _weights(state: State, jobs: IntArray) -> FloatArray:
    """j  The weight of each job among all jobs. The owners' own numbers count inside their tenant only."""
    if len(state.tenant_weight) < 2:  # as the function below decides too, more slowly
        return state.weight.take(jobs)
    return entitled_weights(state.weight.take(jobs), state.tenant.take(jobs), np.array(state.tenant_weight))


def _apart(alike: IntArray, state: State, jobs: IntArray) -> IntArray:
    """j  The same numbers, but apart where the same weight of two jobs means something else to their tenants."""
    if len(state.tenant_weight) < 2 or np.array_equal(_weights(state, jobs), state.weight.take(jobs)):
        return alike
    _, numbers = np.unique(np.column_stack((alike, state.tenant.take(jobs))), axis=0, return_inverse=True)
    return numbers.reshape(-1)


class _Spots(Mapping[int, Spot]):
    """j -> spot of the jobs that hold GPUs, looked up in the state."""

    def __init__(self, state: State, active: IntArray) -> None:
        self._state, self._active, self._moment = state, active, state.moment

    def get(self, j: int, default: Any = None) -> Any:
        if self._state.moment != self._moment:
            raise BrokenInvariantError("the spots of a view were read after its round was over")
        return self._state.spots[self._active[j]] or default

    def __getitem__(self, j: int) -> Spot:
        spot: Spot = self.get(j, NOWHERE)
        if not spot:
            raise KeyError(j)
        return spot

    def __iter__(self) -> Iterator[int]:
        return iter(np.flatnonzero(self._state.held_gpus.take(self._active)).tolist())

    def __len__(self) -> int:
        return self._state.running
