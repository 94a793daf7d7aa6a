"""Policies by name with parameters that came as JSON."""

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

NAMES = list(ROUND_POLICIES)  # what a service can run


class UnusablePolicyError(FairleadError):
    """A policy that cannot decide with the parameters that it was given."""


def configured(name: str, parameters: Mapping[str, Any]) -> Policy:
    """Each parameter must be of the kind that it has by default; JSON's lists stand for tuples."""
    policy = find_round_policy(name)
    known = policy.parameters
    given = {key: tuple(value) if isinstance(value, list) else value for key, value in parameters.items()}
    for key, value in given.items():
        if key in known and not _like(value, known[key]):
            raise InputError(f"parameters.{key}: wanted a value like {known[key]!r}")
    return policy.with_parameters(given)


def tried(name: str, parameters: Mapping[str, Any]) -> Policy:
    """The same, after it has decided a round of a small cluster: a value may be of the right kind and still make no sense."""
    policy = configured(name, parameters)
    state = _small_state()
    try:
        decide(look(state, policy, 60.0), policy, Memory())
    except InputError:
        raise
    except Exception as error:  # whatever a strange value leads to, it is the value that is wrong
        usual = ", ".join(f"{key}={value!r}" for key, value in find_round_policy(name).parameters.items())
        raise InputError(
            f"parameters: {name} cannot decide with them ({type(error).__name__}: {error}); usual are {usual}"
        ) from None
    return policy


def usable(name: str, parameters: Mapping[str, Any]) -> Policy:
    """For the scheduler: whatever it refuses comes as UnusablePolicyError, which nothing else raises."""
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
    """Two tenants with two jobs each, who want more than there is."""
    cluster = parse_short_form("v100:2,k80:1")
    speeds = (Speed("m", "v100", 1, 1, 1.0, 2.0, "made up"), Speed("m", "k80", 1, 1, 1.0, 1.0, "made up"))
    state = State(cluster, TableEstimator(Profile("small", speeds), cluster))
    for number in range(4):
        spec = JobSpec(f"j{number}", f"t{number % 2}", "m", float(number), 1 + number // 3, 1000.0)
        state.fold(Arrived(spec.arrival_s, spec))
    return state


def _like(value: Any, default: Any) -> bool:
    if isinstance(default, bool) or isinstance(value, bool):
        return isinstance(value, bool) and isinstance(default, bool)
    if isinstance(default, (int, float)):
        return isinstance(value, (int, float)) and math.isfinite(value)
    if isinstance(default, tuple):
        return isinstance(value, tuple) and all(_like(part, 0.0) for part in value)
    return default is None or isinstance(value, type(default))
