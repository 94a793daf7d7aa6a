"""The policy seam: who should hold what. A policy is pure; what it wants to remember it returns and gets back."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Any

from fairlead.model.allocation import Level
from fairlead.model.errors import InputError
from fairlead.model.words import did_you_mean

# allocate(view, memory) -> (allocation, memory); memory is None at first. At level tasks it is asked once, for all jobs:
# allocate(jobs, None) -> (plan, None), where jobs are an `Instance`, or without knowledge of lengths a `Known`.
Allocate = Callable[..., tuple[Any, Any]]


class Knows(StrEnum):
    """What the view shows a policy beyond the present."""

    LENGTHS = "lengths"  # samples asked for and done
    ARRIVALS = "arrivals"  # jobs that have not come yet


class Promise(StrEnum):
    """What a policy of level shares declares of every division that it makes; docs/promises.md has them in words."""

    NO_ENVY = "no envy"
    SHARING_INCENTIVE = "sharing incentive"
    NO_WASTE = "no waste"
    NO_EXAGGERATION = "exaggerating does not pay"


@dataclass(frozen=True, slots=True)
class Policy:
    name: str
    summary: str  # one sentence
    paper: str
    level: Level
    allocate: Allocate
    knows: frozenset[Knows] = frozenset()
    promises: frozenset[Promise] = frozenset()

    @property
    def parameters(self) -> dict[str, Any]:
        """Keyword-only arguments of `allocate` with their defaults (or what `with_parameters` set)."""
        found = inspect.signature(self.allocate).parameters.values()
        return {p.name: p.default for p in found if p.kind is p.KEYWORD_ONLY}

    def with_parameters(self, given: Mapping[str, Any]) -> Policy:
        known = self.parameters
        for name in given:
            if name not in known:
                raise InputError(f'policy {self.name} has no parameter "{name}"; {did_you_mean(name, known)}')
        return replace(self, allocate=partial(self.allocate, **given)) if given else self
