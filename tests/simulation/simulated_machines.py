"""A cluster as it truly is, and a runner that knows it only through messages that get lost, late, doubled or reordered.

Leases train: they restore the newest checkpoint, count steps, and save with the real `fairlead.lease` checkpoints and
their fence. The machines themselves check what no scheduler may ever cause: a GPU with two leases, and a checkpoint that
does not continue the newest one, by which steps would be lost or counted twice.
"""

from __future__ import annotations

import heapq
import math
import random
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fairlead.engines.leases import NO_ANSWER, OVER, Condition, Key, Lease, Look, Report, Sight
from fairlead.engines.runner import Capabilities, LaunchError
from fairlead.lease.checkpoints import Checkpoints, SupersededError
from fairlead.model.cluster import NodeGroup, parse_short_form
from fairlead.model.handshake import CHECKPOINTED

CLUSTER = parse_short_form("v100:4x2,k80:2x1")
SPARE = ("spare-1", NodeGroup(1, "v100", 2))  # joins and leaves
RATE = {"v100": 2.0, "k80": 1.0}  # steps per second, whatever the width
SUPERSEDED, KILLED, FAILED = 1, 137, 3


class BrokenPromiseError(AssertionError):
    """The simulation has seen what must never happen."""


@dataclass(slots=True)
class Node:
    gpus: int
    up: bool = True  # its processes run
    reachable: list[tuple[float, bool]] = field(default_factory=lambda: [(-math.inf, True)])  # since when


@dataclass(slots=True)
class Job:
    """What a job does, as its submitter knows it."""

    steps: int
    fails_after_s: float = math.inf  # then it exits with an error
    deaf: bool = False  # ignores requests to stop
    missing: bool = False  # cannot be started
    saves_every_s: float = 20.0


@dataclass(slots=True)
class Run:
    lease: Lease
    queued_s: float = math.inf
    begun_s: float = math.inf
    base: int = 0  # steps in the checkpoint from which it began
    saves: list[tuple[float, int]] = field(default_factory=list)
    end_s: float = math.inf
    end: Sight = field(default_factory=lambda: Sight(Condition.VANISHED))
    asked: bool = False  # kept with the lease, as laws demand
    stops_s: float = math.inf
    speechless: bool = False  # its last report is lost with it
    checkpoints: Checkpoints | None = None

    @property
    def rate(self) -> float:
        return min(RATE[gpu.type] for gpu in self.lease.gpus)

    @property
    def runs(self) -> bool:
        return self.begun_s < math.inf and self.end_s == math.inf

    def step_at(self, time_s: float) -> int:
        return self.base + int(self.rate * max(min(time_s, self.end_s) - self.begun_s, 0.0) + 1e-9)

    def sight_at(self, time_s: float) -> Sight:
        if self.end_s <= time_s:
            report = self.end.report or (None if self.speechless else self._report_at(self.end_s))
            return Sight(self.end.condition, self.end.code, self.asked, report)
        if self.begun_s <= time_s:
            return Sight(Condition.RUNNING, None, self.asked, self._report_at(time_s))
        return Sight(Condition.QUEUED if self.queued_s <= time_s else Condition.NEVER_CLAIMED, None, self.asked)

    def _report_at(self, time_s: float) -> Report | None:
        if self.begun_s > time_s:
            return None
        saved = max((step for at_s, step in self.saves if at_s <= time_s), default=self.base)
        return Report(time_s - self.begun_s, self.step_at(time_s), saved_step=float(saved))


