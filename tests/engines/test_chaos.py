"""Engines under everything at once, on a virtual clock: nothing is lost, nothing runs twice."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from engine_world import CLUSTER, Does
from far_world import SIZE, FarWorld
from virtual_world import VirtualWorld

from fairlead.engines.leases import OVER
from fairlead.engines.requests import Cancel, Drain, Hold, Release, Resume
from fairlead.model.events import Failed, NodeDown
from fairlead.model.lifecycle import ENDED, Phase


class Chaos:
    """A scheduler that does anything it may, owners who ask for anything, nodes that come and go, and crashes."""

    def __init__(self, seed: int, world: VirtualWorld | FarWorld) -> None:
        self.world = world
        self.pause_s = 20.0 if isinstance(world, FarWorld) else 2.0
        self.random = random.Random(seed)
        self.cancelled: set[str] = set()

    def step(self) -> None:
        choice = self.random.choice
        jobs = list(self.world.state.position)
        node = self.random.randrange(len(CLUSTER.nodes))
        ask = self.world.ask
        acts: dict[str, Callable[[], object]] = {
            "submit": lambda: self.world.add(f"j{len(jobs)}", choice([*Does]), max_retries=choice([0, 1])),
            "decide": self.decide,
            "wait": lambda: self.world.wait(self.random.random() * self.pause_s),
            "cancel": lambda: self.cancel(choice(jobs)) if jobs else None,
            "hold": lambda: ask(Hold(choice(jobs))) if jobs else None,
            "release": lambda: ask(Release(choice(jobs))) if jobs else None,
            "drain": lambda: ask(Drain(CLUSTER.nodes[node])),
            "resume": lambda: ask(Resume(CLUSTER.nodes[node])),
            "node": lambda: choice([self.world.lose_node, self.world.find_node])(node),
            "sight": lambda: self.world.lose_sight(choice(jobs)) if jobs else None,
            "crash": self.crash,
            "others": lambda: self.others(CLUSTER.nodes[node]),
        }
        acts[self.random.choices(list(acts), [4, 8, 8, 1, 2, 2, 1, 1, 1, 1, 2, 2])[0]]()

    def others(self, node: str) -> None:
        """Jobs of other people take GPUs that are free, or give some back."""
        if isinstance(self.world, FarWorld):
            far = self.world.cluster
            far.go_on()
            free = int(SIZE[node] - far.used()[node])
            far.foreign[node] = self.random.randint(0, free)

    def cancel(self, id_: str) -> None:
        if self.world.phase(id_) not in ENDED:
            self.cancelled.add(id_)
        self.world.ask(Cancel(id_))

    def decide(self) -> None:
        """Any start, stop or move that the folded state allows; now and then the crash comes before the deed."""
        state = self.world.state
        self.world.wait(0.0)
        free = state.node_free * state.node_up
        stop, start = [], {}
        for id_, j in state.position.items():
            phase = Phase(int(state.phase[j]))
            if phase in (Phase.STARTING, Phase.RUNNING, Phase.MOVING) and self.random.random() < 0.3:
                stop.append(id_)
                for node, count in state.spots[j]:
                    free[node] += count * bool(state.node_up[node])
            if (phase in (Phase.WAITING, Phase.STOPPING) or id_ in stop) and self.random.random() < 0.6:
                node = self.random.randrange(len(free))
                if free[node] > 0:
                    free[node] -= 1
                    start[id_] = node
        crash = self.random.random() < 0.1
        self.world.decide(tuple(stop), start, apply=not crash)
        if crash:
            self.world.restart()

    def crash(self) -> None:
        """Half of the time right after the engine told something that nobody wrote down."""
        if self.random.random() < 0.5:
            self.world.engine.wait(self.world.engine.now() + self.random.random())
        self.world.restart()
        for id_ in self.cancelled:  # is in the requests and has not happened
            self.world.ask(Cancel(id_))

    def come_to_rest(self) -> None:
        """Everything works again, held jobs are released, and jobs that never end are cancelled.

        It is over once all jobs have ended and the engine has looked at the nodes again: all their GPUs are free.
        """
        world = self.world
        if isinstance(world, FarWorld):
            world.calm_down()
        for node in range(len(CLUSTER.nodes)):
            world.find_node(node)
            world.ask(Resume(CLUSTER.nodes[node]))
        for _ in range(400):
            free = world.state.node_free.tolist()
            starts = {}
            for id_, j in list(world.state.position.items()):
                phase = world.phase(id_)
                if phase is Phase.HELD:
                    world.ask(Release(id_))
                elif world.commands[id_].run == Does.DEAF.name and phase not in ENDED:
                    self.cancel(id_)
                elif phase is Phase.WAITING and max(free) > 0:
                    starts[id_] = int(np.argmax(free))
                    free[starts[id_]] -= 1
                assert j < world.state.jobs
            if starts and all(world.phase(id_) is Phase.WAITING for id_ in starts):
                world.decide((), starts)
            world.wait(self.pause_s / 2)
            if all(world.phase(id_) in ENDED for id_ in world.state.position) and self.all_is_free():
                return
        stuck = {id_: world.phase(id_).name for id_ in world.state.position if world.phase(id_) not in ENDED}
        raise AssertionError(f"never came to an end: {stuck}, free GPUs by node: {world.state.node_free.tolist()}")

    def all_is_free(self) -> bool:
        state = self.world.state
        return bool(state.node_up.all()) and state.node_free.tolist() == list(SIZE.values())


def come_through(chaos: Chaos) -> None:
    """The runner refuses to run a lease twice or to share a GPU, and the fold refuses steps out of order."""
    for _ in range(80):
        chaos.step()
    chaos.come_to_rest()

    world = chaos.world
    ends = {"TRAIN": Phase.FINISHED, "END": Phase.FINISHED, "DEAF": Phase.CANCELLED}
    hopeless = {
        j for event in world.told if isinstance(event, Failed) and "3 times" in event.reason for j in event.jobs
    }
    for id_, command in world.commands.items():
        expected = Phase.FAILED if world.state.position[id_] in hopeless else ends.get(command.run, Phase.FAILED)
        if id_ not in chaos.cancelled:
            assert world.phase(id_) is expected, (id_, command.run)
        runs = [run for key, run in world.runs.items() if key[0] == id_]
        assert all(run.sight.condition in OVER for run in runs)
        if world.phase(id_) is Phase.FINISHED:
            finished = [run for run in runs if run.sight.code == 0]
            assert finished
            assert sum(not given_up(world, run) for run in finished) <= 1
    assert chaos.all_is_free()
    assert len(world.engine._situation.fleet) == 0


def given_up(world: VirtualWorld | FarWorld, run: Any) -> bool:
    """Whether a node of the lease fell silent later: its job may have been started elsewhere meanwhile."""
    launched_s = run.arrives_s if isinstance(world, FarWorld) else run.since_s
    downs = (event for event in world.told if isinstance(event, NodeDown) and event.time_s >= launched_s)
    return any(CLUSTER.nodes[event.node] in run.lease.nodes for event in downs)


@pytest.mark.parametrize("seed", range(110))
def test_whatever_happens_every_job_comes_to_its_end_once(seed: int) -> None:
    come_through(Chaos(seed, VirtualWorld()))


@pytest.mark.parametrize("seed", [*range(110), 229, 307])
def test_whatever_happens_far_away_every_job_comes_to_its_end_once(seed: int) -> None:
    """The engine is slow, queues, picks devices, is shared with others, and one of ten commands and looks gets lost."""
    come_through(Chaos(seed, FarWorld(mishaps=0.1, seed=seed, rate=2.0, pauses=False)))
