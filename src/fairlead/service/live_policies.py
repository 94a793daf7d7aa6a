"""Policies of the service, by name and with parameters from JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fairlead.model.allocation import Allocation
from fairlead.model.cluster import parse_short_form
from fairlead.model.errors import FairleadError, InputError
from fairlead.model.events import Arrived
from fairlead.model.jobs import JobSpec
from fairlead.model.view import View
from fairlead.policies import ROUND_POLICIES, find_round_policy
from fairlead.policies.policy import Policy
from fairlead.rates.estimator import TableEstimator
from fairlead.rates.profile import Profile, Speed
from fairlead.rounds.decide import Memory, decide
from fairlead.rounds.look import look
from fairlead.rounds.state import State

NAMES = list(ROUND_POLICIES)  # policies that a service can run


class UnusablePolicyError(FairleadError):
    """A policy that cannot decide with its parameters."""


def configured(name: str, parameters: Mapping[str, Any]) -> Policy:
    """The policy with these parameters, each of the type of its default; JSON lists become tuples."""
    policy = find_round_policy(name)
    known = policy.parameters
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in parameters.items()}
    for key, value in values.items():
        if key in known and not _same_type(value, known[key]):
            raise InputError(f"parameters.{key}: wanted a value like {known[key]!r}")
    return policy.with_parameters(values)


def tried(name: str, parameters: Mapping[str, Any]) -> Policy:
    """The configured policy, after a trial round: a value of the right type may still make no sense."""
    policy = configured(name, parameters)
    state = _small_state()
    try:
        decide(look(state, policy, 60.0), policy, Memory())
    except InputError:
        raise
    except Exception as error:  # any failure here is caused by a wrong value
        defaults = ", ".join(f"{key}={value!r}" for key, value in find_round_policy(name).parameters.items())
        raise InputError(
            f"parameters: {name} cannot decide with them ({type(error).__name__}: {error}); the defaults are {defaults}"
        ) from None
    return policy


def usable(name: str, parameters: Mapping[str, Any]) -> Policy:
    """The configured policy for the scheduler; only it raises UnusablePolicyError, if it cannot decide."""
    try:
        policy = configured(name, parameters)
    except InputError as error:
        raise UnusablePolicyError(str(error)) from None

    def allocate(view: View, memory: object) -> tuple[Allocation, object]:
        try:
            return policy.allocate(view, memory)
        except InputError as error:
            raise UnusablePolicyError(str(error)) from None

    return replace(policy, allocate=allocate)


def _small_state() -> State:
    """Two tenants with two jobs each that need more GPUs than there are."""
    cluster = parse_short_form("v100:2,k80:1")
    speeds = (Speed("m", "v100", 1, 1, 1.0, 2.0, "made up"), Speed("m", "k80", 1, 1, 1.0, 1.0, "made up"))
    state = State(cluster, TableEstimator(Profile("small", speeds), cluster))
    for number in range(4):
        spec = JobSpec(f"j{number}", f"t{number % 2}", "m", float(number), 1 + number // 3, 1000.0)
        state.fold(Arrived(spec.arrival_s, spec))
    return state


def _same_type(value: Any, default: Any) -> bool:
    if isinstance(default, bool) or isinstance(value, bool):
        return isinstance(value, bool) and isinstance(default, bool)
    if isinstance(default, (int, float)):
        return isinstance(value, (int, float)) and math.isfinite(value)
    if isinstance(default, tuple):
        return isinstance(value, tuple) and all(_same_type(part, 0.0) for part in value)
    return default is None or isinstance(value, type(default))
