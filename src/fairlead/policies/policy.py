"""The policy interface: which jobs should hold which GPUs. A policy is pure: it returns its memory and gets it back.

There are two kinds. A *round policy* is called every round, both on live clusters and in the simulator. A *task policy* is
called once, for all jobs, and plans single tasks, which only the simulator runs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from fairlead.model.allocation import Allocation, Level
from fairlead.model.errors import InputError
from fairlead.model.tasks import Instance, Known, Sized, TaskPlan
from fairlead.model.view import View
from fairlead.model.words import did_you_mean
from fairlead.policies.ranges import Ranges, accepted

M = TypeVar("M")  # what a round policy remembers


class Knows(StrEnum):
    """What a policy sees beyond the present."""

    LENGTHS = "lengths"  # total and completed samples
    ARRIVALS = "arrivals"  # jobs that have not arrived yet


class Promise(StrEnum):
    """What a policy of level shares guarantees for each of its divisions; docs/promises.md explains them in words."""

    NO_ENVY = "no envy"
    SHARING_INCENTIVE = "sharing incentive"
    NO_WASTE = "no waste"
    NO_EXAGGERATION = "exaggerating does not pay"


class Allocate(Protocol[M]):
    """Decides one round: the view and the last memory (None at first) -> the allocation and the next memory.

    Keyword-only arguments with defaults are the policy's parameters.
    """

    def __call__(self, view: View, memory: M | None, /) -> tuple[Allocation, M]: ...


# All jobs -> one plan. A policy gets what it declares to know and nothing else: `Known` has neither lengths nor arrival
# times, `Sized` has lengths, `Instance` has both. Parameters are as above.
PlanTasks: TypeAlias = Callable[[Instance], TaskPlan] | Callable[[Sized], TaskPlan] | Callable[[Known], TaskPlan]


@dataclass(frozen=True)  # without slots, which Python 3.11 cannot combine with calls of `RoundPolicy[...]`
class RoundPolicy(Generic[M]):
    """Decides rounds: `allocate` returns shares, grants or a placement, according to the policy's level."""

    name: str
    summary: str  # one sentence
    paper: str
    level: Level
    allocate: Allocate[M]
    knows: frozenset[Knows] = frozenset()
    promises: frozenset[Promise] = frozenset()  # of level shares only
    trial_s: float = 0.0  # on each GPU type, to measure a new model before its jobs are seen; 0: they are seen at once
    ranges: Ranges = field(default_factory=dict)  # the values that each parameter may have
    # The dataclasses of its memory, so that a service can store it for simulations that continue from its state. A
    # memory that only saves time, such as an open solver, need not be listed.
    remembers: tuple[type, ...] = ()

    def __post_init__(self) -> None:
        if self.level == Level.TASKS:
            raise InputError(
                f"policy {self.name} is of level tasks, which a Policy cannot be; write "
                "TaskPolicy(name, summary, paper, plan, knows), where plan(jobs) returns a TaskPlan"
            )
        if self.promises and self.level != Level.SHARES:
            raise InputError(
                f"policy {self.name} makes promises about shares but is of level {self.level}; "
                "leave out its promises, or return Shares"
            )

    @property
    def hands_out_gpus(self) -> bool:
        """Whether it assigns whole GPUs of this round, next to jobs that stay; shares apply to the long run."""
        return self.level != Level.SHARES

    @property
    def parameters(self) -> dict[str, Any]:
        """Keyword-only arguments of `allocate` with their defaults (or what `with_parameters` set)."""
        return _parameters(self.allocate)

    def with_parameters(self, values: Mapping[str, Any]) -> RoundPolicy[M]:
        """The policy with these values, each of which must be in its range."""
        _check_known(self, values)
        return replace(self, allocate=partial(self.allocate, **_in_range(self, values))) if values else self


@dataclass(frozen=True, slots=True)
class TaskPolicy:
    """Plans single tasks of training rounds, once, for all jobs of a simulation."""

    name: str
    summary: str  # one sentence
    paper: str
    plan: PlanTasks
    knows: frozenset[Knows] = frozenset()
    ranges: Ranges = field(default_factory=dict)  # the values that each parameter may have

    def __post_init__(self) -> None:
        if self.knows == {Knows.ARRIVALS}:
            raise InputError(
                f"policy {self.name} declares arrivals without lengths, which no input of a plan has; "
                "declare Knows.LENGTHS too, or neither"
            )

    @property
    def level(self) -> Level:
        return Level.TASKS

    @property
    def promises(self) -> frozenset[Promise]:
        """Always empty: promises are about shares."""
        return frozenset()

    @property
    def parameters(self) -> dict[str, Any]:
        """Keyword-only arguments of `plan` with their defaults (or what `with_parameters` set)."""
        return _parameters(self.plan)

    def with_parameters(self, values: Mapping[str, Any]) -> TaskPolicy:
        """The policy with these values, each of which must be in its range."""
        _check_known(self, values)
        return replace(self, plan=partial(self.plan, **_in_range(self, values))) if values else self


# A round policy with any type of memory, as used by decisions, replay and the service.
Policy: TypeAlias = RoundPolicy[Any]
AnyPolicy: TypeAlias = Policy | TaskPolicy


def _parameters(function: Callable[..., object]) -> dict[str, Any]:
    arguments = inspect.signature(function).parameters.values()
    return {argument.name: argument.default for argument in arguments if argument.kind is argument.KEYWORD_ONLY}


def _check_known(policy: AnyPolicy, values: Mapping[str, Any]) -> None:
    known = policy.parameters
    for name in values:
        if name not in known:
            raise InputError(f'policy {policy.name} has no parameter "{name}"; {did_you_mean(name, known)}')


def _in_range(policy: AnyPolicy, values: Mapping[str, Any]) -> dict[str, Any]:
    return accepted(policy.name, policy.ranges, values)
