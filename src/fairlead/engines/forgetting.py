"""Lets the state forget jobs that have ended, and follows the new positions of the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import numpy as np

from fairlead.engines.situation import Situation
from fairlead.model.arrays import IntArray
from fairlead.model.lifecycle import ENDED

_T = TypeVar("_T")


def forget_ended(s: Situation, forget: Callable[[IntArray], None]) -> None:
    """Forget ended jobs without leases; not while events wait, because these refer to jobs by their positions."""
    if s.outbox.waiting:
        return
    ended = np.flatnonzero(np.isin(s.state.phase[: s.state.jobs], ENDED))
    ended = ended[~np.isin(ended, s.fleet.jobs())]
    if not ended.size:
        return
    ids = [s.state.specs[j].id for j in ended.tolist()]
    stay = np.delete(np.arange(s.state.jobs), ended)
    forget(ended)
    position = {j: place for place, j in enumerate(stay.tolist())}
    s.fleet.renumber(position, ids)
    s.outbox.renumber(position)
    s.starts = _renumbered(s.starts, position)
    s.wishes = _renumbered(s.wishes, position)


def _renumbered(table: Mapping[int, _T], position: Mapping[int, int]) -> dict[int, _T]:
    return {position[j]: value for j, value in table.items() if j in position}
