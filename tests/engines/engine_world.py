"""Worlds in which the contract of engines is tried: what a test needs to make things happen, and to see that they did.

A world has two nodes, `v100-1` with two GPUs and `k80-1` with one. The test takes the loop's part: it decides, folds what
the engine reports, and waits. A job's conduct is one of `Does`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from enum import Enum
from typing import TypeVar

import numpy as np

from building import profile
from fairlead.engines.leases import Lease
from fairlead.engines.live import LiveEngine
from fairlead.engines.requests import Command, Request, Submit
from fairlead.engines.runner import LeaseReader, Runner
from fairlead.model.allocation import Spot
from fairlead.model.cluster import parse_short_form
from fairlead.model.decision import Cause, Decision
from fairlead.model.events import Event, Finished
from fairlead.model.jobs import JobSpec
from fairlead.model.lifecycle import Phase
from fairlead.rates.estimator import TableEstimator
from fairlead.rounds.loop import Engine
from fairlead.rounds.state import State

CLUSTER = parse_short_form("v100:2x2,k80:1x1")
FAST, SLOW = 0, 1  # nodes
SPEEDS = profile({"m": {"v100": 20.0, "k80": 10.0}})
STEPS = 60.0  # of a job that trains; three seconds on a v100


class Does(Enum):
    TRAIN = "works, saves when it is asked to stop, and finishes"
    END = "finishes at once"
    FAIL = "ends with exit code 3"
    DEAF = "works forever and ignores signals"
    NOTHING_THERE = "cannot be started at all"


E = TypeVar("E", bound=Event)


class World:
    """The test's end of an engine."""

    name: str
    engine: Engine
    state: State
    lacks: Mapping[str, str] = {}  # what this engine has no notion of, and why
    patience_s = 15.0  # by the engine's clock, which is virtual unless a world says otherwise

    def __init__(self) -> None:
        self.told: list[Event] = []
        self._looked = 0  # events that `until` has passed

    def add(self, id_: str, does: Does, *, gpus: int = 1, max_retries: int = 0) -> None:
        raise NotImplementedError

    def lose_node(self, node: int) -> None:
        raise NotImplementedError

    def find_node(self, node: int) -> None:
        raise NotImplementedError

    def lose_sight(self, id_: str) -> None:
        raise NotImplementedError

    def restart(self, *, while_away: Callable[[], None] = lambda: None) -> None:
        """The scheduler is killed and comes back with what its log says: all that it folded."""
        raise NotImplementedError

    def alive(self, id_: str) -> int:
        """Copies of the job that run right now."""
        raise NotImplementedError

    def under_way(self, id_: str) -> None:
        """Returns once a job that was started does what it does: it has saved some work, or ignores signals."""
        self.settle(1.2)

    def let_end(self) -> None:
        """From here on jobs may come to their end; until then they run where time is not virtual."""

    def close(self) -> None: ...

    # ---- the loop's part -----------------------------------------------------------------------------------------

    def start(self, id_: str, node: int = FAST, gpus: int = 1) -> None:
        self.wait(0.0)
        self.decide((), {id_: node}, gpus)

    def start_on_all(self, id_: str) -> None:
        """On every GPU of both nodes."""
        self.wait(0.0)
        self.decide((), {id_: FAST}, spots=(((FAST, 2), (SLOW, 1)),))

    def stop(self, id_: str) -> None:
        self.wait(0.0)
        self.decide((id_,), {})

    def move(self, id_: str, node: int) -> None:
        self.wait(0.0)
        self.decide((id_,), {id_: node})

    def decide(
        self,
        stop: tuple[str, ...],
        start: Mapping[str, int],
        gpus: int = 1,
        *,
        apply: bool = True,
        spots: tuple[Spot, ...] | None = None,
    ) -> None:
        positions = self.state.position
        decision = Decision(
            self.state.now_s,
            Cause.ROUND,
            np.array([positions[id_] for id_ in stop], dtype=np.int64),
            np.array([positions[id_] for id_ in start], dtype=np.int64),
            spots or tuple(((node, gpus),) for node in start.values()),
            math.inf,
            "",
        )
        self.state.fold(decision)
        if apply:
            self.engine.apply(decision)

    def wait(self, seconds: float) -> list[Event]:
        events = self.engine.wait(self.engine.now() + seconds)
        assert events is not None
        for event in events:
            self.state.fold(event)
        self.state.pass_time(max(self.engine.now(), self.state.now_s))
        self.told += events
        return events

    def until(self, kind: type[E], id_: str | None = None, within_s: float | None = None) -> E:
        """The next event of this kind (of this job) after the one that was last waited for."""
        within_s = self.patience_s if within_s is None else within_s
        deadline_s = self.engine.now() + within_s
        if kind is Finished:
            self.let_end()
        while True:
            while self._looked < len(self.told):
                event = self.told[self._looked]
                self._looked += 1
                if isinstance(event, kind) and (id_ is None or self.state.position[id_] in jobs_of(event)):
                    return event
            if self.engine.now() >= deadline_s:
                break
            self.wait(min(0.5, within_s))
        raise AssertionError(f"no {kind.__name__} of {id_} within {within_s} s; told: {self.told}")

    def settle(self, seconds: float) -> None:
        """Lets so much time pass."""
        until_s = self.engine.now() + seconds
        while self.engine.now() < until_s:
            self.wait(until_s - self.engine.now())

    def phase(self, id_: str) -> Phase:
        return Phase(int(self.state.phase[self.state.position[id_]]))

    def count(self, kind: type[Event], id_: str) -> int:
        j = self.state.position[id_]
        return sum(isinstance(event, kind) and j in jobs_of(event) for event in self.told)


