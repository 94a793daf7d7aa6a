"""Live decisions in a child process, so that a policy may fail and the scheduler may not.

The child is forked with the folded state when a policy begins to decide. From then on it folds the same records, and
keeps the policy's memory and its open solvers; a replica costs a decision less than a fork for each would. When it is
killed, the next policy's child is forked from the scheduler's state, which has never been in danger. What the child
decides is a claim: the scheduler checks it (`rounds/vetting.py`) before it journals it.
"""

from __future__ import annotations

import math
import pickle
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

from fairlead.model.decision import Cause, Decision
from fairlead.model.errors import FairleadError
from fairlead.model.events import Event
from fairlead.model.words import printable
from fairlead.numerics.solve_clock import SolveClock, limited_by
from fairlead.rounds.decide import Memory
from fairlead.rounds.decision_bytes import decision_from_bytes, decision_to_bytes
from fairlead.rounds.loop import HereDecider, Settings
from fairlead.rounds.remembering import MOST_BYTES, memory_to_bytes
from fairlead.rounds.state import State
from fairlead.rounds.vetting import RejectedDecisionError, vet
from fairlead.service.live_policies import PolicyFailedError, configured
from fairlead.service.process.child import Child, ChildFailedError, ChildLimits, Pipe

_EVENTS, _DECIDE = b"e", b"?"  # kinds of frames to the child
_DECISION, _FAILURE = b"d", b"f"  # and from it
_SENT_TOGETHER = 64  # events in a frame: the child folds them while this process journals the next ones
_SOLVE_PART = 0.5  # of the deadline, for all solves of a decision; the rest is for what comes before and after them
_LONGEST_REASON = 500  # characters
_MOST_REMEMBERED = 2 * MOST_BYTES  # deficits are not limited, and come on top of a policy's own memory
# What bytes that are no decision can raise.
_GARBAGE = (ValueError, LookupError, TypeError, ArithmeticError, AttributeError, RecursionError)


@dataclass(frozen=True, slots=True)
class ChosenPolicy:
    """A policy by name, with its parameters, and the files that may define it."""

    name: str
    parameters: Mapping[str, Any]
    files: Sequence[str] = ()


@dataclass(slots=True)
class ChildDecider:
    """Decides in a child process, which may be killed: `PolicyFailedError` says why, and ends its use."""

    child: Child
    remembered: bytes | None = None  # what the policy remembers after its last decision, as `memory_to_bytes` wrote it
    _unsent: list[Event] = field(default_factory=list)
    _failed: str | None = None

    def note(self, event: Event) -> None:
        """Pass the event on. A child that has died is noticed by the next decision, when all events are journalled."""
        self._unsent.append(event)
        if len(self._unsent) >= _SENT_TOGETHER and self._failed is None:
            try:
                self._send_events()
            except ChildFailedError as error:
                self._failed = str(error)

    def decide(self, state: State, cause: Cause) -> Decision:
        if self._failed is not None:
            raise PolicyFailedError(self._failed)
        try:
            self._send_events()
            kind, body = self.child.ask(_DECIDE, pickle.dumps((state.now_s, state.moment, cause)))
        except ChildFailedError as error:
            raise PolicyFailedError(str(error)) from None
        return self._accepted(kind, body, state, cause)

    def close(self) -> None:
        self.child.close()

    def _send_events(self) -> None:
        if self._unsent:
            events, self._unsent = self._unsent, []
            self.child.tell(_EVENTS, pickle.dumps(events))

    def _accepted(self, kind: bytes, body: bytes, state: State, cause: Cause) -> Decision:
        if kind == _FAILURE:
            raise PolicyFailedError(printable(" ".join(body.decode(errors="replace").split()))[:_LONGEST_REASON])
        end = 8 + int.from_bytes(body[:8], "little")
        try:
            decision = decision_from_bytes(body[8:end])
            vet(state, decision, cause)
        except RejectedDecisionError as error:
            raise PolicyFailedError(f"its decision was rejected: {error}") from None
        except _GARBAGE as error:
            raise PolicyFailedError(f"what it sent is no decision ({type(error).__name__})") from None
        # Nobody reads it here: it is kept for simulations.
        self.remembered = body[end:] if len(body) - end <= _MOST_REMEMBERED else None
        return decision


def open_child_decider(
    state: State, policy: ChosenPolicy, settings: Settings, limits: ChildLimits, ends: int | None = None
) -> ChildDecider:
    """A decider that begins with this state and an empty memory. `ends` is a descriptor that hangs up with the service."""
    return ChildDecider(Child(lambda pipe: _serve(pipe, state, policy, settings, limits), limits, ends))


def _serve(pipe: Pipe, state: State, choice: ChosenPolicy, settings: Settings, limits: ChildLimits) -> None:
    """The child: fold events and decide until the scheduler hangs up."""
    with suppress(ConnectionError):
        try:
            policy = configured(choice.name, choice.parameters, choice.files)
            _keep_deciding(pipe, state, HereDecider(policy, settings, Memory()), limits.deadline_s * _SOLVE_PART)
        except ConnectionError:
            raise
        except BaseException as error:  # whatever a policy does, also sys.exit
            reason = str(error) if isinstance(error, FairleadError) else f"{type(error).__name__}: {error}"
            pipe.send(_FAILURE, reason[:_LONGEST_REASON].encode(errors="replace"), math.inf)
        while True:  # the reason is the answer to the next question
            pipe.receive(math.inf)


def _keep_deciding(pipe: Pipe, state: State, decider: HereDecider, solve_s: float) -> NoReturn:
    while True:
        kind, body = pipe.receive(math.inf)
        if kind == _EVENTS:
            for event in pickle.loads(body):
                state.fold(event)
        else:
            decision = decide_by_clock(decider, state, pickle.loads(body), solve_s)
            body = decision_to_bytes(decision)
            memory = memory_to_bytes(decider.memory, decider.policy)
            pipe.send(_DECISION, b"".join((len(body).to_bytes(8, "little"), body, memory)), math.inf)
            state.fold(decision)


def decide_by_clock(decider: HereDecider, state: State, question: tuple[float, int, Cause], solve_s: float) -> Decision:
    """The decision; one that the clock cut short says so and leaves no memory, because nobody can repeat it."""
    now_s, moment, cause = question
    if state.moment != moment:
        raise FairleadError(f"it has folded {state.moment} records and the scheduler {moment}")
    state.pass_time(now_s)
    until_s = time.monotonic() + solve_s
    with limited_by(SolveClock(lambda: until_s - time.monotonic())) as clock:
        decision = decider.decide(state, cause)
    if not clock.cut_short:
        return decision
    decider.memory = Memory()
    return replace(decision, by_clock=True)
