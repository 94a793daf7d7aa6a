"""The fold of why jobs wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.model.arrays import IntArray
from fairlead.model.outcomes import Outcomes, Reason

if TYPE_CHECKING:
    from fairlead.rounds.state import State


def note_outcomes(state: State, outcomes: Outcomes, time_s: float) -> None:
    jobs = outcomes.job
    if not jobs.size:
        return
    state.reason[jobs] = outcomes.reason
    state.reason_s[jobs] = time_s
    state.reason_free[jobs] = outcomes.free
    state.reason_a[jobs] = outcomes.a
    state.reason_b[jobs] = outcomes.b
    if outcomes.terms is not None:
        rows = (dict(zip(outcomes.labels, row, strict=True)) for row in outcomes.terms.tolist())
        state.terms.update(zip(jobs.tolist(), rows, strict=True))


def set_reason(state: State, jobs: IntArray, reason: Reason, time_s: float) -> None:
    """A reason that needs no numbers and no decision."""
    state.reason[jobs] = reason
    state.reason_s[jobs] = time_s
    state.reason_free[jobs] = 0
    state.reason_a[jobs] = state.reason_b[jobs] = 0.0
    if state.terms:
        for j in jobs.tolist():
            state.terms.pop(j, None)
