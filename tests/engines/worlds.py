"""Worlds in which the contract of engines is tried: what a test needs to make things happen, and to see that they did.

A world has two nodes, `v100-1` with two GPUs and `k80-1` with one. The test takes the loop's part: it decides, folds what
the engine tells, and waits. A job's conduct is one of `Does`.
"""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from building import profile
from fairlead.engines.leases import Condition, Key, Lease, Look, Report, Sight
from fairlead.engines.live import LiveEngine
from fairlead.engines.local.devices import slots_as_devices
from fairlead.engines.local.runner import LocalRunner
from fairlead.engines.local.shim import LOG
from fairlead.engines.requests import Command, Request, Submit
from fairlead.engines.runner import Capabilities, LaunchError, Runner
from fairlead.model.cluster import parse_short_form
from fairlead.model.decision import Cause, Decision
from fairlead.model.events import Event, Finished
from fairlead.model.handshake import CHECKPOINTED
from fairlead.model.jobs import JobSpec
from fairlead.model.lifecycle import Phase
from fairlead.rates.estimator import TableEstimator
from fairlead.rounds.loop import Engine
from fairlead.rounds.state import State
from fairlead.sim.rounds.engine import SimEngine
from fairlead.sim.truth import Truth
from fairlead.sim.truth import World as Hidden
from waiting import PATIENCE_S, wait_for

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

    def stop(self, id_: str) -> None:
        self.wait(0.0)
        self.decide((id_,), {})

    def move(self, id_: str, node: int) -> None:
        self.wait(0.0)
        self.decide((id_,), {id_: node})

    def decide(self, stop: tuple[str, ...], start: Mapping[str, int], gpus: int = 1, *, apply: bool = True) -> None:
        positions = self.state.position
        decision = Decision(
            self.state.now_s,
            Cause.ROUND,
            np.array([positions[id_] for id_ in stop], dtype=np.int64),
            np.array([positions[id_] for id_ in start], dtype=np.int64),
            tuple(((node, gpus),) for node in start.values()),
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
                if isinstance(event, kind) and (id_ is None or self.state.position[id_] in _jobs(event)):
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
        return sum(isinstance(event, kind) and j in _jobs(event) for event in self.told)


# ---- simulated ---------------------------------------------------------------------------------------------------------


class SimulatedWorld(World):
    """Time is virtual, and all jobs are known beforehand: they are the trace."""

    name = "simulated"
    lacks: Mapping[str, str] = {
        "fail": "a trace has no jobs that fail; what is left of a failure is its length",
        "deaf": "a simulated job always gives its GPUs back",
        "refuse": "a simulated command is always carried out",
        "sight": "a simulated job is always seen",
        "restart": "a simulation is one process that starts from nothing",
        "requests": "arrivals come from the trace, and nobody asks for anything else",
        "progress": "its reports are exact, so that it reports changes only",
    }

    def __init__(self, jobs: tuple[str, ...] = ("a", "b"), node_dies_after_s: float | None = None) -> None:
        super().__init__()
        rates = TableEstimator(SPEEDS, CLUSTER)
        specs = tuple(_spec(id_, 1) for id_ in jobs)
        hidden = Hidden(mtbf_s=2.0, repair_s=1.0, checkpoint_s=0.5, seed=1) if node_dies_after_s else Hidden()
        self.engine = SimEngine(Truth(specs, CLUSTER, rates, hidden))
        self.state = State(CLUSTER, rates)
        self._running: set[str] = set()

    def add(self, id_: str, does: Does, *, gpus: int = 1, max_retries: int = 0) -> None:
        assert does in (Does.TRAIN, Does.END), self.lacks
        while id_ not in self.state.position:
            self.wait(0.0)

    def alive(self, id_: str) -> int:
        return int(self.phase(id_) is Phase.RUNNING)


# ---- live --------------------------------------------------------------------------------------------------------------


class Inbox:
    """Requests that a test puts in. `rest` is what waiting means in its world."""

    def __init__(self, rest: Callable[[float], None]) -> None:
        self._requests: list[Request] = []
        self._rest = rest
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
            self._rest(timeout_s)
        taken, self._requests = self._requests, []
        return taken


class LiveWorld(World):
    """The live engine over some runner."""

    runner: Runner
    engine: LiveEngine

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

    def add(self, id_: str, does: Does, *, gpus: int = 1, max_retries: int = 0) -> None:
        self.commands[id_] = self.command(does, max_retries)
        self.ask(Submit(_spec(id_, gpus), self.commands[id_]))

    def ask(self, *requests: Request) -> list[Event]:
        self.inbox.put(*requests)
        return self.wait(0.0)

    def restart(self, *, while_away: Callable[[], None] = lambda: None) -> None:
        while_away()
        self.connect()
        self.engine.resume()


class PretendWorld(LiveWorld):
    """The live engine on a virtual clock, over a runner that is a few dictionaries: quick, and the same every time."""

    name = "pretend"

    def __init__(self) -> None:
        self.now_s = 0.0
        super().__init__(lambda: self.now_s, self._rest)
        self.runner: PretendRunner = PretendRunner(lambda: self.now_s)
        self.connect()

    def _rest(self, seconds: float) -> None:
        self.now_s += max(seconds, 0.001)

    def command(self, does: Does, max_retries: int) -> Command:
        return Command(does.name, grace_s=2.0, max_retries=max_retries)

    def lose_node(self, node: int) -> None:
        self.runner.down.add(CLUSTER.nodes[node])

    def find_node(self, node: int) -> None:
        self.runner.down.discard(CLUSTER.nodes[node])

    def lose_sight(self, id_: str) -> None:
        for key, run in self.runner.runs.items():
            if key[0] == id_ and run.sight.condition is Condition.RUNNING:
                run.sight = Sight(Condition.VANISHED, report=run.sight.report)

    def alive(self, id_: str) -> int:
        return self.runner.alive(id_)


class _Run:
    def __init__(self, lease: Lease, since_s: float, saved: float) -> None:
        self.lease, self.since_s, self.base = lease, since_s, saved
        self.sight = Sight(Condition.NEVER_CLAIMED)
        self.asked = False
        self.asked_s: float | None = None  # when it heard


class PretendRunner:
    """Leases are claimed 50 ms after their launch; training saves every 10 steps and takes 0.2 s to stop."""

    capabilities = Capabilities()

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.runs: dict[Key, _Run] = {}
        self.saved: dict[str, float] = {}
        self.down: set[str] = set()
        self.most_alive = 0
        self.claims = True
        self.claims_late = False  # between a look and the attempt to take it back

    def launch(self, lease: Lease) -> None:
        assert lease.key not in self.runs, f"{lease.key} was launched twice"
        if lease.command.run == Does.NOTHING_THERE.name:
            raise LaunchError("there is no such thing")
        for other in self.runs.values():
            if other.sight.condition in (Condition.RUNNING, Condition.NEVER_CLAIMED):
                shared = {(g.node, g.slot) for g in lease.gpus} & {(g.node, g.slot) for g in other.lease.gpus}
                assert not shared, f"{lease.key} and {other.lease.key} share {shared}"
        self.runs[lease.key] = _Run(lease, self._clock(), self.saved.get(lease.job, 0.0))
        self.most_alive = max(self.most_alive, self.alive(lease.job))

    def alive(self, job: str) -> int:
        self._go_on()
        alive = (Condition.RUNNING, Condition.NEVER_CLAIMED)
        return sum(key[0] == job and run.sight.condition in alive for key, run in self.runs.items())

    def ask_to_stop(self, lease: Lease) -> bool:
        run = self.runs[lease.key]
        self._go_on()
        run.asked = True
        if run.sight.condition is Condition.NEVER_CLAIMED:
            return False
        if run.asked_s is None:
            run.asked_s = self._clock()
        return True

    def kill(self, lease: Lease) -> None:
        run = self.runs[lease.key]
        self._go_on()
        if run.sight.condition is Condition.RUNNING:
            run.sight = Sight(Condition.ENDED, 137, run.asked, run.sight.report)

    def look(self, leases: Any) -> Look:
        self._go_on()
        sights = {key: self._seen(key) for key in leases}
        return Look(sights, frozenset(self.down))

    def _seen(self, key: Key) -> Sight:
        run = self.runs[key]
        sight = run.sight
        return Sight(sight.condition, sight.code, run.asked, sight.report)

    def recall(self, key: Key) -> Lease | None:
        return self.runs[key].lease if key in self.runs else None

    def revoke(self, key: Key) -> bool:
        self._go_on()
        if self.runs[key].sight.condition is Condition.NEVER_CLAIMED:
            self.runs[key].sight = Sight(Condition.RUNNING if self.claims_late else Condition.VANISHED)
        return self.runs[key].sight.condition is Condition.VANISHED

    def _go_on(self) -> None:
        for run in self.runs.values():
            self._go_on_with(run, self._clock() - run.since_s - 0.05)

    def _go_on_with(self, run: _Run, worked_s: float) -> None:
        if run.sight.condition is Condition.NEVER_CLAIMED and worked_s >= 0 and self.claims:
            run.sight = Sight(Condition.RUNNING)
        if run.sight.condition is not Condition.RUNNING:
            return
        does = Does[run.lease.command.run]
        if does is Does.TRAIN:
            self._train(run, worked_s)
        elif does is Does.END:
            run.sight = Sight(Condition.ENDED, 0)
        elif does is Does.FAIL:
            run.sight = Sight(Condition.ENDED, 3)

    def _train(self, run: _Run, worked_s: float) -> None:
        job = run.lease.job
        rate = 20.0 if run.lease.gpus[0].type == "v100" else 10.0
        step = math.floor(min(run.base + rate * worked_s, STEPS))
        saved = max(run.base, step // 10 * 10.0)
        if step >= STEPS:
            run.sight = Sight(Condition.ENDED, 0, report=Report(worked_s, step))
        elif run.asked_s is not None and self._clock() >= run.asked_s + 0.2:
            saved = self.saved[job] = max(self.saved.get(job, 0.0), float(step))
            run.sight = Sight(Condition.ENDED, CHECKPOINTED, report=Report(worked_s, step, saved_step=saved))
        else:
            self.saved[job] = max(self.saved.get(job, 0.0), saved)
            run.sight = Sight(Condition.RUNNING, report=Report(worked_s, step, saved_step=saved))


# ---- local -------------------------------------------------------------------------------------------------------------

TRAINING = """
import json, os, sys, time
from fairlead import lease
steps, pause, over = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
saved = lease.restore()
step = json.loads((saved / "step").read_text()) if saved else 0
print("from", step)
save = lambda folder: (folder / "step").write_text(json.dumps(step))
while step < steps:
    time.sleep(0.05)
    goes_on = step < pause or os.path.exists(over)
    step += goes_on
    lease.report(step)
    if goes_on and step % 10 == 0:
        lease.checkpoint(save)
    if lease.should_stop():
        lease.stop(save)
"""
PAUSE = 40  # a job stays at this step until it may end, so that it runs for as long as a test needs it
SOURCE = Path(__file__).resolve().parents[2] / "src"


class LocalWorld(LiveWorld):
    """The live engine over real processes, on the machine's clock: its limits only end a hang."""

    name = "local"
    patience_s = PATIENCE_S

    def __init__(self, root: Path) -> None:
        began = time.monotonic()
        self._woken = threading.Event()
        super().__init__(lambda: time.monotonic() - began, self._rest)
        self.root = root
        self.runner: LocalRunner = LocalRunner(
            root / "state", slots_as_devices(CLUSTER.nodes, CLUSTER.node_gpus.tolist())
        )
        (root / "training.py").write_text(TRAINING)
        self.connect()

    def _rest(self, seconds: float) -> None:
        self._woken.wait(seconds)

    def command(self, does: Does, max_retries: int) -> Command:
        run = {
            Does.TRAIN: f"exec {sys.executable} {self.root}/training.py {STEPS:g} {PAUSE} {self.root}/over",
            Does.END: "true",
            Does.FAIL: "exit 3",
            Does.DEAF: "trap '' TERM USR1; echo deaf; while true; do sleep 0.1; done",
            Does.NOTHING_THERE: "true",
        }[does]
        workdir = self.root / "missing" if does is Does.NOTHING_THERE else self.root
        env = {"PYTHONPATH": str(SOURCE), "PYTHONDONTWRITEBYTECODE": "1"}
        grace_s = 1.0 if does is Does.DEAF else PATIENCE_S
        return Command(run, workdir=str(workdir), env=env, grace_s=grace_s, max_retries=max_retries)

    def under_way(self, id_: str) -> None:
        key = (id_, int(self.state.leases[self.state.position[id_]]))

        def seen() -> bool:
            self.wait(0.1)
            report = self.runner.look([key]).sights[key].report
            return bool(report and report.saved_step) or "deaf" in self.log(*key)

        wait_for(seen, f"job {id_} to be under way")

    def let_end(self) -> None:
        (self.root / "over").touch()

    def lose_node(self, node: int) -> None:
        (self.runner.root / "down").mkdir(exist_ok=True)
        (self.runner.root / "down" / CLUSTER.nodes[node]).touch()

    def find_node(self, node: int) -> None:
        (self.runner.root / "down" / CLUSTER.nodes[node]).unlink()

    def lose_sight(self, id_: str) -> None:
        for pid in self.shims(id_):
            os.kill(pid, signal.SIGKILL)

    def claims(self, id_: str) -> Iterator[dict[str, Any]]:
        for path in (self.runner.root / "leases" / id_).glob("*/claim"):
            yield json.loads(path.read_text())

    def shims(self, id_: str) -> list[int]:
        wanted = str(self.runner.root / "leases" / id_) + "/"
        return [pid for pid, words in processes() if any(word.startswith(wanted) for word in words)]

    def alive(self, id_: str) -> int:
        """Process groups of the job with a process that is not dead."""
        groups = {claim["group"] for claim in self.claims(id_) if "group" in claim}
        return len(groups & {group for state, group in _states() if state not in "ZX"})

    def log(self, id_: str, number: int) -> str:
        path = self.runner.directory((id_, number)) / LOG
        return path.read_text() if path.exists() else ""

    def close(self) -> None:
        for id_ in self.commands:
            for claim in self.claims(id_):
                with suppress(ProcessLookupError, KeyError):
                    os.killpg(claim["group"], signal.SIGKILL)
            wait_for(lambda id_=id_: not self.shims(id_), "the end of a shim whose job has ended")  # type: ignore[misc]


def processes() -> Iterator[tuple[int, list[str]]]:
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with suppress(OSError):
                yield int(entry), Path(f"/proc/{entry}/cmdline").read_bytes().decode(errors="replace").split("\0")


def _states() -> Iterator[tuple[str, int]]:
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with suppress(OSError):
                state, _, group = Path(f"/proc/{entry}/stat").read_text(errors="replace").rpartition(")")[2].split()[:3]
                yield state, int(group)


def _jobs(event: Event) -> list[int]:
    jobs: list[int] = getattr(event, "jobs", np.array([])).tolist()
    return jobs


def _spec(id_: str, gpus: int) -> JobSpec:
    return JobSpec(id_, "t", "m", 0.0, gpus, STEPS / gpus)


WORLDS: dict[str, Callable[[Path], World]] = {
    "simulated": lambda tmp_path: SimulatedWorld(),
    "pretend": lambda tmp_path: PretendWorld(),
    "local": LocalWorld,
}
