"""The live engine under everything at once, on a virtual clock: nothing is lost, nothing runs twice."""

from __future__ import annotations

import random

import numpy as np
import pytest
from worlds import CLUSTER, FAST, STEPS, Does, PretendWorld

from fairlead.engines.leases import Condition
from fairlead.engines.requests import Cancel, Drain, Hold, Release, Resume, SetPolicy, SetTenant
from fairlead.model.events import Finished, Held, Lost, PolicySet, Refused, Released, Started, Stopped, TenantSet
from fairlead.model.handshake import CHECKPOINTED
from fairlead.model.lifecycle import ENDED, HAS_GPUS, Phase


class Chaos:
    """A scheduler that does anything it may, owners who ask for anything, nodes that come and go, and crashes."""

    def __init__(self, seed: int) -> None:
        self.world = PretendWorld()
        self.random = random.Random(seed)
        self.cancelled: set[str] = set()

    def step(self) -> None:
        choice = self.random.choice
        jobs = list(self.world.state.position)
        node = self.random.randrange(len(CLUSTER.nodes))
        ask = self.world.ask
        acts = {
            "submit": lambda: self.world.add(f"j{len(jobs)}", choice([*Does]), max_retries=choice([0, 1])),
            "decide": self.decide,
            "wait": lambda: self.world.wait(self.random.random() * 2),
            "cancel": lambda: self.cancel(choice(jobs)) if jobs else None,
            "hold": lambda: ask(Hold(choice(jobs))) if jobs else None,
            "release": lambda: ask(Release(choice(jobs))) if jobs else None,
            "drain": lambda: ask(Drain(CLUSTER.nodes[node])),
            "resume": lambda: ask(Resume(CLUSTER.nodes[node])),
            "node": lambda: choice([self.world.lose_node, self.world.find_node])(node),
            "sight": lambda: self.world.lose_sight(choice(jobs)) if jobs else None,
            "crash": self.crash,
        }
        acts[self.random.choices(list(acts), [4, 8, 8, 1, 2, 2, 1, 1, 1, 1, 2])[0]]()

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
        for id_ in self.cancelled:  # stands in the requests and has not happened
            self.world.ask(Cancel(id_))

    def come_to_rest(self) -> None:
        """Everything works again, whoever is held is released, and who never ends is cancelled."""
        world = self.world
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
            world.wait(1.0)
            if all(world.phase(id_) in ENDED for id_ in world.state.position):
                return
        stuck = {id_: world.phase(id_).name for id_ in world.state.position if world.phase(id_) not in ENDED}
        raise AssertionError(f"never came to an end: {stuck}")


@pytest.mark.parametrize("seed", range(60))
def test_whatever_happens_every_job_comes_to_its_end_once(seed: int) -> None:
    """The runner refuses to run a lease twice or to share a slot, and the fold refuses steps out of order."""
    chaos = Chaos(seed)
    for _ in range(80):
        chaos.step()
    chaos.come_to_rest()

    world = chaos.world
    for id_, command in world.commands.items():
        expected = {"TRAIN": Phase.FINISHED, "END": Phase.FINISHED, "DEAF": Phase.CANCELLED}.get(
            command.run, Phase.FAILED
        )
        if id_ not in chaos.cancelled:
            assert world.phase(id_) is expected, (id_, command.run)
        runs = [run for key, run in world.runner.runs.items() if key[0] == id_]
        assert not any(run.sight.condition in (Condition.RUNNING, Condition.NEVER_CLAIMED) for run in runs)
        if world.phase(id_) is Phase.FINISHED:
            assert sum(run.sight.code == 0 for run in runs) == 1
    assert world.state.node_free.tolist() == [2, 1]
    assert len(world.engine._situation.fleet) == 0


def test_nothing_is_polled_while_there_is_nothing_to_see() -> None:
    world = PretendWorld()
    world.add("a", Does.TRAIN)
    before = world.inbox.takes
    world.engine.wait(world.engine.now() + 3600)
    assert world.inbox.takes == before + 1

    world.start("a")
    before = world.inbox.takes
    world.settle(1.0)
    assert world.inbox.takes - before >= 1.0 / world.runner.capabilities.look_s


def test_a_round_that_is_due_begins_at_its_exact_time() -> None:
    world = PretendWorld()
    world.add("a", Does.TRAIN)

    assert world.engine.wait(360.0) == []
    assert world.engine.now() == 360.0


def test_time_does_not_run_backwards_when_the_clock_does() -> None:
    world = PretendWorld()
    world.now_s = 100.0
    world.add("a", Does.TRAIN)
    world.now_s = 50.0

    world.add("b", Does.TRAIN)

    assert world.state.specs[1].arrival_s >= 100.0


