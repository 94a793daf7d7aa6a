"""Assumptions under which a run was made, where not all runs share them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Assumption:
    """A rule of one kind of run that other runs do not have; results under different rules are not ranked together."""

    name: str  # two or three words, such as `fast switching`
    sentence: str
