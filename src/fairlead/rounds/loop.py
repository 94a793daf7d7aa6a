"""The scheduling loop: wait, fold, decide, journal, apply. It drives both the simulator and live engines."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any, Protocol

from fairlead.model.assumptions import Assumption
from fairlead.model.decision import Cause, Decision
from fairlead.model.events import Event, FirstProgress, Forgotten, Progress, Renumbered, Started, Stopped
from fairlead.model.pre_emption import PreemptionLimits
from fairlead.model.trial_jobs import CHECK_SHARE
from fairlead.model.words import choose
from fairlead.placement.pack import PLACERS
from fairlead.policies.policy import Policy
from fairlead.rounds.decide import Memory, Rules, decide
from fairlead.rounds.due_checks import next_check_s
from fairlead.rounds.look import look
from fairlead.rounds.state import State


class Engine(Protocol):
    """What runs jobs. Times are seconds; `wait` returns the events of the next instant up to `until_s`, if any.

    None ends the loop; so does an empty list when there is nothing to wait for.
    """

    def now(self) -> float: ...

    def wait(self, until_s: float) -> list[Event] | None: ...

    def apply(self, decision: Decision) -> None: ...


class Journal(Protocol):
    """Receives every event and decision before it takes effect."""

    def event(self, event: Event) -> None: ...

    def decision(self, decision: Decision) -> None: ...


class Decider(Protocol):
    """Decides for a loop, and keeps what its policy remembers."""

    def decide(self, state: State, cause: Cause) -> Decision:
        """The decision of this instant. The loop journals it, and the state folds it, before the next call."""


# Engines confirm commands with these events, and the log keeps its books; none calls for a new decision.
QUIET = (Started, Stopped, Progress, FirstProgress, Forgotten, Renumbered)


class When(StrEnum):
    ROUNDS = "rounds"
    EVENTS = "events"


class Switching(StrEnum):
    """What a GPU pays when its next task belongs to another job."""

    RESTART = "restart"  # the job's restart cost, as everywhere else
    FAST = "fast"  # a small part of a task: warm contexts and resident models


@dataclass(frozen=True, slots=True)
class Settings:
    round_s: float = 360.0
    when: When = When.ROUNDS
    min_run_s: float = 0.0
    placer: str = "pack"  # a key of `PLACERS`
    # For task-level policies: about how long a task takes on the fastest type, what a GPU pays when it changes to another
    # job, and the part of a task that it pays if switching is fast.
    task_s: float = 60.0
    task_switch: float = 0.03
    switching: Switching = Switching.RESTART
    trial_s: float | None = None  # time to measure a new model on a type, for any policy; None: as the policy declares
    check_share: float = CHECK_SHARE  # part of a tenant's GPU time that checks of its declared speeds may take; 0: none
    # What pre-emption may cost in an hour, GPU-seconds: in all, and for the jobs of any one tenant; None: no limit
    preemption_gpu_s: float | None = None
    tenant_preemption_gpu_s: float | None = None

    @property
    def rules(self) -> Rules:
        return Rules(self.min_run_s, PLACERS[choose("placer", self.placer, PLACERS)], self.pre_emption)

    @property
    def pre_emption(self) -> PreemptionLimits:
        in_all, of_tenant = self.preemption_gpu_s, self.tenant_preemption_gpu_s
        return PreemptionLimits(*(math.inf if limit is None else limit for limit in (in_all, of_tenant)))

    def applied_to(self, policy: Policy) -> Policy:
        """The policy, which tries new models for as long as these settings demand."""
        return policy if self.trial_s is None else replace(policy, trial_s=self.trial_s)


def settings_to_json(settings: Settings) -> dict[str, Any]:
    """For a journal's header. What is left to the policy is omitted."""
    return {name: value for name, value in asdict(settings).items() if value is not None}


def settings_from_json(record: Mapping[str, Any]) -> Settings:
    """The settings in a journal's header; older headers have `scatter` instead of a placer, switched fast and did not check."""
    switching = Switching(record.get("switching", Switching.FAST))
    values = {"check_share": 0.0, **record, "when": When(record["when"]), "switching": switching}
    if values.pop("scatter", False):
        values["placer"] = "scatter"
    return Settings(**values)


@dataclass(frozen=True, slots=True)
class Carried:
    """What the loop carries from one decision to the next, in addition to the folded state."""

    memory: Memory
    due_s: float  # when the last decision should be reviewed
    last_s: float  # the last round boundary that was decided

    @classmethod
    def fresh(cls, state: State) -> Carried:
        """The start of a run: an empty memory, and a decision due now if there are active jobs."""
        return cls(Memory(), state.now_s if state.active else math.inf, -math.inf)


