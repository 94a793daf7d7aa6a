"""Policies of a notebook: functions that become policies, and the ways to name one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from fairlead.model.allocation import Level
from fairlead.model.errors import InputError
from fairlead.model.words import choose
from fairlead.policies.policy import AnyPolicy, Knows, Policy, RoundPolicy, TaskPolicy
from fairlead.studies.policy_lab.plugins import PolicyRef, load_policy, refer

AnyReference: TypeAlias = AnyPolicy | str
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?", re.IGNORECASE)


def policy(
    *, level: Level | str, name: str | None = None, knows: Iterable[Knows | str] = (), paper: str = "made up"
) -> Callable[[Callable[..., Any]], Policy]:
    """Turn a function `(view, memory, *, parameters...) -> (allocation, memory)` into a policy of that level.

        @fairlead.policy(level="grants")
        def mine(view, memory):
            "One sentence about it."
            ...

    The policy has the name of the function with dashes, its first sentence as the summary, and its keyword-only arguments
    as parameters. `knows` has `lengths` if the view shall have the lengths of jobs.
    """

    def decorate(function: Callable[..., Any]) -> Policy:
        own = name or function.__name__.replace("_", "-")
        summary = " ".join((function.__doc__ or own).split()).partition(". ")[0].rstrip(".") + "."
        return RoundPolicy(
            own,
            summary,
            paper,
            Level(choose("level", str(level), Level)),
            function,
            frozenset(Knows(choose("knows", str(one), Knows)) for one in knows),
        )

    return decorate


def load(reference: AnyReference) -> AnyPolicy:
    """The policy itself, or the one of a name or of FILE.py:NAME, either with parameters such as `fft:kappa=2`."""
    return load_policy(reference) if isinstance(reference, str) else reference


def reference_of(reference: AnyReference) -> PolicyRef:
    """The same in a form that a comparison can send to other processes; a value stays in this one."""
    if isinstance(reference, str):
        return refer(reference)
    if isinstance(reference, RoundPolicy | TaskPolicy):
        return PolicyRef(reference.name, value=reference)
    raise InputError(f"a policy is a name, FILE.py:NAME or a policy, not a {type(reference).__name__}")


def split_policies(text: str) -> list[str]:
    """The policies of `all,mine.py:policy,fft:kappa=2,rho=1`: a word such as `rho=1`, or a number, belongs to the one before."""
    words: list[str] = []
    for word in (part.strip() for part in text.split(",")):
        in_parameters = bool(words) and "=" in words[-1]
        if in_parameters and (re.match(r"\w+=", word) or _NUMBER.fullmatch(word)):
            words[-1] += f",{word}"
        elif word:
            words.append(word)
    return words
