"""Colours of tenants and GPU types: the same on every page, distinct for every common kind of colour blindness.

A page refers to them by class (`c0` to `c7`, `cx`), and the style sheet has a value for the light and the dark theme.
Names beyond the eighth share one grey and are distinguished by their text, which is always there.
"""

from __future__ import annotations

from collections.abc import Iterable

MOST = 8
OTHERS = "cx"


def colour_classes(names: Iterable[str]) -> dict[str, str]:
    """The class of each name, in alphabetical order, so that it is stable while no name is added."""
    return {name: f"c{n}" if n < MOST else OTHERS for n, name in enumerate(sorted(set(names)))}
