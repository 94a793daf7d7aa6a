"""The part of the fold that forgets jobs which have ended, so that the state does not grow with the age of the service.

The jobs that stay keep their order and their numbers, and get the positions 0, 1, 2, ...; everything in the state that
refers to positions follows. Integrals over time, measured rates, votes about nodes, restart costs and the costs of
trials stay as they are. Policies notice nothing: a view names jobs by number (docs/decisions/0165).
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import compress
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from fairlead.model.arrays import BoolArray
from fairlead.model.errors import BrokenInvariantError
from fairlead.model.events import Forgotten
from fairlead.model.lifecycle import ENDED
from fairlead.rounds.columns import COLUMNS
from fairlead.rounds.queue import Queue
from fairlead.rounds.speeds import label_rates

if TYPE_CHECKING:
    from fairlead.rounds.state import State

_T = TypeVar("_T")


def forget(state: State, event: Forgotten) -> None:
    """Forget these jobs and renumber the others."""
    active = state.queue.jobs
    _check(state, event)
    stays = np.ones(state.jobs, dtype=np.bool_)  # j
    stays[event.jobs] = False
    old = np.flatnonzero(stays)
    new = {j: place for place, j in enumerate(old.tolist())}
    _shrink(state, stays)
    state.forgotten += len(event.jobs)
    state.position = {spec.id: j for j, spec in enumerate(state.specs)}
    state.queue = Queue(np.searchsorted(old, active))
    state.terms = _renumbered(state.terms, new)
    state.pauses = _renumbered(state.pauses, new)
    state.departures = _renumbered(state.departures, new)
    state.spread_rate = _renumbered(state.spread_rate, new)
    state.served = _renumbered(state.served, new)
    state.run_nowhere = {new[j] for j in state.run_nowhere}
    state.measured.renumber(new)
    state.trials.renumber(new)
    if state.learner is not None:
        state.learner.renumber(new)
    _relabel(state)


def _check(state: State, event: Forgotten) -> None:
    lives = event.jobs[~np.isin(state.phase[event.jobs], ENDED)]
    if lives.size:
        raise BrokenInvariantError(f"job {state.specs[lives[0]].id} is forgotten before it has ended")


def _shrink(state: State, stays: BoolArray) -> None:
    jobs = state.jobs
    for name in COLUMNS:
        setattr(state, name, getattr(state, name)[:jobs][stays])
    state.best_rate = state.best_rate[:jobs][stays]
    here = stays.tolist()
    state.specs = list(compress(state.specs, here))
    state.spots = list(compress(state.spots, here))
    state.last_spots = list(compress(state.last_spots, here))


def _renumbered(table: Mapping[int, _T], new: Mapping[int, int]) -> dict[int, _T]:
    return {new[j]: value for j, value in table.items() if j in new}


def _relabel(state: State) -> None:
    """Number what jobs have in common as a load of the state does; see `State.relabel`."""
    models = {*state.model.tolist(), *state.measured.models(), *state.trials.models()}
    state.labels.keep_only(models, set(state.kind.tolist()))
    state.labels.forget_cluster()
    for j in range(state.jobs):
        label_rates(state, j)