class Machines:
    """Nodes, leases and checkpoints. `advance` lets time pass for all of them."""

    def __init__(self, folder: Path, sizes: dict[str, int], jobs: dict[str, Job], dice: random.Random) -> None:
        self.folder, self.jobs, self.dice = folder, jobs, dice
        self.nodes = {name: Node(gpus) for name, gpus in sizes.items()}
        self.runs: dict[Key, Run] = {}
        self.open: dict[Key, Run] = {}  # of them those that have not ended
        self.numbers: dict[str, list[int]] = {}  # by job: of its leases
        self.newest: dict[str, tuple[int, int]] = {}  # by job: lease and steps of the newest checkpoint
        self.untold: dict[str, int] = {}  # by job: steps of a lease that took its last report with it
        self.now_s = 0.0
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0

    def at(self, time_s: float, do: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._agenda, (max(time_s, self.now_s), self._number, do))

    def advance(self, to_s: float) -> None:
        while self._agenda and self._agenda[0][0] <= to_s:
            self.now_s, _, do = heapq.heappop(self._agenda)
            do()
        self.now_s = max(self.now_s, to_s)

    # ---- nodes ------------------------------------------------------------------------------------------------------

    def reachable(self, node: str, time_s: float) -> bool:
        return next(up for since_s, up in reversed(self.nodes[node].reachable) if since_s <= time_s)

    def cut_off(self, node: str) -> None:
        if self.reachable(node, self.now_s):
            self.nodes[node].reachable.append((self.now_s, False))

    def switch_off(self, node: str) -> None:
        self.cut_off(node)
        self.nodes[node].up = False
        for run in tuple(self.open.values()):
            if node in run.lease.nodes:
                self.vanish(run)

    def bring_back(self, node: str) -> None:
        self.nodes[node].up = True
        if not self.reachable(node, self.now_s):
            self.nodes[node].reachable.append((self.now_s, True))
        self._begin_queued()

    # ---- leases ----------------------------------------------------------------------------------------------------

    def launch(self, lease: Lease) -> Run:
        """A lease whose launch may reach its nodes or not."""
        run = self.runs[lease.key] = self.open[lease.key] = Run(lease)
        self.numbers.setdefault(lease.job, []).append(lease.number)
        return run

    def arrive(self, run: Run, *, queues: bool) -> None:
        """The launch reaches its nodes, perhaps twice; one that is cut off gets it once it is back."""
        if run.queued_s < math.inf or run.end_s < math.inf:
            return  # it came before, or it was revoked
        if not all(self.nodes[node].up and self.reachable(node, self.now_s) for node in run.lease.nodes):
            self.at(self.now_s + 5.0, lambda: self.arrive(run, queues=queues))
            return
        run.queued_s = self.now_s
        if queues:
            self._begin_queued()
        else:
            self._begin(run)

    def ask(self, run: Run) -> None:
        if run.runs and not self.jobs[run.lease.job].deaf and run.stops_s == math.inf:
            run.stops_s = self.now_s + 0.5 + 4 * self.dice.random()
            self.at(run.stops_s, lambda: self._stop(run))

    def kill(self, run: Run) -> None:
        if run.runs:
            self._end(run, Sight(Condition.ENDED, KILLED))

    def vanish(self, run: Run) -> None:
        if run.runs:
            run.speechless = self.dice.random() < 0.5
            if run.speechless:  # what is safe is then believed to be what it reported last
                self.untold[run.lease.job] = run.step_at(self.now_s)
            self._end(run, Sight(Condition.VANISHED))

    def used(self) -> Counter[str]:
        return Counter(gpu.node for run in self.open.values() if run.runs for gpu in run.lease.gpus)

    def _begin_queued(self) -> None:
        for run in tuple(self.open.values()):
            if run.queued_s < math.inf and run.begun_s == math.inf:
                used, nodes = self.used(), run.lease.nodes
                if all(self.nodes[n].up and used[n] + count <= self.nodes[n].gpus for n, count in nodes.items()):
                    self._begin(run)

    def _begin(self, run: Run) -> None:
        lease = run.lease
        for other in self.open.values():
            if other.runs and other is not run:
                shared = {(g.node, g.slot) for g in lease.gpus if g.slot is not None} & {
                    (g.node, g.slot) for g in other.lease.gpus
                }
                _need(not shared, f"{lease.key} and {other.lease.key} both run on {shared}")
                seen = other.lease.job == lease.job and all(self.reachable(n, self.now_s) for n in other.lease.nodes)
                _need(not seen or other.lease.number < lease.number, f"{lease.key} begins after {other.lease.key}")
        run.begun_s = self.now_s
        used = self.used()
        over = {n: used[n] for n in lease.nodes if used[n] > self.nodes[n].gpus}
        _need(not over, f"{lease.key} begins, and {over} GPUs are in use")
        run.checkpoints = Checkpoints(self.folder / lease.job, lease.number)
        run.base = int(run.checkpoints.newest()[1].get("step") or 0)
        if self.newest.get(lease.job, (0, 0))[1] != run.base:
            raise BrokenPromiseError(f"{lease.key} restores step {run.base}, newest is {self.newest.get(lease.job)}")
        self.newest[lease.job] = (lease.number, run.base)
        job = self.jobs[lease.job]
        if job.fails_after_s < math.inf:
            self.at(self.now_s + job.fails_after_s, lambda: self._fail(run))
        self.at(self.now_s + max(job.steps - run.base, 0) / run.rate, lambda: self._finish(run))
        self.at(self.now_s + job.saves_every_s, lambda: self._save_often(run))

    def _save(self, run: Run, step: int) -> bool:
        """Save; if a later lease has begun, the fence refuses, and the script ends."""
        assert run.checkpoints is not None
        try:
            run.checkpoints.save(lambda folder: None, {"step": step})
        except SupersededError:
            self._end(run, Sight(Condition.ENDED, SUPERSEDED))
            return False
        number, steps = self.newest[run.lease.job]
        _need(
            number == run.lease.number and step >= steps,
            f"{run.lease.key} saves step {step} although lease {number} has begun from or saved step {steps}",
        )
        self.newest[run.lease.job] = (run.lease.number, step)
        run.saves.append((self.now_s, step))
        return True

    def _save_often(self, run: Run) -> None:
        if run.runs and self._save(run, run.step_at(self.now_s)):
            self.at(self.now_s + self.jobs[run.lease.job].saves_every_s, lambda: self._save_often(run))

    def _stop(self, run: Run) -> None:
        if run.runs and self._save(run, run.step_at(self.now_s)):
            self._end(run, Sight(Condition.ENDED, CHECKPOINTED))

    def _finish(self, run: Run) -> None:
        if run.runs:
            steps = max(self.jobs[run.lease.job].steps, run.base)
            if self._save(run, steps):
                self._end(run, Sight(Condition.ENDED, 0, report=Report(self.now_s, steps, saved_step=float(steps))))

    def _fail(self, run: Run) -> None:
        if run.runs:
            self._end(run, Sight(Condition.ENDED, FAILED))

    def _end(self, run: Run, sight: Sight) -> None:
        run.end_s, run.end = self.now_s, sight
        del self.open[run.lease.key]
        self._begin_queued()

    def forget(self, job: str) -> None:
        """Nothing of a job that has ended matters any more."""
        for number in self.numbers.pop(job, ()):
            del self.runs[job, number]
        self.newest.pop(job, None)
        self.untold.pop(job, None)
        shutil.rmtree(self.folder / job, ignore_errors=True)

    def revoke(self, run: Run) -> None:
        """Take a lease back that has not begun."""
        if run.begun_s == math.inf and run.end_s == math.inf:
            run.end_s, run.end = self.now_s, Sight(Condition.VANISHED)
            del self.open[run.lease.key]


