"""The part of the fold that turns a job's description into columns."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fairlead.model.jobs import JobSpec
from fairlead.rounds.restarting import expected_restart_s
from fairlead.rounds.speeds import draw_up_rates

if TYPE_CHECKING:
    from fairlead.rounds.state import State


def describe(state: State, j: int, spec: JobSpec) -> None:
    """Set the columns that follow from the job's description and the cluster."""
    state.model[j] = state.labels.model(spec)
    state.kind[j] = state.labels.kind(spec)
    state.arrival_s[j] = spec.arrival_s
    state.width[j] = spec.gpus
    state.width_set[j] = state.labels.width_set(spec)
    state.weight[j] = spec.weight
    state.relaxed[j] = spec.relaxed
    state.exact_nodes[j] = spec.nodes or 0
    state.total[j] = (
        math.nan if spec.steps is None else spec.steps * state.estimator.samples_per_step(spec.model, spec.gpus)
    )
    state.restart_s[j] = expected_restart_s(state, spec.model)
    draw_up_rates(state, j)


def describe_again(state: State, j: int, spec: JobSpec) -> None:
    """Give a job that holds no GPUs another description; what it has done so far counts."""
    state.specs[j] = spec
    describe(state, j, spec)
    state.queue.fixed = {}
