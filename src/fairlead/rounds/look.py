"""The frozen picture that a policy gets: the active jobs as columns, less what the policy may not know."""

from __future__ import annotations

import numpy as np

from fairlead.model.view import View
from fairlead.policies.policy import Knows, Policy
from fairlead.rounds.state import State


def look(state: State, policy: Policy, round_s: float) -> View:
    active, fixed = state.active_jobs, state.fixed_columns()
    now_s = state.now_s
    held_gpus = state.held_gpus.take(active)
    lengths = Knows.LENGTHS in policy.knows

    def rate_at(j: int, type_: int, gpus: int, nodes: int) -> float:
        return state.estimator.at(state.specs[active[j]].model, type_, gpus, nodes)

    return View(
        now_s=now_s,
        round_s=round_s,
        cluster=state.cluster,
        capacity=state.capacity.copy(),
        node_up=state.node_up.copy(),
        node_free=np.where(state.node_up, state.node_free, 0),
        job=active,
        tenant_weight=np.array(state.tenant_weight),
        width_sets=tuple(state.width_sets),
        rate_at=rate_at,
        **fixed,
        type_speed=state.type_speed,
        attained_gpu_s=state.attained_at(active, now_s),
        wait_s=now_s - fixed["arrival_s"] - state.ran_at(active, now_s),
        held_type=state.held_type.take(active),
        held_gpus=held_gpus,
        held_since_s=state.since_s.take(active),
        spots={j: state.spots[active[j]] for j in np.flatnonzero(held_gpus).tolist()},
        total=state.total.take(active) if lengths else None,
        done=state.done_at(active, now_s) if lengths else None,
    )
