"""An engine that is far away, on a virtual clock: strict, slow, and not always there.

It has a controller with a queue. Commands get there after a second or two, looks show what was so a few seconds ago. It
picks devices itself, starts a lease once its GPUs are free, and shares its nodes with the jobs of others. With `mishaps`
it does not answer now and then, loses commands, and leaves leases out of its looks.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence

from engine_world import CLUSTER, STEPS, Does, LiveWorld
from virtual_world import Clock

from fairlead.engines.leases import NO_ANSWER, OVER, Condition, Key, Lease, Look, Report, Sight
from fairlead.engines.requests import Command
from fairlead.engines.runner import Capabilities, LaunchError, Runner
from fairlead.model.cluster import NodeGroup
from fairlead.model.handshake import CHECKPOINTED

TICK_S = 0.25
PAUSE = 40.0  # a job stays at this step until it may end
SAVE_S = 1.0  # how long it takes to stop
SIZE = dict(zip(CLUSTER.nodes, CLUSTER.node_gpus.tolist(), strict=True))


class FarWorld(LiveWorld):
    name = "far"
    patience_s = 400.0
    lacks: Mapping[str, str] = {"processes": "its jobs are a few numbers"}

    def __init__(self, *, mishaps: float = 0.0, seed: int = 0, rate: float = 5.0, pauses: bool = True) -> None:
        self.clock = Clock()
        super().__init__(self.clock, self.clock.rest)
        self.cluster = Far(self.clock, rate, pauses)
        self.runner: FarRunner = FarRunner(self.cluster, mishaps, random.Random(seed))
        self.reader = self.runner
        self.connect()

    def again(self) -> Runner:
        self.runner = FarRunner(self.cluster, self.runner.mishaps, self.runner.random)
        return self.runner

    def command(self, does: Does, max_retries: int) -> Command:
        return Command(does.name, grace_s=12.0, max_retries=max_retries)

    def launch_unbegun(self, lease: Lease) -> None:
        self.cluster.foreign.update(SIZE)  # there is no room
        self.runner.launch(lease)

    def under_way(self, id_: str) -> None:
        self.settle(20.0)

    @property
    def runs(self) -> Mapping[Key, _Run]:
        return self.cluster.runs

    def calm_down(self) -> None:
        """From here on nothing goes wrong, and nobody else uses the nodes."""
        self.runner.mishaps = 0.0
        self.cluster.foreign.update(dict.fromkeys(SIZE, 0))

    def let_end(self) -> None:
        self.cluster.pauses = False

    def lose_node(self, node: int) -> None:
        self.cluster.go_on()
        self.cluster.down.add(CLUSTER.nodes[node])

    def find_node(self, node: int) -> None:
        """Whatever ran there was given up long ago; the controller clears it away."""
        self.cluster.go_on()
        if CLUSTER.nodes[node] not in self.cluster.down:
            return
        for run in self.cluster.on(CLUSTER.nodes[node]):
            self.cluster.change(run, Sight(Condition.VANISHED, report=run.sight.report))
        self.cluster.down.discard(CLUSTER.nodes[node])

    def lose_sight(self, id_: str) -> None:
        self.cluster.go_on()
        for run in self.cluster.runs.values():
            if run.lease.job == id_ and run.sight.condition is Condition.RUNNING:
                self.cluster.change(run, Sight(Condition.VANISHED, report=run.sight.report))

    def alive(self, id_: str) -> int:
        return self.cluster.alive(id_)


class _Run:
    def __init__(self, lease: Lease, arrives_s: float) -> None:
        self.lease, self.arrives_s = lease, arrives_s
        self.begun_s = self.asked_s = self.killed_s = math.inf
        self.asked = False
        self.step = self.base = 0.0
        self.seen: list[tuple[float, Sight]] = [(-math.inf, Sight(Condition.NEVER_CLAIMED))]

    @property
    def sight(self) -> Sight:
        return self.seen[-1][1]


class Far:
    """The truth, which nobody sees at once."""

    def __init__(self, clock: Clock, rate: float, pauses: bool) -> None:
        self._clock, self._rate, self.pauses = clock, rate, pauses
        self._at_s = 0.0
        self.runs: dict[Key, _Run] = {}
        self.launched: dict[Key, Lease] = {}
        self.saved: dict[str, float] = {}
        self.down: set[str] = set()
        self.closed: set[str] = set()  # nodes that take no new leases
        self.joined: dict[str, NodeGroup] = {}  # that it has beside those of the cluster
        self.foreign: dict[str, int] = dict.fromkeys(SIZE, 0)  # GPUs that jobs of others hold

    def go_on(self) -> float:
        while self._at_s + TICK_S <= self._clock():
            self._at_s += TICK_S
            for run in self.runs.values():
                if run.sight.condition not in OVER and not self.down & set(run.lease.nodes):
                    self._tick(run)
        return self._clock()

    def change(self, run: _Run, sight: Sight) -> None:
        assert run.sight.condition not in OVER, f"{run.lease.key} is over and stays over"
        run.seen.append((self._at_s, sight))

    def on(self, node: str) -> list[_Run]:
        there = (run for run in self.runs.values() if node in run.lease.nodes)
        return [run for run in there if run.sight.condition is Condition.RUNNING]

    def alive(self, job: str) -> int:
        """On nodes that answer: what is on others is cut off from everything."""
        self.go_on()
        mine = [run for run in self.runs.values() if run.lease.job == job and not self.down & set(run.lease.nodes)]
        return sum(run.sight.condition is Condition.RUNNING for run in mine)

    def used(self) -> Counter[str]:
        running = (run for run in self.runs.values() if run.sight.condition is Condition.RUNNING)
        return Counter(gpu.node for run in running for gpu in run.lease.gpus)

    def _tick(self, run: _Run) -> None:
        match run.sight.condition:
            case Condition.NEVER_CLAIMED if self._at_s >= run.arrives_s:
                self.change(run, Sight(Condition.QUEUED, reason="Resources"))
            case Condition.QUEUED:
                self._begin(run)
            case Condition.RUNNING:
                self._work(run)

    def _begin(self, run: _Run) -> None:
        used = self.used()
        if any(used[node] + self.foreign[node] + count > SIZE[node] for node, count in run.lease.nodes.items()):
            return
        others = [other for other in self.runs.values() if other.lease.job == run.lease.job and other is not run]
        alive = [
            o.lease.key for o in others if o.sight.condition is Condition.RUNNING and not self.down & {*o.lease.nodes}
        ]
        assert not alive, f"{run.lease.key} begins while {alive} runs"
        run.begun_s = self._at_s
        run.step = run.base = self.saved.get(run.lease.job, 0.0)
        self.change(run, Sight(Condition.RUNNING))

    def _work(self, run: _Run) -> None:
        does = Does[run.lease.command.run]
        if self._at_s >= run.killed_s:
            self.change(run, Sight(Condition.ENDED, 137, report=run.sight.report))
        elif does is Does.END:
            self.change(run, Sight(Condition.ENDED, 0))
        elif does is Does.FAIL:
            self.change(run, Sight(Condition.ENDED, 3))
        elif does is Does.TRAIN:
            self._train(run)

    def _train(self, run: _Run) -> None:
        speed = self._rate * (1.0 if run.lease.gpus[0].type == "v100" else 0.5)
        last = max(PAUSE, run.base) if self.pauses else STEPS
        run.step = min(run.step + speed * TICK_S, last)
        worked_s, job = self._at_s - run.begun_s, run.lease.job
        if run.step >= STEPS:
            self.change(run, Sight(Condition.ENDED, 0, report=Report(worked_s, STEPS)))
            return
        leaves = self._at_s >= run.asked_s + SAVE_S
        safe = run.step if leaves else max(run.base, run.step // 10 * 10.0)
        self.saved[job] = max(self.saved.get(job, 0.0), safe)
        report = Report(worked_s, run.step, saved_step=self.saved[job])
        self.change(run, Sight(Condition.ENDED, CHECKPOINTED, report=report) if leaves else Sight(Condition.RUNNING, report=report))  # fmt: skip


class FarRunner:
    """It remembers nothing but how it draws its mishaps: all else is asked of the cluster."""

    capabilities = Capabilities(
        look_s=5.0, looks_idle=True, claim_s=30.0, queue_s=25.0, picks_devices=True, queues=True
    )

    def __init__(self, cluster: Far, mishaps: float, random_: random.Random) -> None:
        self.cluster, self.mishaps, self.random = cluster, mishaps, random_
        self.looks: list[float] = []
        self._shown_s = -math.inf

    def launch(self, lease: Lease) -> None:
        cluster, now_s = self.cluster, self.cluster.go_on()
        assert all(gpu.slot is None for gpu in lease.gpus), "it picks devices itself"
        assert all(count <= SIZE[node] for node, count in lease.nodes.items())
        if lease.key in cluster.launched:
            raise LaunchError(f"{lease.key} was launched before")
        cluster.launched[lease.key] = lease
        run = cluster.runs[lease.key] = _Run(lease, math.inf if self._goes_wrong() else now_s + self._lag_s())
        if lease.command.run == Does.NOTHING_THERE.name:
            cluster.change(run, Sight(Condition.VANISHED))
            raise LaunchError("there is no such thing")

    def ask_to_stop(self, lease: Lease) -> bool:
        now_s, run = self.cluster.go_on(), self.cluster.runs.get(lease.key)
        if run is None:
            return False
        run.asked = True
        if self._goes_wrong() or run.sight.condition is not Condition.RUNNING:
            return False
        if not self._goes_wrong():  # else the signal is lost, and nobody knows
            run.asked_s = min(run.asked_s, now_s + self._lag_s())
        return True

    def kill(self, lease: Lease) -> None:
        now_s, run = self.cluster.go_on(), self.cluster.runs.get(lease.key)
        if run is not None and not self._goes_wrong():
            run.killed_s = min(run.killed_s, now_s + self._lag_s())

    def look(self, leases: Sequence[Key]) -> Look:
        now_s = self.cluster.go_on()
        self.looks.append(now_s)
        if self._goes_wrong():
            return NO_ANSWER
        self._shown_s = max(self._shown_s, now_s - self._lag_s())
        there = [self.cluster.runs[key] for key in leases if key in self.cluster.runs]
        sights = {run.lease.key: self._sight(run) for run in there if self._can_be_seen(run)}
        usable = {node: SIZE[node] - count for node, count in self.cluster.foreign.items()}
        return Look(sights, frozenset(self.cluster.down), usable, frozenset(self.cluster.closed), self.cluster.joined)

    def recall(self, key: Key) -> Lease | None:
        return self.cluster.launched.get(key)

    def jobs(self) -> set[str]:
        return {job for job, _ in self.cluster.launched}

    def numbers(self, job: str) -> list[int]:
        return sorted(number for of, number in self.cluster.launched if of == job)

    def revoke(self, key: Key) -> bool:
        self.cluster.go_on()
        run = self.cluster.runs.get(key)
        if run is None:
            return True
        if self._goes_wrong():
            return False
        if run.sight.condition in (Condition.NEVER_CLAIMED, Condition.QUEUED):
            self.cluster.change(run, Sight(Condition.VANISHED))
            return not self._goes_wrong()  # it was done, and the answer may be lost
        return run.sight.condition is Condition.VANISHED and run.begun_s == math.inf

    def read_log(self, key: Key, offset: int, most: int) -> bytes:
        return b""

    def exit_code(self, key: Key) -> int | None:
        return self.cluster.runs[key].sight.code

    def _sight(self, run: _Run) -> Sight:
        sight = next(sight for at_s, sight in reversed(run.seen) if at_s <= self._shown_s)
        return Sight(sight.condition, sight.code, run.asked, sight.report, sight.reason)

    def _can_be_seen(self, run: _Run) -> bool:
        return not self.cluster.down & set(run.lease.nodes) and not self._goes_wrong()

    def _goes_wrong(self) -> bool:
        return self.random.random() < self.mishaps

    def _lag_s(self) -> float:
        return 0.5 + 2.0 * self.random.random()
