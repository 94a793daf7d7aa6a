"""Parameters of policies: what is accepted at the door works, and what is refused is named with its range."""

from __future__ import annotations

import math
from collections.abc import Iterator
from operator import attrgetter
from typing import Any

import pytest

from fairlead.model.errors import InputError
from fairlead.policies import REGISTRY
from fairlead.policies.policy import AnyPolicy
from fairlead.policies.ranges import FLAG, Ascending, Maybe, Number, Range, Whole, Word
from fairlead.studies.policy_lab.policy_worlds import make_world
from fairlead.studies.runs.simulate import simulate
from fairlead.studies.runs.summary import summarise

WORLDS = (3, 11)  # small ones, with faults and without
NONSENSE: tuple[Any, ...] = ("", [], {}, object(), math.nan, math.inf, -math.inf, b"1", 1j, [[1.0]], 10**400)
every_policy = pytest.mark.parametrize("policy", REGISTRY.values(), ids=attrgetter("name"))
EVERY_PARAMETER = [(policy, name) for policy in REGISTRY.values() for name in policy.parameters]
every_parameter = pytest.mark.parametrize(
    ("policy", "name"), EVERY_PARAMETER, ids=[f"{policy.name}-{name}" for policy, name in EVERY_PARAMETER]
)


def good(range_: Range) -> Iterator[Any]:
    """The ends of a range, or all of it."""
    match range_:
        case Number(low, high) | Whole(low, high):
            yield from (low, high)
        case Ascending(low, high):
            yield from ((), (low,), (low, high))
        case Word():
            yield from range_.words
        case Maybe(inner):
            yield None
            yield from good(inner)
        case _:
            assert range_ is FLAG
            yield from (False, True)


def bad(range_: Range) -> Iterator[Any]:
    """Values just beyond the ends, and of another type."""
    match range_:
        case Number(low, high):
            yield from (math.nextafter(low, -math.inf), math.nextafter(high, math.inf), True)
        case Whole(low, high):
            yield from (low - 1, high + 1, low + 0.5, True)
        case Ascending(low, high):
            yield from (
                (math.nextafter(low, 0.0),),
                (low, math.nextafter(high, math.inf)),
                (high, low),
                (low, low),
                1.0,
            )
        case Word():
            yield from (range_.words[0].upper(), 1)
        case Maybe(inner):
            yield from bad(inner)
        case _:
            yield from (0, 1, "true")


@every_policy
def test_every_parameter_of_a_registered_policy_has_a_range_that_contains_its_default(policy: AnyPolicy) -> None:
    assert set(policy.ranges) == set(policy.parameters)
    assert policy.with_parameters(policy.parameters).parameters == policy.parameters


@every_parameter
def test_what_is_beyond_a_range_is_refused_by_name(policy: AnyPolicy, name: str) -> None:
    range_ = policy.ranges[name]
    for value in (*bad(range_), *(v for v in NONSENSE if not (v == [] and isinstance(range_, Ascending)))):
        with pytest.raises(InputError) as refusal:
            policy.with_parameters({name: value})
        assert f"policy {policy.name}: {name} is " in str(refusal.value)
        assert str(refusal.value).endswith(f"wanted {range_}")


@every_parameter
def test_a_policy_decides_at_both_ends_of_every_range(policy: AnyPolicy, name: str) -> None:
    for value in good(policy.ranges[name]):
        for example in WORLDS:
            made = make_world(policy.with_parameters({name: value}), example)
            assert summarise(simulate(made).state).jobs_finished == len(made.trace.jobs)


def test_a_message_names_the_parameter_the_value_and_the_range() -> None:
    with pytest.raises(InputError, match=r"policy fft-ranked: settle is 0.5; wanted a whole number from 0 to 10000"):
        REGISTRY["fft-ranked"].with_parameters({"settle": 0.5})
    with pytest.raises(InputError, match=r"policy hops-late: served is 1e\+308; wanted a number from 0 to 1e\+06"):
        REGISTRY["hops-late"].with_parameters({"served": 1e308})
    with pytest.raises(InputError, match=r"policy hlas-rounds: advantage is 1000000.0; wanted a number from 0 to 16"):
        REGISTRY["hlas-rounds"].with_parameters({"advantage": 1e6})


def test_numbers_arrive_in_the_type_that_the_policy_expects() -> None:
    assert REGISTRY["fft-ranked"].with_parameters({"settle": 3.0, "kappa": 2}).parameters["settle"] == 3
    assert REGISTRY["las"].with_parameters({"queues_gpu_s": [10, 20]}).parameters == {"queues_gpu_s": (10.0, 20.0)}
