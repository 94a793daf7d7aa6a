"""What restarts cost: from the profile, until enough of them were measured.

A cost counts from the launch of a lease to its first progress, by model, and for warm starts apart from cold ones. The
median of the last few is what policies see, so that single starts on a busy machine do not move it.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from fairlead.model.events import FirstProgress
from fairlead.model.lifecycle import ENDED

if TYPE_CHECKING:
    from fairlead.rounds.state import State

RestartCosts = dict[tuple[str, bool], tuple[float, ...]]  # (model, warm) -> seconds of the last restarts

ENOUGH = 3  # measured starts, of which one may be an outlier
KEPT = 15
LONGEST_S = 3600.0  # a start that takes longer waited for something else, such as a download
MOST_MODELS = 1000  # the state must not grow with the models that were ever seen


def expected_restart_s(state: State, model: str, *, warm: bool = False) -> float:
    """The median of the measured costs, or the profile's while there are too few."""
    costs = state.restart_costs.get((model, warm), ())
    return median(costs) if len(costs) >= ENOUGH else state.estimator.restart_s(model)


def note_restarts(state: State, event: FirstProgress) -> None:
    """Remember what these starts have cost, and expect it of all jobs of their models."""
    for j, cost_s in zip(event.jobs.tolist(), event.cost_s.tolist(), strict=True):
        state.started_warm[j] = event.warm
        _remember(state.restart_costs, (state.specs[j].model, event.warm), min(max(cost_s, 0.0), LONGEST_S))
        _expect(state, j)
    state.queue.fixed.pop("restart_s", None)


def _remember(costs: RestartCosts, key: tuple[str, bool], cost_s: float) -> None:
    """The kind that was measured last is at the end, and the first is forgotten if there are too many."""
    costs[key] = (*costs.pop(key, ()), cost_s)[-KEPT:]
    if len(costs) > 2 * MOST_MODELS:
        del costs[next(iter(costs))]


def _expect(state: State, j: int) -> None:
    """Each job of the model is expected to start as it started last: warm or cold."""
    model = state.specs[j].model
    jobs = np.flatnonzero(state.model[: state.jobs] == state.model[j])
    jobs = jobs[~np.isin(state.phase[jobs], ENDED)]
    for warm in (False, True):
        alike = jobs[state.started_warm[jobs] == warm]
        if alike.size:
            state.restart_s[alike] = expected_restart_s(state, model, warm=warm)
