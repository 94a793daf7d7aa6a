"""The fold of why jobs wait, and each reason as a sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.model.arrays import IntArray
from fairlead.model.outcomes import Outcomes, Reason
from fairlead.model.units import format_duration
from fairlead.model.words import counted

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


def reason_sentence(state: State, j: int) -> str | None:
    """`Order: 12 jobs ...` for a job that waits: the code, and its numbers in words. None where there is no reason."""
    reason = Reason(int(state.reason[j]))
    if reason is Reason.UNDECIDED:
        return None
    wanted = counted(int(state.width[j]), "GPU")
    free, a, b = int(state.reason_free[j]), float(state.reason_a[j]), float(state.reason_b[j])
    until = format_duration(max(b - float(state.reason_s[j]), 0.0)) if reason is Reason.MIN_RUN else ""
    sentences = {
        Reason.CAPACITY: f"it asks for {wanted} of one type, and {free} are free",
        Reason.FRAGMENTED: f"{counted(free, 'GPU')} of a type are free, and no node has more than {a:g} of the {wanted} wanted",
        Reason.SHARE: f"its owner holds {counted(round(b), 'GPU')} for a share of {a:.3g}; its turn will come",
        Reason.ORDER: f"{counted(round(a), 'job')} that the policy serves first hold {b:g} of the GPUs it could use",
        Reason.QUOTA: f"its tenant holds {a:g} of the {b:g} GPUs of the type that it may hold",
        Reason.HELD: "its owner put it on hold",
        Reason.WINDOW: f"the policy considered {counted(round(a), 'job')} before it",
        Reason.MIN_RUN: f"jobs that started a moment ago hold {a:g} of the GPUs it could use; the first may move in {until}",
        Reason.NODE_DOWN: f"it asks for {wanted} of one type, and {b:g} are on nodes that are up",
        Reason.NEVER_FITS: f"no GPU type of this cluster can run it on {wanted}",
    }
    return f"{reason.code}: {sentences[reason]}"
