"""The one loop: wait, fold, decide, journal, apply. It drives the simulator and live engines alike."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from fairlead.model.decision import Cause, Decision
from fairlead.model.events import Event, Progress, Started, Stopped
from fairlead.model.words import choose
from fairlead.placement.pack import PLACERS
from fairlead.policies.policy import Policy
from fairlead.rounds.decide import Memory, Rules, decide
from fairlead.rounds.look import look
from fairlead.rounds.state import State


class Engine(Protocol):
    """The world. Times are seconds; `wait` returns what happened at the next instant up to `until_s`, or nothing.

    None ends the loop; so does nothing at all when there is nothing to wait for.
    """

    def now(self) -> float: ...

    def wait(self, until_s: float) -> list[Event] | None: ...

    def apply(self, decision: Decision) -> None: ...


class Journal(Protocol):
    """Told of everything before it is acted upon."""

    def event(self, event: Event) -> None: ...

    def decision(self, decision: Decision) -> None: ...


# Engines confirm what was asked with these; they are no reason to decide again.
QUIET = (Started, Stopped, Progress)


class When(StrEnum):
    ROUNDS = "rounds"
    EVENTS = "events"


@dataclass(frozen=True, slots=True)
class Settings:
    round_s: float = 360.0
    when: When = When.ROUNDS
    min_run_s: float = 0.0
    placer: str = "pack"  # of `PLACERS`
    # Where single tasks are decided: about how long one takes on the fastest type, and which part of that a GPU needs to
    # turn from one job to another, unless a cost of moves is given.
    task_s: float = 60.0
    task_switch: float = 0.03

    @property
    def rules(self) -> Rules:
        return Rules(self.min_run_s, PLACERS[choose("placer", self.placer, PLACERS)])


def settings_from_json(record: Mapping[str, Any]) -> Settings:
    """Settings as a journal's header holds them; older ones have `scatter` instead of a placer."""
    values = {**record, "when": When(record["when"])}
    if values.pop("scatter", False):
        values["placer"] = "scatter"
    return Settings(**values)


@dataclass(frozen=True, slots=True)
class Carried:
    """What the loop takes along from one decision to the next, beside the folded state."""

    memory: Memory
    due_s: float  # when the last decision should be looked at again
    last_s: float  # the last round boundary that was decided

    @classmethod
    def fresh(cls, state: State) -> Carried:
        """Nothing is remembered, and jobs that are there have seen no decision of ours."""
        return cls(Memory(), state.now_s if state.active else math.inf, -math.inf)


@dataclass(slots=True)
class Run:
    """What a run leaves behind beside its journal."""

    rounds: int = 0  # round boundaries at which a job was active, decided or not
    decision_cpu_s: list[float] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # what was assumed
    carried: Carried | None = None  # for a run that continues from the folded state


def run(
    engine: Engine,
    state: State,
    policy: Policy,
    settings: Settings,
    journal: Journal,
    tick: Callable[[State], None] | None = None,
    carried: Carried | None = None,
    *,
    explain: bool = True,
) -> Run:
    """Until nothing can happen any more, or the engine says so. `tick` is told after every decision, for progress bars.

    With `carried` it continues where a run that ended with it stopped; otherwise memory and deficits start empty.
    """
    result = Run()
    begin = carried or Carried.fresh(state)
    memory, due_s, last_s = begin.memory, begin.due_s, begin.last_s
    while True:
        # News of an empty cluster made a decision due that nobody took: it is due now, not back then.
        wake_s = next_boundary(max(due_s, state.now_s), last_s, settings.round_s) if state.active else math.inf
        events = engine.wait(wake_s)
        now_s = engine.now()
        if state.active:
            result.rounds += boundaries(state.now_s, now_s, settings.round_s)
        if events is None or (not events and wake_s == math.inf):
            result.carried = Carried(memory, due_s, last_s)
            return result
        for event in events:
            journal.event(event)
            state.fold(event)
        news = any(not isinstance(event, QUIET) for event in events)
        if news:
            due_s = min(due_s, now_s)
        if not events:
            cause = Cause.ROUND
        elif news and settings.when == When.EVENTS and state.someone_could_start():
            if next_boundary(now_s, last_s, settings.round_s) == now_s:
                continue  # the round itself is decided in this very instant
            cause = Cause.EVENT
        else:
            continue
        state.pass_time(now_s)
        started_s = time.process_time()
        decision, memory = decide(
            look(state, policy, settings.round_s), policy, memory, cause, settings.rules, explain=explain
        )
        result.decision_cpu_s.append(time.process_time() - started_s)
        journal.decision(decision)
        state.fold(decision)
        engine.apply(decision)
        if cause is Cause.ROUND:
            due_s, last_s = next_due_s(state, decision), now_s
        if tick is not None:
            tick(state)


def next_due_s(state: State, decision: Decision) -> float:
    """When a decision of a round, folded just now, should be looked at again if nothing happens.

    With nothing running and nothing started only an event brings news, or a time that the policy waits for.
    """
    waits = state.running or decision.holds_until_s > decision.time_s
    return decision.holds_until_s if waits else math.inf


def next_boundary(due_s: float, last_s: float, round_s: float) -> float:
    """The first multiple of the round at or after `due_s`, and after the last one."""
    if due_s == math.inf:
        return math.inf
    number = math.ceil(due_s / round_s - _SAME)
    if last_s > -math.inf:
        number = max(number, round(last_s / round_s) + 1)
    return max(due_s, number * round_s)  # never by adding rounds up: when a round begins must not depend on the past


def boundaries(from_s: float, to_s: float, round_s: float) -> int:
    """Round boundaries in [from, to)."""
    return math.ceil(to_s / round_s - _SAME) - math.ceil(from_s / round_s - _SAME)


# Multiples of the round are found by division: this many rounds apart is the same boundary.
_SAME = 1e-9
