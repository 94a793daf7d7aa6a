"""The live engine under everything at once, on a virtual clock: nothing is lost, nothing runs twice."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from engine_world import CLUSTER, FAST, SLOW, STEPS, Does
from far_world import SIZE, FarWorld
from virtual_world import VirtualRunner, VirtualWorld

from fairlead.engines.fleet import Fleet, Live, Story
from fairlead.engines.leases import OVER, Condition, Lease, Sight
from fairlead.engines.requests import Cancel, Command, Drain, Hold, Release, Resume, SetPolicy, SetTenant
from fairlead.model.events import (
    Cancelled,
    Failed,
    Finished,
    Held,
    Lost,
    NodeDown,
    NodeUp,
    NodeUsable,
    PolicySet,
    Progress,
    Refused,
    Released,
    Started,
    Stopped,
    TenantSet,
)
from fairlead.model.handshake import CHECKPOINTED
from fairlead.model.lifecycle import ENDED, HAS_GPUS, Phase


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
        """Everything works again, whoever is held is released, and who never ends is cancelled."""
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
            if all(world.phase(id_) in ENDED for id_ in world.state.position):
                return
        stuck = {id_: world.phase(id_).name for id_ in world.state.position if world.phase(id_) not in ENDED}
        raise AssertionError(f"never came to an end: {stuck}")


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
            assert sum(run.sight.code == 0 for run in runs) == 1
    assert world.state.node_free.tolist() == [2, 1]
    assert len(world.engine._situation.fleet) == 0


@pytest.mark.parametrize("seed", range(60))
def test_whatever_happens_every_job_comes_to_its_end_once(seed: int) -> None:
    come_through(Chaos(seed, VirtualWorld()))


@pytest.mark.parametrize("seed", range(40))
def test_whatever_happens_far_away_every_job_comes_to_its_end_once(seed: int) -> None:
    """The engine is slow, queues, picks devices, is shared with others, and one of ten commands and looks gets lost."""
    come_through(Chaos(seed, FarWorld(mishaps=0.1, seed=seed, rate=2.0, pauses=False)))


def test_nothing_is_polled_while_there_is_nothing_to_see() -> None:
    world = VirtualWorld()
    world.add("a", Does.TRAIN)
    before = world.inbox.takes
    world.engine.wait(world.engine.now() + 3600)
    assert world.inbox.takes == before + 1

    world.start("a")
    before = world.inbox.takes
    world.settle(1.0)
    assert world.inbox.takes - before >= 1.0 / world.runner.capabilities.look_s


def test_a_round_that_is_due_begins_at_its_exact_time() -> None:
    world = VirtualWorld()
    world.add("a", Does.TRAIN)

    assert world.engine.wait(360.0) == []
    assert world.engine.now() == 360.0


def test_time_does_not_run_backwards_when_the_clock_does() -> None:
    world = VirtualWorld()
    world.clock.now_s = 100.0
    world.add("a", Does.TRAIN)
    world.clock.now_s = 50.0

    world.add("b", Does.TRAIN)

    assert world.state.specs[1].arrival_s >= 100.0


def test_a_new_policy_ends_the_loop_after_it_is_in_the_log() -> None:
    world = VirtualWorld()
    world.inbox.put(SetTenant("ann", 2.0), SetPolicy("las", {"queues": 2}), SetTenant("bob", 3.0))

    events = world.engine.wait(10.0)

    assert events is not None
    assert [type(event) for event in events] == [TenantSet, PolicySet, TenantSet]
    assert world.engine.wait(10.0) is None
    assert world.engine.wait(10.0) == []


def test_the_end_of_the_service_ends_the_loop() -> None:
    world = VirtualWorld()
    world.inbox.over = True

    assert world.engine.wait(10.0) is None


def test_a_lease_that_nobody_claims_is_taken_back() -> None:
    world = VirtualWorld()
    world.runner.claims = False
    world.add("a", Does.TRAIN)
    world.start("a")

    refused = world.until(Refused, "a", within_s=world.runner.capabilities.claim_s + 5)

    assert refused.time_s >= world.runner.capabilities.claim_s
    assert world.phase("a") is Phase.WAITING


def test_a_lease_that_is_claimed_only_after_it_was_asked_to_stop_is_asked_again() -> None:
    world = VirtualWorld()
    world.runner.claims, world.runner.claims_late = False, True
    world.add("a", Does.TRAIN)
    world.start("a")
    world.stop("a")

    stopped = world.until(Stopped, "a")

    assert stopped.time_s < 1.0  # its grace would have been 2 s
    assert world.runner.runs["a", 1].sight.code == CHECKPOINTED


def test_a_job_that_was_refused_is_tried_again_after_a_while_that_doubles() -> None:
    world = VirtualWorld()
    world.add("a", Does.NOTHING_THERE)
    waits = []
    for kind in (Refused, Refused, Failed):
        world.wait(0.0)
        decided_s = world.engine.now()
        world.decide((), {"a": FAST})
        waits.append(round(world.until(kind, "a").time_s - decided_s, 1))

    assert waits == [0.0, 1.0, 2.0]


def test_a_job_that_ran_in_between_is_not_refused_in_a_row() -> None:
    world = VirtualWorld()
    world.add("a", Does.NOTHING_THERE)
    broken, works = world.commands["a"], world.command(Does.TRAIN, 0)
    for command in (broken, broken, works, broken, broken):
        world.commands["a"] = command
        world.start("a")
        if command is broken:
            world.until(Refused, "a")
        else:
            world.until(Started, "a")
            world.stop("a")
            world.until(Stopped, "a")

    assert world.phase("a") is Phase.WAITING


def test_a_job_that_heard_a_request_to_stop_is_not_asked_again() -> None:
    """A second signal would interrupt a script that saves while it handles the first."""
    world = VirtualWorld()
    heard: list[bool] = []
    ask = world.runner.ask_to_stop

    def noted(lease: Lease) -> bool:
        heard.append(ask(lease))
        return heard[-1]

    world.runner.ask_to_stop = noted  # type: ignore[method-assign]
    world.add("a", Does.DEAF)
    world.start("a")
    world.stop("a")  # before it was claimed
    world.until(Stopped, "a")

    assert heard == [False, True]


def test_a_lease_that_was_never_claimed_before_a_restart_is_taken_back() -> None:
    world = VirtualWorld()
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
    world = VirtualWorld()
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
    world = VirtualWorld()
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
    world = VirtualWorld()
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
    world.clock.now_s += 0.1
    world.restart()

    world.until(Stopped, "a")
    world.until(Started, "a")

    assert world.alive("a") == 1
    assert len(world.runner.runs) == 2
    assert world.told[-2].samples[0] > 0  # type: ignore[union-attr]


def test_a_drained_node_stays_drained_when_it_answers_again() -> None:
    world = VirtualWorld()
    world.add("a", Does.DEAF)
    world.start("a", SLOW)  # while something runs, the engine looks
    world.until(Started, "a")
    world.lose_node(FAST)
    world.until(NodeDown)
    world.ask(Drain("v100-1"))
    world.find_node(FAST)
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


# ---- nodes that do not answer ------------------------------------------------------------------------------------------


def test_a_copy_on_a_silent_node_that_outlives_its_kill_is_not_waited_for() -> None:
    world = VirtualWorld()
    world.runner.unreachable.add("v100-1")
    world.add("a", Does.TRAIN)
    world.start("a")
    world.until(Started, "a")
    world.lose_node(FAST)
    world.until(Lost, "a")
    assert world.runs["a", 1].sight.condition is Condition.RUNNING  # the kill did not get there

    world.start("a", SLOW)
    world.until(Started, "a")

    assert world.runs["a", 2].sight.condition is Condition.RUNNING


def test_a_job_on_a_silent_node_is_cancelled_although_its_processes_outlive_the_kill() -> None:
    world = VirtualWorld()
    world.runner.unreachable.add("v100-1")
    world.add("a", Does.DEAF)
    world.start("a")
    world.until(Started, "a")
    world.ask(Cancel("a"))
    world.lose_node(FAST)

    world.until(Cancelled, "a")


def test_a_gpu_of_a_node_that_is_back_is_not_given_away_while_a_stray_copy_uses_it() -> None:
    """The runner refuses to share a slot."""
    world = VirtualWorld()
    world.runner.unreachable.add("v100-1")
    for id_ in ("a", "b"):
        world.add(id_, Does.DEAF)
    world.start("a")
    world.until(Started, "a")
    world.lose_node(FAST)
    world.until(Lost, "a")
    world.find_node(FAST)
    world.until(NodeUp)

    world.start("b")
    world.until(Started, "b")

    slots = [world.runs[id_, 1].lease.gpus[0].slot for id_ in ("a", "b")]
    assert slots == [0, 1]


def test_what_was_killed_in_vain_is_killed_again_every_few_seconds() -> None:
    world = VirtualWorld()
    world.runner.unreachable.add("v100-1")
    kills: list[float] = []
    kill = world.runner.kill

    def noted(lease: Lease) -> None:
        kills.append(world.clock.now_s)
        kill(lease)

    world.runner.kill = noted  # type: ignore[method-assign]
    world.add("a", Does.DEAF)
    world.start("a")
    world.until(Started, "a")
    world.stop("a")
    world.settle(14.0)

    assert [round(later - earlier) for earlier, later in pairwise(kills)] == [5, 5]
    assert world.phase("a") is Phase.STOPPING


def test_a_queued_lease_on_a_node_that_falls_silent_does_not_begin_when_the_node_is_back() -> None:
    """The world refuses to run two copies of a job on nodes that answer."""
    world = busy_far_world()
    world.lose_node(FAST)
    world.until(Lost, "a")
    world.start("a", SLOW)
    world.until(Started, "a")
    world.calm_down()
    world.find_node(FAST)
    world.settle(20.0)

    assert world.runs["a", 1].sight.condition is Condition.VANISHED
    assert world.alive("a") == 1


def test_a_lease_on_a_silent_node_that_can_never_be_revoked_must_have_begun_and_is_given_up() -> None:
    world = FarWorld()
    world.add("a", Does.TRAIN)
    world.decide((), {"a": FAST})
    world.rest(4.0)
    assert world.alive("a") == 1  # it has begun, and nobody has seen it
    world.lose_node(FAST)
    world.until(Lost, "a")
    decided_s = world.engine.now()
    world.start("a", SLOW)

    started = world.until(Started, "a")

    assert started.time_s - decided_s >= world.runner.capabilities.claim_s
    assert world.alive("a") == 1


# ---- an engine with a queue of its own ---------------------------------------------------------------------------------


def busy_far_world() -> FarWorld:
    """Others took both GPUs of the fast node after the decision, and job a queues for one."""
    world = FarWorld()
    world.add("a", Does.TRAIN)
    world.decide((), {"a": FAST})
    world.cluster.foreign["v100-1"] = 2
    world.settle(10.0)
    assert world.runs["a", 1].sight.condition is Condition.QUEUED
    return world


def test_a_queued_job_is_starting_until_the_runners_patience_ends() -> None:
    world = busy_far_world()
    assert world.phase("a") is Phase.STARTING

    refused = world.until(Refused, "a")

    assert refused.reason == "was queued for 25 s: Resources"
    assert world.runner.capabilities.queue_s <= refused.time_s < 2 * world.runner.capabilities.queue_s
    assert world.phase("a") is Phase.WAITING


def test_a_job_whose_gpus_others_use_does_not_fail_for_it_however_often() -> None:
    world = busy_far_world()
    for _ in range(5):
        world.until(Refused, "a")
        world.cluster.foreign["v100-1"] = 0
        world.settle(10.0)
        world.decide((), {"a": FAST})
        world.cluster.foreign["v100-1"] = 2

    assert world.phase("a") is Phase.STARTING


def test_a_queued_job_that_is_stopped_is_taken_back_from_the_queue() -> None:
    world = busy_far_world()
    world.stop("a")

    assert world.until(Stopped, "a").samples.tolist() == [0.0]
    world.calm_down()
    world.settle(20.0)
    assert world.runs["a", 1].sight.condition is Condition.VANISHED
    assert world.count(Started, "a") == 0


def test_a_queued_job_keeps_its_place_in_the_queue_over_a_restart() -> None:
    world = busy_far_world()
    world.restart()
    world.calm_down()

    world.until(Started, "a")

    assert len(world.runs) == 1


def test_a_successor_is_queued_before_its_predecessor_is_gone_and_the_wait_for_it_is_no_impatience() -> None:
    """The predecessor takes longer to leave than a lease may queue."""
    world = FarWorld()
    world.add("a", Does.DEAF)
    world.add("b", Does.TRAIN)
    world.commands["a"] = replace(world.commands["a"], grace_s=80.0)
    world.start("a", SLOW)
    world.until(Started, "a")
    world.decide(("a",), {"b": SLOW})
    assert ("b", 1) in world.runs  # launched at once

    world.until(Started, "b")

    assert world.count(Refused, "b") == 0
    assert world.count(Stopped, "a") == 1


def test_a_lease_whose_launch_was_lost_is_taken_back_and_counts_against_the_job() -> None:
    world = FarWorld(mishaps=1.0)
    world.add("a", Does.TRAIN)
    world.decide((), {"a": FAST})
    world.runner.mishaps = 0.0

    assert world.until(Refused, "a").reason == "nothing came up within 30 s"


def test_an_engine_is_looked_at_as_often_as_it_likes_and_while_nothing_runs() -> None:
    world = FarWorld()
    world.add("a", Does.TRAIN)
    world.runner.looks.clear()
    for _ in range(100):
        world.ask()
        world.settle(1.0)

    gaps = [later - earlier for earlier, later in pairwise(world.runner.looks)]
    assert 19 <= len(world.runner.looks) <= 21
    assert min(gaps) >= 5.0


def test_gpus_that_others_use_are_not_ours_to_decide_about() -> None:
    world = FarWorld()
    world.add("a", Does.TRAIN)
    world.cluster.foreign["v100-1"] = 1
    assert world.until(NodeUsable) is not None
    assert world.state.capacity.tolist() == [1, 1]
    world.settle(20.0)
    assert sum(isinstance(event, NodeUsable) for event in world.told) == 1  # reported once

    world.calm_down()
    world.until(NodeUsable)

    assert world.state.capacity.tolist() == [2, 1]


def test_gpus_that_our_jobs_hold_stay_ours_until_they_give_them_back() -> None:
    world = busy_far_world()
    assert world.state.capacity.tolist() == [1, 1]  # of the two that others have, one is promised to job a

    world.until(Refused, "a")
    world.settle(10.0)

    assert world.state.capacity.tolist() == [0, 1]


def test_an_engine_that_cannot_be_reached_changes_nothing() -> None:
    world = FarWorld()
    world.add("a", Does.TRAIN)
    world.start("a")
    world.until(Started, "a")
    world.lose_node(SLOW)
    world.until(NodeDown)
    before = len(world.told)
    world.runner.mishaps = 1.0

    world.settle(100.0)

    assert [event for event in world.told[before:] if not isinstance(event, Progress)] == []
    assert world.phase("a") is Phase.RUNNING


def test_a_start_waits_until_it_is_known_how_the_lease_before_ended() -> None:
    """It may be through: what runs twice after a restart would be wasted."""
    world = FarWorld()
    world.add("a", Does.TRAIN)
    world.start("a")
    world.until(Started, "a")
    world.ask(Drain("v100-1"))  # lost to the loop, and its process keeps running
    world.settle(0.5)
    world.cluster.runs["a", 1].asked_s = float("inf")
    world.let_end()
    world.rest(30.0)  # it has finished, and nobody saw it
    world.runner.mishaps = 1.0
    world.restart()
    world.decide((), {"a": SLOW})
    world.settle(30.0)
    assert world.phase("a") is Phase.STARTING
    assert len(world.runs) == 1

    world.runner.mishaps = 0.0
    world.until(Finished, "a")

    assert len(world.runs) == 1


def test_what_a_stray_copy_does_in_the_end_is_not_the_story_of_its_successor() -> None:
    """The successor was stopped; the stray copy, which ended later, failed."""
    fleet = Fleet(VirtualRunner(lambda: 0.0))
    first, second = (Live(Lease("a", number, (), Command("x")), 0, 0.0, 0.0) for number in (1, 2))
    fleet.add(first)
    fleet.add(second)

    fleet.remove(second, Sight(Condition.ENDED, CHECKPOINTED))
    fleet.remove(first, Sight(Condition.ENDED, 3))

    assert fleet.story(0, "a", 2) == Story(failures=0, finished=False)


@pytest.mark.parametrize(
    ("end", "failures"),
    [
        (Sight(Condition.ENDED, 3), 1),
        (Sight(Condition.ENDED, 143, asked=True), 0),  # it died because it was asked to stop
        (Sight(Condition.ENDED, CHECKPOINTED), 0),
        (Sight(Condition.VANISHED), 0),
    ],
)
def test_only_an_error_that_nobody_asked_for_counts_as_a_failure(end: Sight, failures: int) -> None:
    fleet = Fleet(VirtualRunner(lambda: 0.0))
    live = Live(Lease("a", 1, (), Command("x"), failures=2), 0, 0.0, 0.0)
    fleet.add(live)
    fleet.remove(live, end)

    assert fleet.story(0, "a", 1) == Story(2 + failures, finished=False)
