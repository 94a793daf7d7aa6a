"""Engines on a virtual clock: a runner that is a few dictionaries, and the one that pretends."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from engine_world import CLUSTER, STEPS, Does, LiveWorld

from fairlead.engines.leases import OVER, Condition, Key, Lease, Look, Report, Sight
from fairlead.engines.pretend.runner import PretendReader, PretendRunner
from fairlead.engines.requests import Command
from fairlead.engines.runner import Capabilities, LaunchError, Runner
from fairlead.model.handshake import CHECKPOINTED


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def rest(self, seconds: float) -> None:
        self.now_s += max(seconds, 0.001)


class VirtualWorld(LiveWorld):
    """The live engine on a virtual clock, over a runner that is a few dictionaries: quick, and the same every time."""

    name = "virtual"
    lacks: Mapping[str, str] = {
        "processes": "its jobs are a few numbers",
        "queue": "a lease is claimed or not",
        "foreign": "nobody else uses its GPUs",
    }

    def __init__(self) -> None:
        self.clock = Clock()
        super().__init__(self.clock, self.clock.rest)
        self.runner: VirtualRunner = VirtualRunner(self.clock)
        self.reader = self.runner
        self.connect()

    @property
    def runs(self) -> Mapping[Key, _Run]:
        return self.runner.runs

    def again(self) -> Runner:
        self.runner = self.runner.again()
        return self.runner

    def launch_unbegun(self, lease: Lease) -> None:
        self.runner.claims = False
        self.runner.launch(lease)

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


class VirtualRunner:
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
        self.unreachable: set[str] = set()  # nodes on which nothing can be killed

    def again(self) -> VirtualRunner:
        """Another runner over the same leases: they are no part of it."""
        other = VirtualRunner(self._clock)
        other.runs, other.saved, other.down = self.runs, self.saved, self.down
        return other

    def launch(self, lease: Lease) -> None:
        if lease.key in self.runs:
            raise LaunchError(f"{lease.key} was launched twice")
        if lease.command.run == Does.NOTHING_THERE.name:
            raise LaunchError("there is no such thing")
        copies = [run for key, run in self.runs.items() if key[0] == lease.job and run.sight.condition not in OVER]
        assert all(self._is_cut_off(copy) for copy in copies), f"{lease.key} is launched while another copy runs"
        for other in self.runs.values():
            if other.sight.condition in (Condition.RUNNING, Condition.NEVER_CLAIMED):
                shared = {(g.node, g.slot) for g in lease.gpus} & {(g.node, g.slot) for g in other.lease.gpus}
                assert not shared, f"{lease.key} and {other.lease.key} share {shared}"
        self.runs[lease.key] = _Run(lease, self._clock(), self.saved.get(lease.job, 0.0))
        self.most_alive = max(self.most_alive, self.alive(lease.job))

    def _is_cut_off(self, run: _Run) -> bool:
        return not (self.down | self.unreachable).isdisjoint(run.lease.nodes)

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
        if run.sight.condition is Condition.RUNNING and not self.unreachable & set(lease.nodes):
            run.sight = Sight(Condition.ENDED, 137, run.asked, run.sight.report)

    def look(self, leases: Any) -> Look:
        self._go_on()
        sights = {key: self._seen(key) for key in leases if key in self.runs}
        return Look(sights, frozenset(self.down))

    def _seen(self, key: Key) -> Sight:
        run = self.runs[key]
        sight = run.sight
        return Sight(sight.condition, sight.code, run.asked, sight.report)

    def recall(self, key: Key) -> Lease | None:
        return self.runs[key].lease if key in self.runs else None

    def jobs(self) -> set[str]:
        return {job for job, _ in self.runs}

    def numbers(self, job: str) -> list[int]:
        return sorted(number for of, number in self.runs if of == job)

    def revoke(self, key: Key) -> bool:
        self._go_on()
        if key not in self.runs:
            return True
        if self.runs[key].sight.condition is Condition.NEVER_CLAIMED:
            self.runs[key].sight = Sight(Condition.RUNNING if self.claims_late else Condition.VANISHED)
        return self.runs[key].sight.condition is Condition.VANISHED

    def read_log(self, key: Key, offset: int, most: int) -> bytes:
        return b""

    def exit_code(self, key: Key) -> int | None:
        return self.runs[key].sight.code

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


class PretendWorld(LiveWorld):
    """The live engine over the runner that pretends, on a virtual clock. A job that trains sleeps as long as that takes."""

    name = "pretend"
    lacks: Mapping[str, str] = {
        "fail": "a pretended job always succeeds",
        "deaf": "a pretended job stops at once",
        "refuse": "nothing is in the way of pretending",
        "sight": "a pretended job is always seen",
        "progress": "a pretended job does nothing that could be reported",
        "nodes": "a pretended node does not fail",
        "unbegun": "a pretended job runs as soon as it is launched",
        "processes": "a pretended job has none",
        "queue": "a pretended job runs as soon as it is launched",
        "foreign": "nobody else pretends on these nodes",
    }

    def __init__(self, folder: Path) -> None:
        self.clock = Clock()
        super().__init__(self.clock, self.clock.rest)
        self._folder = folder
        self.runner: PretendRunner = PretendRunner(folder, self.clock)
        self.reader = PretendReader(folder, self.clock)
        self.connect()

    def again(self) -> Runner:
        self.runner = PretendRunner(self._folder, self.clock)
        return self.runner

    def command(self, does: Does, max_retries: int) -> Command:
        return Command({Does.TRAIN: f"sleep {STEPS / 20}", Does.END: "true"}[does], grace_s=2.0)

    def alive(self, id_: str) -> int:
        keys = [(id_, number) for number in range(1, 20) if self.runner.recall((id_, number)) is not None]
        return sum(sight.condition not in OVER for sight in self.runner.look(keys).sights.values())
