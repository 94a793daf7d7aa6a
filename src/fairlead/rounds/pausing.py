"""The part of the fold in which jobs pause before they are started again, after starts that came to nothing.

Engines count and choose the time, so that a replay needs no rule. Until then the job is hidden from policies.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fairlead.model.events import Lost, Refused
from fairlead.model.outcomes import Reason
from fairlead.rounds.waiting import set_reason

if TYPE_CHECKING:
    from fairlead.rounds.state import State


@dataclass(frozen=True, slots=True)
class Pause:
    until_s: float
    cause: str  # how the last start ended


def note_setback(state: State, event: Lost | Refused) -> None:
    state.setbacks[event.jobs] = event.setbacks
    if isinstance(event, Refused):
        state.refusals[event.jobs] += event.setbacks > 0
    if event.again_s is None:
        return
    state.pauses.update((j, Pause(event.again_s, event.reason)) for j in event.jobs.tolist())
    set_reason(state, event.jobs, Reason.BACK_OFF, event.time_s, float(event.setbacks), event.again_s)


def end_pauses(state: State, jobs: Iterable[int]) -> None:
    """End the pauses of those of these jobs that have one."""
    over = [j for j in jobs if state.pauses.pop(j, None) is not None]
    still = np.array([j for j in over if state.reason[j] == Reason.BACK_OFF], dtype=np.int64)
    if still.size:
        set_reason(state, still, Reason.UNDECIDED, state.now_s)
