"""What would help a waiting job: each remedy is simulated from the present state before it is offered.

A simulation assumes that running jobs keep their speeds and lengths, and that no job arrives but those that a journal
records later. It ends as soon as the job starts, so that most of them are short.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace

from fairlead.model.errors import FairleadError
from fairlead.model.explanation import Explanation, Remedy
from fairlead.model.lifecycle import Phase
from fairlead.model.outcomes import Reason
from fairlead.model.units import format_duration
from fairlead.rounds.state import State
from fairlead.studies.explaining.candidates import Candidate, candidates
from fairlead.studies.explaining.explain import SLURM_DECIDES, explain, left_unchecked
from fairlead.studies.runs.origin import Origin
from fairlead.studies.what_if.changes import Hypothetical
from fairlead.studies.what_if.forward import forward

HORIZON_S = 7 * 86_400.0  # a start that is further away is not looked for
WORTH = 0.1  # a remedy must shorten the rest of the wait by this part
# Without a change these do not start, or when is not up to the scheduler.
_WITHOUT_CHANGE = (Reason.HELD, Reason.BACK_OFF, Reason.NEVER_FITS)


class _JobStarted(Exception):  # noqa: N818  the end of a search, not an error
    def __init__(self, time_s: float) -> None:
        self.time_s = time_s


class _OutOfTime(Exception):  # noqa: N818
    pass


def explain_with_remedies(
    origin: Origin, job: str, tenant: str | None = None, *, limit_s: float = math.inf
) -> Explanation:
    """The explanation at the origin's time, with remedies. Simulations end after `limit_s` seconds of this machine."""
    answer = explain(origin.state, origin.settings, job, tenant)
    j = origin.state.position[job]
    if Phase(int(origin.state.phase[j])) not in (Phase.WAITING, Phase.HELD) or origin.state.served:
        return answer
    if origin.header.more.get("shadow"):
        return left_unchecked(answer, SLURM_DECIDES)
    give_up_s = time.monotonic() + limit_s
    try:
        return _with_remedies(answer, origin, j, give_up_s)
    except FairleadError as error:
        return replace(answer, unchecked=f"remedies cannot be simulated: {error}")


def _with_remedies(answer: Explanation, origin: Origin, j: int, give_up_s: float) -> Explanation:
    state, expected_s = origin.state, None
    try:
        if Reason(int(state.reason[j])) not in _WITHOUT_CHANGE:
            expected_s = _start_s(origin, (), answer.job, HORIZON_S, give_up_s)
    except _OutOfTime:
        return replace(answer, unchecked="the simulation took too long, so that no remedy was checked")
    answer = replace(answer, expected_s=expected_s)
    wait_s = HORIZON_S if expected_s is None else (1 - WORTH) * (expected_s - state.now_s)
    remedies, tried = list[Remedy](), candidates(origin, j) if wait_s > 0 else []
    for number, candidate in enumerate(tried):
        try:
            start_s = _checked_start_s(origin, candidate, wait_s, give_up_s)
        except _OutOfTime:
            left = len(tried) - number
            return replace(answer, remedies=tuple(remedies), unchecked=f"time was too short to check {left} more")
        if start_s is not None:
            remedies.append(_remedy(candidate, start_s, state.now_s))
    return replace(answer, remedies=tuple(remedies))


def _checked_start_s(origin: Origin, candidate: Candidate, wait_s: float, give_up_s: float) -> float | None:
    try:
        return _start_s(origin, candidate.changes, candidate.starts, wait_s, give_up_s)
    except FairleadError:  # such as a width at which the job runs nowhere
        return None


def _start_s(
    origin: Origin, changes: tuple[Hypothetical, ...], job: str, horizon_s: float, give_up_s: float
) -> float | None:
    """When the job starts after the changes; None if not within the horizon."""
    try:
        forward(origin, changes, horizon_s=horizon_s, tick=_watch(job, give_up_s))
    except _JobStarted as start:
        return start.time_s
    return None


def _watch(job: str, give_up_s: float) -> Callable[[State], None]:
    def tick(state: State) -> None:
        j = state.position.get(job)
        if j is not None and state.held_gpus[j]:
            raise _JobStarted(state.now_s)
        if time.monotonic() > give_up_s:
            raise _OutOfTime

    return tick


def _remedy(candidate: Candidate, start_s: float, now_s: float) -> Remedy:
    when = "at once" if start_s <= now_s else f"in about {format_duration(start_s - now_s)}"
    sentence = f"{candidate.what}: starts {when}{candidate.so_far}"
    return Remedy(candidate.kind, sentence, candidate.command, candidate.by, start_s)
