"""The part of the fold that records why jobs wait, and the reason of a job as a sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.model.arrays import IntArray
from fairlead.model.outcomes import Outcomes, Reason, sentence

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
    if outcomes.terms is None:
        _forget_terms(state, jobs)
    else:
        rows = (dict(zip(outcomes.labels, row, strict=True)) for row in outcomes.terms.tolist())
        state.terms.update(zip(jobs.tolist(), rows, strict=True))


def set_reason(state: State, jobs: IntArray, reason: Reason, time_s: float, a: float = 0.0, b: float = 0.0) -> None:
    """Set a reason that needs no decision."""
    state.reason[jobs] = reason
    state.reason_s[jobs] = time_s
    state.reason_free[jobs] = 0
    state.reason_a[jobs], state.reason_b[jobs] = a, b
    _forget_terms(state, jobs)


def _forget_terms(state: State, jobs: IntArray) -> None:
    for j in jobs.tolist() if state.terms else ():
        state.terms.pop(j, None)


def reason_sentence(state: State, j: int) -> str | None:
    """Why a job waits, as a code and a sentence: `Order: 12 jobs ...`. None if there is no reason."""
    reason = Reason(int(state.reason[j]))
    numbers = (float(column[j]) for column in (state.reason_a, state.reason_b, state.reason_s))
    words = sentence(reason, int(state.width[j]), int(state.reason_free[j]), *numbers)
    cause = state.pauses[j].cause if reason is Reason.BACK_OFF and j in state.pauses else ""
    return None if words is None else f"{reason.code}: {words}{f' ({cause})' if cause else ''}"