class Inbox:
    """Requests that a test puts in. `rest` is what waiting means in its world."""

    def __init__(self, rest: Callable[[float], None]) -> None:
        self._requests: list[Request] = []
        self.rest = rest
        self.over = False
        self.takes = 0

    def put(self, *requests: Request) -> None:
        self._requests += requests

    def take(self, timeout_s: float) -> list[Request] | None:
        self.takes += 1
        if self.over:
            return None
        if not self._requests:
            assert timeout_s < math.inf, "nobody will ever ask"
            self.rest(timeout_s)
        taken, self._requests = self._requests, []
        return taken


class LiveWorld(World):
    """The live engine over some runner. `again` is another one over the same leases, as after a restart of the daemon."""

    runner: Runner
    engine: LiveEngine
    reader: LeaseReader

    def __init__(self, clock: Callable[[], float], rest: Callable[[float], None]) -> None:
        super().__init__()
        self._clock = clock
        self.inbox = Inbox(rest)
        self.commands: dict[str, Command] = {}
        self.state = State(CLUSTER, TableEstimator(SPEEDS, CLUSTER))

    def connect(self) -> None:
        command_of = self.commands.__getitem__
        self.engine = LiveEngine(self.state, self.runner, self.inbox, command_of, self._clock, progress_s=1.0)

    def command(self, does: Does, max_retries: int) -> Command:
        raise NotImplementedError

    def again(self) -> Runner:
        raise NotImplementedError

    def launch_unbegun(self, lease: Lease) -> None:
        """As far as a lease gets before anything of it runs."""
        raise NotImplementedError

    def rest(self, seconds: float) -> None:
        """Time passes, and the engine does not look."""
        self.inbox.rest(seconds)

    def add(self, id_: str, does: Does, *, gpus: int = 1, max_retries: int = 0) -> None:
        self.commands[id_] = self.command(does, max_retries)
        self.ask(Submit(spec_of(id_, gpus), self.commands[id_]))

    def ask(self, *requests: Request) -> list[Event]:
        self.inbox.put(*requests)
        return self.wait(0.0)

    def restart(self, *, while_away: Callable[[], None] = lambda: None) -> None:
        while_away()
        self.connect()
        self.engine.resume()


def jobs_of(event: Event) -> list[int]:
    jobs: list[int] = getattr(event, "jobs", np.array([])).tolist()
    return jobs


def spec_of(id_: str, gpus: int) -> JobSpec:
    return JobSpec(id_, "t", "m", 0.0, gpus, STEPS / gpus)