@dataclass(slots=True)
class Run:
    """The result of a run, in addition to its journal."""

    rounds: int = 0  # round boundaries at which a job was active, decided or not
    decision_cpu_s: list[float] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # facts about the run that its results depend on
    assumed: tuple[Assumption, ...] = ()  # rules that runs of other policies do not have
    carried: Carried | None = None  # for a run that continues from the folded state


class HereDecider:
    """Decides in this process, with a memory that can be carried to another run."""

    def __init__(self, policy: Policy, settings: Settings, memory: Memory, *, explain: bool = True) -> None:
        self.policy, self._settings, self._explain = settings.applied_to(policy), settings, explain
        self.memory = memory

    def decide(self, state: State, cause: Cause) -> Decision:
        view = look(state, self.policy, self._settings.round_s, self._settings.check_share)
        decision, self.memory = decide(
            view, self.policy, self.memory, cause, self._settings.rules, explain=self._explain
        )
        return decision


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
    """Run until nothing more can happen or the engine ends it. `tick` is called after every decision (progress bars).

    With `carried` the run continues where an earlier one ended; otherwise memory and deficits start empty.
    """
    begin = carried or Carried.fresh(state)
    decider = HereDecider(policy, settings, begin.memory, explain=explain)
    result = run_with(decider, engine, state, settings, journal, tick, begin)
    assert result.carried is not None, "a run that ends says where it can be continued"
    result.carried = replace(result.carried, memory=decider.memory)
    return result


def run_with(
    decider: Decider,
    engine: Engine,
    state: State,
    settings: Settings,
    journal: Journal,
    tick: Callable[[State], None] | None = None,
    carried: Carried | None = None,
) -> Run:
    """Like `run`, with a decider that remembers by itself: the memory in `carried` is neither read nor changed."""
    result, begin = Run(), carried or Carried.fresh(state)
    due_s, last_s = begin.due_s, begin.last_s
    while True:
        # Events on an empty cluster made a decision due that was not taken: it is due now, not back then.
        wake_s = next_boundary(max(due_s, state.now_s), last_s, settings.round_s) if state.active else math.inf
        events = engine.wait(wake_s)
        now_s = engine.now()
        if state.active:
            result.rounds += boundaries(state.now_s, now_s, settings.round_s)
        if events is None or (not events and wake_s == math.inf):
            result.carried = Carried(begin.memory, due_s, last_s)
            return result
        rates = state.measured.version
        for event in events:
            journal.event(event)
            state.fold(event)
        news = any(not isinstance(event, QUIET) for event in events)
        if news or state.measured.version != rates:
            due_s = min(due_s, now_s)
        if not events:
            cause = Cause.ROUND
        elif news and settings.when == When.EVENTS and state.someone_could_start():
            if next_boundary(now_s, last_s, settings.round_s) == now_s:
                continue  # the round itself is decided at this instant
            cause = Cause.EVENT
        else:
            continue
        state.pass_time(now_s)
        started_s = time.process_time()
        decision = decider.decide(state, cause)
        result.decision_cpu_s.append(time.process_time() - started_s)
        journal.decision(decision)
        state.fold(decision)
        engine.apply(decision)
        if cause is Cause.ROUND:
            due_s, last_s = next_due_s(state, decision, settings), now_s
        if tick is not None:
            tick(state)


def next_due_s(state: State, decision: Decision, settings: Settings) -> float:
    """When a round's decision, just folded, should be reviewed if nothing happens.

    If nothing runs, only an event or a time that the policy waits for can change anything; if no job that is left can run
    on this cluster, only an event can. Measured rates that still move call for the next round, and a check that is due for
    its round.
    """
    if state.measured.moves and state.running:
        return decision.time_s
    waits = state.running or (decision.holds_until_s > decision.time_s and state.schedulable()[0].size)
    due_s = decision.holds_until_s if waits else math.inf
    return min(due_s, next_check_s(state, settings.round_s, settings.check_share)) if due_s > decision.time_s else due_s


def next_boundary(due_s: float, last_s: float, round_s: float) -> float:
    """The first multiple of the round length at or after `due_s` and after `last_s`."""
    if due_s == math.inf:
        return math.inf
    number = math.ceil(due_s / round_s - _SAME)
    if last_s > -math.inf:
        number = max(number, round(last_s / round_s) + 1)
    return max(due_s, number * round_s)  # not a sum of rounds: the start of a round must not depend on the past


def boundaries(from_s: float, to_s: float, round_s: float) -> int:
    """The number of round boundaries in [from, to)."""
    return math.ceil(to_s / round_s - _SAME) - math.ceil(from_s / round_s - _SAME)


# Multiples of the round are computed by division; times closer than this, in rounds, are the same boundary.
_SAME = 1e-9
