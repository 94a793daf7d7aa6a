"""The live engine over one that is far away: it queues, picks devices, is shared with others and answers late."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from engine_world import FAST, SLOW, Does
from far_world import FarWorld

from fairlead.engines.leases import Condition
from fairlead.engines.requests import Drain
from fairlead.engines.runner import Capabilities
from fairlead.model.events import (
    Finished,
    Lost,
    NodeDown,
    NodeUsable,
    Progress,
    Refused,
    Started,
    Stopped,
)
from fairlead.model.lifecycle import Phase


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


def test_a_job_that_queues_for_a_closed_node_waits_again_before_the_node_can_be_granted_once_more() -> None:
    """Otherwise it would always be held by the next job that waits for it, and would always count as usable."""
    world = busy_far_world()
    world.cluster.closed.add("v100-1")

    refused = world.until(Refused, "a")

    assert refused.reason == "was queued for a node that takes no jobs now: Resources"
    assert refused.time_s < world.runner.capabilities.queue_s
    assert world.state.nodes.usable[FAST] == 0, "in the same step"


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


def test_a_start_that_waits_for_its_time_does_not_wait_for_the_next_look() -> None:
    world = FarWorld()
    world.add("a", Does.NOTHING_THERE)
    world.decide((), {"a": FAST})
    world.until(Refused, "a")
    world.decide((), {"a": FAST})  # for a second later

    assert [type(event) for event in world.wait(3.0)] == [Refused]


def test_an_engine_that_picks_devices_and_has_no_queue_gets_a_lease_once_there_is_room() -> None:
    world = FarWorld()
    world.runner.capabilities = Capabilities(look_s=5.0, picks_devices=True)
    for id_ in ("a", "b", "c"):
        world.add(id_, Does.TRAIN)
    world.decide((), {"a": FAST, "b": FAST})
    assert len(world.runs) == 2  # the node has room for both
    world.until(Started, "a")
    world.under_way("a")

    world.decide(("a",), {"c": FAST})
    assert ("c", 1) not in world.runs
    world.until(Started, "c")

    assert world.count(Stopped, "a") == 1
