"""A policy that decides like `fifo`, unless it has to fail."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from fairlead.model.allocation import Allocation
from fairlead.model.errors import InputError
from fairlead.model.view import View
from fairlead.policies import REGISTRY, ROUND_POLICIES

NAME = "fails-when-asked"
POLICIES = ("fifo", "fifo", "las", "las", "equal-share", "srtf", "oef-coop", "gavel", NAME)  # of a history
REFUSES, CRASHES = "refuses", "crashes"
FAILS: list[str | None] = [None]  # how, at the moment


class PolicyCrashError(RuntimeError):
    """A mistake in a policy, which ends the scheduler."""


def _allocate(view: View, memory: object) -> tuple[Allocation, object]:
    if FAILS[0] == REFUSES:
        raise InputError("it cannot decide with these parameters")
    if FAILS[0] == CRASHES:
        raise PolicyCrashError("division by nothing")
    return ROUND_POLICIES["fifo"].allocate(view, memory)


@contextmanager
def registered() -> Iterator[None]:
    """Register the policy for as long as a history takes: other tests run over all registered policies."""
    REGISTRY[NAME] = ROUND_POLICIES[NAME] = replace(ROUND_POLICIES["fifo"], name=NAME, allocate=_allocate)
    try:
        yield
    finally:
        del REGISTRY[NAME], ROUND_POLICIES[NAME]
