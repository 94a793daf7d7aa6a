"""What every engine owes the loop, tried on each of them. `worlds.py` says how to make things happen there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from engine_world import FAST, SLOW, STEPS, Does, LiveWorld, World
from far_world import FarWorld
from local_world import LocalWorld
from ray_world import RayWorld
from simulated_world import SimulatedWorld
from slurm_world import SlurmLeaseWorld
from steer_world import SteerWorld
from virtual_world import PretendWorld, VirtualWorld
from worlds import WORLDS, params

from fairlead.engines.requests import Cancel, Drain, Hold, Release, Resume
from fairlead.model.events import (
    Arrived,
    Cancelled,
    Failed,
    Finished,
    FirstProgress,
    Held,
    Lost,
    NodeDown,
    NodeUp,
    Progress,
    Refused,
    Released,
    Started,
    Stopped,
)
from fairlead.model.lifecycle import Phase


@pytest.fixture(params=params())
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    made = WORLDS[request.param](tmp_path)
    yield made
    made.close()


def is_part_of_the_work(world: World, samples: float) -> bool:
    """Of an engine without reports a job is believed to be on time, which may be more than all on a busy machine."""
    return 0 < samples < STEPS or (samples > 0 and "progress" in world.lacks)


def needs(world: World, what: str) -> None:
    """Says what an engine has no notion of, rather than trying it."""
    if what in world.lacks:
        pytest.skip(f"the {world.name} engine has no notion of it: {world.lacks[what]}")


def live(world: World) -> LiveWorld:
    needs(world, "requests")
    assert isinstance(world, LiveWorld)
    return world


def test_what_engines_lack_is_listed_with_its_reason() -> None:
    """A live engine that runs jobs skips nothing but what its surroundings do not have."""
    assert set(SimulatedWorld.lacks) == {"fail", "deaf", "refuse", "sight", "restart", "requests", "progress", "runner"}
    assert set(LocalWorld.lacks) == {"queue", "foreign"}
    assert set(SlurmLeaseWorld.lacks) == set()
    assert set(RayWorld.lacks) == set()
    assert set(SteerWorld.lacks) == {"progress", "processes", "retry", "shapes", "sight"}
    assert set(FarWorld.lacks) == {"processes"}
    assert set(VirtualWorld.lacks) == {"processes", "queue", "foreign"}
    assert {"fail", "deaf", "refuse", "sight", "progress", "nodes", "unbegun"} < set(PretendWorld.lacks)


# ---- launch, finish, fail ----------------------------------------------------------------------------------------------


def test_a_job_that_is_started_runs_and_says_so_once(world: World) -> None:
    world.add("a", Does.TRAIN)
    assert world.phase("a") is Phase.WAITING

    world.start("a")
    started = world.until(Started, "a")

    assert started.rate.tolist() == [20.0]
    assert world.phase("a") is Phase.RUNNING
    assert world.alive("a") == 1
    world.settle(0.5)
    assert world.count(Started, "a") == 1


def test_a_job_that_is_through_is_finished_with_all_its_samples_and_gives_its_gpu_back(world: World) -> None:
    world.add("a", Does.TRAIN)
    world.start("a")

    finished = world.until(Finished, "a")

    assert finished.samples.tolist() == [STEPS]
    assert world.alive("a") == 0
    assert world.state.node_free.tolist() == [2, 1]


def test_two_jobs_on_one_node_do_not_share_a_gpu(world: World) -> None:
    for id_ in ("a", "b"):
        world.add(id_, Does.TRAIN)
        world.start(id_)

    world.until(Finished, "a")
    if world.phase("b") is not Phase.FINISHED:
        world.until(Finished, "b")

    assert world.count(Started, "a") == world.count(Started, "b") == 1


def test_a_job_over_several_nodes_is_one_lease_that_holds_all_its_gpus(world: World) -> None:
    needs(world, "shapes")
    made = live(world)
    made.add("a", Does.TRAIN, gpus=3)
    made.start_on_all("a")
    made.until(Started, "a")
    assert made.state.node_free.tolist() == [0, 0]

    lease = made.runner.recall(("a", 1))

    assert lease is not None
    assert lease.nodes == {"v100-1": 2, "k80-1": 1}
    slots = [gpu.slot for gpu in lease.gpus]
    assert slots == ([None] * 3 if made.runner.capabilities.picks_devices else [0, 1, 0])
    assert made.alive("a") == 1
    made.until(Finished, "a")
    assert made.state.node_free.tolist() == [2, 1]


def test_a_start_on_gpus_in_use_is_launched_at_once_only_where_the_engine_queues(world: World) -> None:
    made = live(world)
    made.add("a", Does.TRAIN)
    made.add("b", Does.TRAIN)
    made.start("a", SLOW)
    made.until(Started, "a")
    made.under_way("a")

    made.decide(("a",), {"b": SLOW})

    assert (made.runner.recall(("b", 1)) is not None) == made.runner.capabilities.queues
    made.until(Started, "b")


def test_a_job_that_is_over_before_anyone_looks_has_started_all_the_same(world: World) -> None:
    needs(world, "fail")
    world.add("a", Does.END)
    world.start("a")

    world.until(Finished, "a")

    assert world.count(Started, "a") == 1


def test_a_job_that_ends_with_an_error_fails_and_says_how(world: World) -> None:
    needs(world, "fail")
    world.add("a", Does.FAIL)
    world.start("a")

    failed = world.until(Failed, "a")

    assert failed.reason == "exit code 3"
    assert world.state.node_free.tolist() == [2, 1]


def test_a_job_is_tried_again_as_often_as_its_owner_allows(world: World) -> None:
    needs(world, "fail")
    needs(world, "retry")
    world.add("a", Does.FAIL, max_retries=2)
    for _ in range(2):
        world.start("a")
        world.until(Lost, "a")
        assert world.phase("a") is Phase.WAITING
        world.restart()  # what was tried must not be forgotten
    world.start("a")

    assert world.until(Failed, "a").reason == "exit code 3 after 3 attempts"


# ---- stop --------------------------------------------------------------------------------------------------------------


def test_a_job_that_is_stopped_keeps_its_work_and_goes_on_from_there(world: World) -> None:
    world.add("a", Does.TRAIN)
    world.start("a")
    world.until(Started, "a")
    world.under_way("a")
    world.stop("a")

    kept = float(world.until(Stopped, "a").samples[0])
    assert is_part_of_the_work(world, kept)
    assert world.alive("a") == 0
    assert world.phase("a") is Phase.WAITING

    world.start("a", SLOW)
    began_s = world.until(Started, "a").time_s
    ended = world.until(Finished, "a")
    assert ended.samples.tolist() == [STEPS]
    if isinstance(world, SteerWorld):
        assert world.log("a", 2).startswith("from 0\nfrom ")
        assert not world.log("a", 2).endswith("from 0\n")
    elif isinstance(world, LocalWorld | SlurmLeaseWorld | RayWorld):
        assert f"from {kept:g}\n" in world.log("a", 2)
    else:  # where time is virtual: neither faster than the rest of its steps would be, nor all of them again
        assert (STEPS - kept) * 0.05 - 0.2 <= ended.time_s - began_s


def test_a_job_that_ignores_signals_is_killed_after_its_grace(world: World) -> None:
    needs(world, "deaf")
    world.add("a", Does.DEAF)
    world.start("a")
    world.until(Started, "a")
    world.under_way("a")
    asked_s = world.engine.now()
    world.stop("a")

    stopped = world.until(Stopped, "a")

    assert stopped.time_s - asked_s >= 0.9
    assert stopped.samples.tolist() == [0.0]
    assert world.alive("a") == 0


def test_a_job_that_moves_is_never_in_two_places(world: World) -> None:
    world.add("a", Does.TRAIN)
    world.start("a")
    world.until(Started, "a")
    world.under_way("a")
    world.move("a", SLOW)
    world.until(Stopped, "a")
    assert world.alive("a") == 0 or world.name == "simulated"

    world.until(Started, "a")

    assert world.alive("a") == 1
    assert world.state.spots[0] == ((SLOW, 1),)


def test_a_start_waits_for_gpus_that_are_still_in_use(world: World) -> None:
    needs(world, "deaf")
    world.add("a", Does.DEAF)
    world.add("b", Does.TRAIN)
    world.start("a", SLOW)
    world.until(Started, "a")
    world.under_way("a")

    world.decide(("a",), {"b": SLOW})
    world.until(Started, "b")

    assert world.count(Stopped, "a") == 1
    assert world.alive("a") == 0


def test_a_job_that_is_stopped_before_it_began_has_lost_nothing(world: World) -> None:
    needs(world, "deaf")
    world.add("a", Does.DEAF)
    world.add("b", Does.TRAIN)
    world.start("a", SLOW)
    world.until(Started, "a")
    world.under_way("a")
    world.decide(("a",), {"b": SLOW})
    world.stop("b")

    assert world.until(Stopped, "b").samples.tolist() == [0.0]
    assert world.count(Started, "b") == 0
    world.until(Stopped, "a")


# ---- what goes wrong ---------------------------------------------------------------------------------------------------


def test_a_node_that_dies_takes_its_jobs_along_and_they_start_again_elsewhere(world: World, tmp_path: Path) -> None:
    needs(world, "nodes")
    if world.name == "simulated":
        world = SimulatedWorld(node_dies_after_s=1.0)
    world.add("a", Does.TRAIN)
    world.start("a")
    world.until(Started, "a")
    if world.name != "simulated":
        world.under_way("a")
        world.lose_node(FAST)

    lost = world.until(Lost, "a")

    assert any(isinstance(event, NodeDown) and event.node == FAST for event in world.told)
    assert 0 <= lost.samples[0] < STEPS
    assert world.phase("a") is Phase.WAITING
    assert not world.state.node_up[FAST]
    world.start("a", SLOW)
    world.until(Started, "a")
    if world.name != "simulated":  # there nodes come back when they do
        assert world.alive("a") == 1
        world.find_node(FAST)
        world.until(NodeUp)
        assert world.state.node_up[FAST]


def test_a_command_that_is_refused_leaves_the_job_waiting_and_at_last_failed(world: World) -> None:
    """Unless it is a job of another system, which would still wait there."""
    needs(world, "refuse")
    world.add("a", Does.NOTHING_THERE)
    for _ in range(2):
        world.start("a")
        assert world.until(Refused, "a").reason
        assert world.phase("a") is Phase.WAITING
        assert world.state.node_free.tolist() == [2, 1]
    world.start("a")

    if "retry" in world.lacks:
        assert world.until(Refused, "a").reason
        assert world.phase("a") is Phase.WAITING
    else:
        assert "could not be started 3 times" in world.until(Failed, "a").reason


def test_a_job_out_of_sight_is_lost_and_does_not_live_on(world: World) -> None:
    needs(world, "sight")
    world.add("a", Does.TRAIN)
    world.start("a")
    world.until(Started, "a")
    world.under_way("a")
    world.lose_sight("a")

    lost = world.until(Lost, "a")

    assert 0 < lost.samples[0] < STEPS
    world.start("a")
    world.until(Started, "a")
    assert world.alive("a") == 1


def test_progress_is_told_with_the_rate_at_which_it_was_made(world: World) -> None:
    needs(world, "progress")
    world.add("a", Does.TRAIN)
    world.start("a")

    progress = world.until(Progress, "a")

    assert 0 < progress.samples[0] <= STEPS
    slowest = {"local": 0, "slurm-leases": 0, "ray": 0, "far": 1}.get(
        world.name, 5
    )  # a machine may be busy, and jobs pause until they may end
    assert slowest <= progress.rate[0] <= 21


# ---- restart of the scheduler ------------------------------------------------------------------------------------------


def test_a_running_job_is_adopted_after_a_restart(world: World) -> None:
    needs(world, "restart")
    world.add("a", Does.TRAIN)
    world.start("a")
    world.until(Started, "a")
    world.restart()

    world.until(Finished, "a")

    assert world.count(Started, "a") == 1
    assert world.count(Lost, "a") == 0


def test_a_job_that_ended_while_nobody_looked_is_told_once(world: World) -> None:
    needs(world, "restart")
    world.add("a", Does.TRAIN)
    world.start("a")
    world.until(Started, "a")

    def away() -> None:
        assert isinstance(world, LiveWorld)
        world.let_end()
        deadline_s = world._clock() + world.patience_s
        while world.alive("a"):
            assert world._clock() < deadline_s, "the job does not end"
            world.rest(0.1)

    world.restart(while_away=away)
    world.until(Finished, "a")
    world.restart()
    world.settle(0.3)

    assert world.count(Finished, "a") == 1


def test_a_start_that_was_decided_and_not_carried_out_is_carried_out_after_the_restart(world: World) -> None:
    needs(world, "restart")
    world.add("a", Does.TRAIN)
    world.decide((), {"a": FAST}, apply=False)
    world.restart()

    world.until(Started, "a")

    assert world.alive("a") == 1


def test_a_stop_that_was_decided_and_not_carried_out_is_carried_out_after_the_restart(world: World) -> None:
    needs(world, "restart")
    world.add("a", Does.TRAIN)
    world.start("a")
    world.until(Started, "a")
    world.under_way("a")
    world.decide(("a",), {}, apply=False)
    world.restart()

    world.until(Stopped, "a")

    assert world.alive("a") == 0


@pytest.mark.parametrize("applied", [True, False])
def test_a_move_goes_on_after_a_restart_in_its_middle(world: World, applied: bool) -> None:
    needs(world, "restart")
    world.add("a", Does.TRAIN)
    world.start("a")
    world.until(Started, "a")
    world.under_way("a")
    world.decide(("a",), {"a": SLOW}, apply=applied)
    world.restart()

    world.until(Stopped, "a")
    world.until(Started, "a")

    assert world.alive("a") == 1
    assert world.state.leases[0] == 2


def test_a_lease_that_was_launched_right_before_the_restart_runs_once_or_is_taken_back(world: World) -> None:
    """Who claims it first owns it; in either case the job runs once."""
    needs(world, "restart")
    world.add("a", Does.TRAIN)
    world.start("a")
    world.restart()

    deadline_s = world.engine.now() + world.patience_s
    while world.phase("a") is not Phase.RUNNING:
        assert world.engine.now() < deadline_s, "the job does not start"
        if world.phase("a") is Phase.WAITING:
            world.start("a")
        world.wait(0.5)

    assert world.alive("a") == 1


# ---- requests ----------------------------------------------------------------------------------------------------------


def test_what_is_asked_in_one_breath_comes_as_one_answer(world: World) -> None:
    made = live(world)
    made.add("a", Does.TRAIN)
    events = made.ask(Hold("a"), Release("a"), Hold("a"), Cancel("a"))

    assert [type(event) for event in events] == [Held, Released, Held, Cancelled]
    assert made.phase("a") is Phase.CANCELLED


def test_a_job_that_arrives_twice_arrives_once(world: World) -> None:
    made = live(world)
    made.add("a", Does.TRAIN)
    made.add("a", Does.TRAIN)

    assert sum(isinstance(event, Arrived) for event in made.told) == 1


def test_a_running_job_is_cancelled_when_it_is_gone(world: World) -> None:
    made = live(world)
    made.add("a", Does.TRAIN)
    made.start("a")
    made.until(Started, "a")
    assert not any(isinstance(event, Cancelled) for event in made.ask(Cancel("a")))

    made.until(Cancelled, "a")

    assert made.alive("a") == 0
    assert made.state.node_free.tolist() == [2, 1]


def test_a_running_job_is_held_with_its_work_and_goes_on_when_it_is_released(world: World) -> None:
    made = live(world)
    made.add("a", Does.TRAIN)
    made.start("a")
    made.until(Started, "a")
    made.under_way("a")
    made.ask(Hold("a"))
    held = made.until(Held, "a")
    assert is_part_of_the_work(made, held.samples[0])
    assert made.alive("a") == 0

    made.ask(Release("a"))
    made.start("a")

    assert made.until(Finished, "a").samples.tolist() == [STEPS]


def test_a_drained_node_sends_its_jobs_away_and_waits_for_them(world: World) -> None:
    made = live(world)
    made.add("a", Does.TRAIN)
    made.start("a")
    made.until(Started, "a")
    made.under_way("a")

    events = made.ask(Drain("v100-1"))

    assert [type(event) for event in events if not isinstance(event, Progress | FirstProgress)] == [NodeDown, Lost]
    made.start("a", SLOW)
    made.until(Started, "a")
    assert made.alive("a") == 1
    made.ask(Resume("v100-1"))
    assert made.state.node_up[FAST]
    assert made.until(Finished, "a").samples.tolist() == [STEPS]