@dataclass(slots=True)
class Weather:
    """How often messages go wrong, from 0 to 1 for each."""

    loses: float = 0.0
    delays: float = 0.0
    doubles: float = 0.0
    refuses: float = 0.0
    omits: float = 0.0  # a lease from a look
    lag_s: float = 0.0  # of looks
    outage: bool = False  # nothing answers


class SimulatedRunner:
    """One scheduler's view of the machines. It remembers nothing; a successor may see older looks than it did."""

    def __init__(
        self,
        machines: Machines,
        weather: Weather,
        capabilities: Capabilities,
        dice: random.Random,
        tally: Counter[str],
        danger: Callable[[str, str], None],
    ) -> None:
        self.machines, self.weather, self.capabilities = machines, weather, capabilities
        self._dice, self._tally = dice, tally
        self._danger = danger  # called before and after each message: the scheduler may be killed there
        self._shown_s = -math.inf

    def launch(self, lease: Lease) -> None:
        self._danger("launch", lease.job)
        machines = self.machines
        if lease.key in machines.runs:
            raise BrokenPromiseError(f"{lease.key} is launched a second time")
        if self.weather.outage or self._happens("launch refused", self.weather.refuses):
            raise LaunchError("the engine refused it")
        if machines.jobs[lease.job].missing:
            raise LaunchError("there is no such program")
        run = machines.launch(lease)
        if not self._happens("launch lost", self.weather.loses):
            for _ in range(2 if self._happens("launch doubled", self.weather.doubles) else 1):
                machines.at(
                    machines.now_s + self._lag_s("launch late"),
                    lambda: machines.arrive(run, queues=self.capabilities.queues),
                )
        self._danger("launched", "")

    def ask_to_stop(self, lease: Lease) -> bool:
        self._danger("ask", "")
        run = self.machines.runs[lease.key]
        run.asked = True
        if self.weather.outage or not self._reaches(run) or not run.runs:
            return False
        if not self._happens("stop lost", self.weather.loses):
            self.machines.at(self.machines.now_s + self._lag_s("stop late"), lambda: self.machines.ask(run))
        self._danger("asked", "")
        return True

    def kill(self, lease: Lease) -> None:
        self._danger("kill", "")
        run = self.machines.runs[lease.key]
        if self.weather.outage or not self._reaches(run) or self._happens("kill lost", self.weather.loses):
            return
        self.machines.at(self.machines.now_s + self._lag_s("kill late"), lambda: self.machines.kill(run))
        self._danger("killed", "")

    def look(self, leases: Sequence[Key]) -> Look:
        self._danger("look", "")
        machines = self.machines
        if self.weather.outage:
            self._tally["look unanswered"] += 1
            return NO_ANSWER
        lag_s = self.weather.lag_s * self._dice.random()
        self._tally["look late"] += lag_s > 0
        self._shown_s = max(self._shown_s, machines.now_s - lag_s)
        down = frozenset(node for node in machines.nodes if not machines.reachable(node, self._shown_s))
        seen = [machines.runs[key] for key in leases if key in machines.runs]
        sights = {
            run.lease.key: run.sight_at(self._shown_s)
            for run in seen
            if down.isdisjoint(run.lease.nodes) and not self._happens("look omits a lease", self.weather.omits)
        }
        return Look(sights, down)

    def recall(self, key: Key) -> Lease | None:
        self._danger("recall", "")
        run = self.machines.runs.get(key)
        return None if run is None else run.lease

    def jobs(self) -> set[str]:
        return set(self.machines.numbers)

    def numbers(self, job: str) -> list[int]:
        self._danger("recall", "")
        return sorted(self.machines.numbers.get(job, ()))

    def revoke(self, key: Key) -> bool:
        self._danger("revoke", "")
        run = self.machines.runs.get(key)
        if run is None:
            return True
        if self.weather.outage:
            return False
        self.machines.revoke(run)
        self._danger("revoked", "")
        if self._happens("answer lost", self.weather.loses):
            return False
        return run.begun_s == math.inf

    def _reaches(self, run: Run) -> bool:
        return all(self.machines.reachable(node, self.machines.now_s) for node in run.lease.nodes)

    def _lag_s(self, what: str) -> float:
        return self._dice.uniform(1.0, 30.0) if self._happens(what, self.weather.delays) else self._dice.uniform(0, 0.5)

    def _happens(self, what: str, chance: float) -> bool:
        happens = chance > 0 and self._dice.random() < chance
        self._tally[what] += happens
        return happens


def _need(holds: bool, complaint: str) -> None:
    if not holds:
        raise BrokenPromiseError(complaint)


__all__ = ["OVER", "BrokenPromiseError", "Job", "Machines", "SimulatedRunner", "Weather"]
