"""A copy of the folded state, for a run that must not change the state itself."""

from __future__ import annotations

from typing import Any

import numpy as np

from fairlead.model.cluster import Cluster
from fairlead.model.errors import BrokenInvariantError
from fairlead.model.quotas import Quotas
from fairlead.rates.three_layer import Learns
from fairlead.rounds.labels import Labels
from fairlead.rounds.measured import MeasuredRates
from fairlead.rounds.model_trials import ModelTrials
from fairlead.rounds.nodes import Nodes
from fairlead.rounds.queue import Queue
from fairlead.rounds.state import State

_NEVER_CHANGED = (int, float, np.generic, type(None), Cluster, Quotas)


def copied(state: State) -> State:
    """A copy of `state` with its own arrays, lists and tables and everything that the estimator has learnt.

    Descriptions of jobs, the cluster and the profile's table never change and are shared.
    """
    other = State.__new__(State)
    estimator: Any = state.estimator.copy() if isinstance(state.estimator, Learns) else state.estimator
    learner = estimator if isinstance(estimator, Learns) else None
    apart = {"estimator": estimator, "learner": learner}
    for name, value in vars(state).items():
        setattr(other, name, apart[name] if name in apart else _own(name, value))
    return other


def _own(name: str, value: Any) -> Any:
    """A copy of the value."""
    if isinstance(value, np.ndarray):
        array = value.copy()
        array.flags.writeable = value.flags.writeable
        return array
    if isinstance(value, set):
        return set(value)
    if isinstance(value, list):
        return [_own(name, item) for item in value] if _has_arrays(value) else list(value)
    if isinstance(value, dict):
        arrays = _has_arrays(list(value.values()))
        return {key: _own(name, item) for key, item in value.items()} if arrays else dict(value)
    if isinstance(value, MeasuredRates | ModelTrials):
        return value.copy()
    if isinstance(value, Nodes | Labels | Queue):
        whole = object.__new__(type(value))
        for part, content in vars(value).items():
            setattr(whole, part, _own(part, content))
        return whole
    if not isinstance(value, _NEVER_CHANGED):
        raise BrokenInvariantError(
            f"copying.py does not define how to copy {name} of a state, a {type(value).__name__}"
        )
    return value


def _has_arrays(values: list[Any]) -> bool:
    """Whether the values are arrays; all values of one list or table have the same type."""
    return bool(values) and isinstance(values[0], np.ndarray)
