"""The values that a policy's parameters may have. A policy declares them next to itself, as its `ranges`:

    RoundPolicy(..., ranges={"kappa": Number(0.0, 1e6), "crowd": Word("now", "mean"), "exact": FLAG})

A range describes itself in messages, and `accept` returns the value in the type that the policy expects.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

from fairlead.model.errors import InputError


class Range(Protocol):
    """The values of one parameter."""

    def accept(self, value: Any) -> Any:
        """The value as the policy expects it; raises ValueError if it is not in the range."""

    def __str__(self) -> str:
        """The range in words: `a number from 0 to 1`."""


Ranges = Mapping[str, Range]


@dataclass(frozen=True, slots=True)
class Number:
    """A number from `low` to `high`, both included."""

    low: float
    high: float

    def accept(self, value: Any) -> float:
        return float(_between(self.low, value, self.high))

    def __str__(self) -> str:
        return f"a number from {self.low:g} to {self.high:g}"


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number from `low` to `high`, both included."""

    low: int
    high: int

    def accept(self, value: Any) -> int:
        number = _between(self.low, value, self.high)
        if number != math.floor(number):
            raise ValueError
        return int(number)

    def __str__(self) -> str:
        return f"a whole number from {self.low:g} to {self.high:g}"


@dataclass(frozen=True, slots=True)
class Ascending:
    """Numbers from `low` to `high`, each larger than the one before it; perhaps none."""

    low: float
    high: float

    def accept(self, value: Any) -> tuple[float, ...]:
        if not isinstance(value, (list, tuple)):
            raise ValueError
        numbers = tuple(float(_between(self.low, number, self.high)) for number in value)
        if any(after <= before for before, after in pairwise(numbers)):
            raise ValueError
        return numbers

    def __str__(self) -> str:
        return f"ascending numbers from {self.low:g} to {self.high:g}"


class Word:
    """One of several words."""

    def __init__(self, *words: str) -> None:
        self.words = words

    def accept(self, value: Any) -> str:
        if value not in self.words:
            raise ValueError
        return str(value)

    def __str__(self) -> str:
        return " or ".join(self.words)


class _Flag:
    def accept(self, value: Any) -> bool:
        if not isinstance(value, bool):
            raise ValueError
        return value

    def __str__(self) -> str:
        return "true or false"


FLAG = _Flag()


@dataclass(frozen=True, slots=True)
class Maybe:
    """A value of the range, or nothing, which is the default."""

    range: Range

    def accept(self, value: Any) -> Any:
        return None if value is None else self.range.accept(value)

    def __str__(self) -> str:
        return str(self.range)


def accepted(policy: str, ranges: Ranges, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values as the policy expects them. Raises InputError, which names the parameter, the value and the range."""
    return {name: _accepted(policy, name, ranges.get(name), value) for name, value in values.items()}


def _accepted(policy: str, name: str, range_: Range | None, value: Any) -> Any:
    if range_ is None:
        return tuple(value) if isinstance(value, list) else value
    try:
        return range_.accept(value)
    except (ValueError, TypeError, OverflowError):
        raise InputError(f"policy {policy}: {name} is {value!r:.100}; wanted {range_}") from None


def _between(low: float, value: Any, high: float) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        raise ValueError
    return value
