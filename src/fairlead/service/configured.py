"""Policies by name with parameters that came as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fairlead.model.allocation import Level
from fairlead.model.errors import InputError
from fairlead.policies import REGISTRY, find_policy
from fairlead.policies.policy import Policy

# What a service can run.
FOR_ROUNDS = [policy for policy in REGISTRY.values() if policy.level is not Level.TASKS]
NAMES = [policy.name for policy in FOR_ROUNDS]


def configured(name: str, parameters: Mapping[str, Any]) -> Policy:
    """Each parameter must be of the kind that it has by default; JSON's lists stand for tuples."""
    policy = find_policy(name)
    if policy not in FOR_ROUNDS:
        raise InputError(f"{name} decides single tasks, which only the simulator runs; use one of {', '.join(NAMES)}")
    known = policy.parameters
    given = {key: tuple(value) if isinstance(value, list) else value for key, value in parameters.items()}
    for key, value in given.items():
        if key in known and not _like(value, known[key]):
            raise InputError(f"parameters.{key}: wanted a value like {known[key]!r}")
    return policy.with_parameters(given)


def _like(value: Any, default: Any) -> bool:
    if isinstance(default, bool) or isinstance(value, bool):
        return isinstance(value, bool) and isinstance(default, bool)
    if isinstance(default, (int, float)):
        return isinstance(value, (int, float))
    if isinstance(default, tuple):
        return isinstance(value, tuple) and all(_like(part, 0.0) for part in value)
    return default is None or isinstance(value, type(default))
