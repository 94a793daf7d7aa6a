"""Parameters of policies as text, such as `kappa=2`: each is read as the type of its default value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fairlead.model.errors import InputError
from fairlead.model.words import parse_pairs
from fairlead.policies.policy import AnyPolicy


def parse_parameters(pairs: Sequence[str], policy: AnyPolicy | None) -> dict[str, Any]:
    """Parameters of the policy, each parsed as the type of its default value; their ranges are not checked here.

    If only a service knows the policy (None), they are parsed as numbers where possible.
    """
    known = {} if policy is None else policy.parameters
    values = {name: _parse_like(known.get(name), text) for name, text in parse_pairs(pairs, "--param").items()}
    for name, value in values.items():
        if (
            policy is not None
            and name not in policy.ranges
            and isinstance(known.get(name), (int, float, tuple))
            and isinstance(value, str)
        ):
            raise InputError(f'--param {name}: "{value}" is not a value like {known[name]!r}')
    return values


def _parse_like(default: Any, text: str) -> Any:
    """The text as a value like the default, or unchanged if it is none."""
    try:
        if isinstance(default, bool):
            return {"true": True, "false": False}[text.lower()]
        if isinstance(default, int):
            return int(text)
        if isinstance(default, float):
            return float(text)
        if default is None:
            return _number_or_text(text)
        if isinstance(default, tuple):
            return tuple(float(part) for part in text.split(","))
    except (ValueError, KeyError):
        pass
    return text


def _number_or_text(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text