def test_a_new_policy_ends_the_loop_after_it_is_in_the_log() -> None:
    world = PretendWorld()
    world.inbox.put(SetTenant("ann", 2.0), SetPolicy("las", {"queues": 2}), SetTenant("bob", 3.0))

    events = world.engine.wait(10.0)

    assert events is not None
    assert [type(event) for event in events] == [TenantSet, PolicySet, TenantSet]
    assert world.engine.wait(10.0) is None
    assert world.engine.wait(10.0) == []


def test_the_end_of_the_service_ends_the_loop() -> None:
    world = PretendWorld()
    world.inbox.over = True

    assert world.engine.wait(10.0) is None


def test_a_lease_that_nobody_claims_is_taken_back() -> None:
    world = PretendWorld()
    world.runner.claims = False
    world.add("a", Does.TRAIN)
    world.start("a")

    refused = world.until(Refused, "a", within_s=world.runner.capabilities.claim_s + 5)

    assert refused.time_s >= world.runner.capabilities.claim_s
    assert world.phase("a") is Phase.WAITING


def test_a_lease_that_is_claimed_only_after_it_was_asked_to_stop_is_asked_again() -> None:
    world = PretendWorld()
    world.runner.claims, world.runner.claims_late = False, True
    world.add("a", Does.TRAIN)
    world.start("a")
    world.stop("a")

    stopped = world.until(Stopped, "a")

    assert stopped.time_s < 1.0  # its grace would have been 2 s
    assert world.runner.runs["a", 1].sight.code == CHECKPOINTED


def test_a_lease_that_was_never_claimed_before_a_restart_is_taken_back() -> None:
    world = PretendWorld()
    world.runner.claims = False
    world.add("a", Does.TRAIN)
    world.start("a")
    world.restart()
    world.until(Lost, "a")
    world.runner.claims = True

    world.start("a")
    world.until(Started, "a")

    assert world.alive("a") == 1
    assert world.state.leases[0] == 2


def test_a_hold_that_is_taken_back_before_it_happened_still_frees_the_gpus() -> None:
    world = PretendWorld()
    world.add("a", Does.TRAIN)
    world.start("a")
    world.until(Started, "a")
    world.ask(Hold("a"))
    world.ask(Release("a"))

    world.until(Held, "a")
    world.until(Released, "a")

    assert world.phase("a") is Phase.WAITING
    assert world.state.node_free.tolist() == [2, 1]


def test_a_job_that_finishes_while_its_node_is_drained_does_not_run_again() -> None:
    world = PretendWorld()
    world.add("a", Does.TRAIN)
    world.start("a")
    world.until(Started, "a")
    world.settle(STEPS / 20 - 0.25)  # it will be through before it has noticed
    world.ask(Drain("v100-1"))
    world.settle(1.0)
    assert world.phase("a") is Phase.WAITING

    world.start("a", 1)

    world.until(Finished, "a")
    assert len(world.runner.runs) == 1


def test_a_move_whose_stop_was_not_written_down_before_the_crash_is_adopted() -> None:
    world = PretendWorld()
    world.add("a", Does.TRAIN)
    world.start("a")
    world.until(Started, "a")
    world.settle(0.5)
    world.move("a", 1)
    forgotten = world.engine.wait(world.engine.now() + 5.0)
    assert forgotten is not None
    assert isinstance(forgotten[0], Stopped)
    # The new lease came up all the same: as if the log's disk had lagged behind.
    old = world.runner.runs["a", 1].lease
    world.runner.launch(type(old)("a", 2, (type(old.gpus[0])("k80-1", "k80", 0),), old.command))
    world.now_s += 0.1
    world.restart()

    world.until(Stopped, "a")
    world.until(Started, "a")

    assert world.alive("a") == 1
    assert len(world.runner.runs) == 2
    assert world.told[-2].samples[0] > 0  # type: ignore[union-attr]


def test_a_drained_node_stays_drained_when_it_answers_again() -> None:
    world = PretendWorld()
    world.add("a", Does.TRAIN)
    world.lose_node(FAST)
    world.settle(0.5)
    world.ask(Drain("v100-1"))
    world.find_node(FAST)
    world.add("b", Does.TRAIN)
    world.settle(0.5)
    assert not world.state.node_up[FAST]

    world.restart()
    world.settle(0.5)
    assert not world.state.node_up[FAST]
    world.ask(Resume("v100-1"))

    assert world.state.node_up[FAST]


def test_has_gpus_means_what_the_engine_thinks() -> None:
    """A job in any of these phases has a lease or is about to get one; a restart goes through exactly these."""
    assert set(HAS_GPUS) == {Phase.STARTING, Phase.RUNNING, Phase.STOPPING, Phase.MOVING}
