"""A log that was put back: leases that it does not contain are found, stopped and never numbered again."""

from __future__ import annotations

import numpy as np
import pytest
from engine_world import CLUSTER, FAST, SLOW, SPEEDS, Does
from virtual_world import VirtualWorld

from fairlead.engines.live import LiveEngine
from fairlead.model.events import Finished, Renumbered, Started
from fairlead.model.lifecycle import Phase
from fairlead.rates.estimator import TableEstimator
from fairlead.rounds.snapshot import dump, load


def put_back(world: VirtualWorld, backup: bytes, strangers: tuple[str, ...] = (), floor: int = 0) -> list[object]:
    """Continue from an older state, as a restored log gives it; the leases are those of now."""
    now_s = world.engine.now()
    world.state = load(backup, CLUSTER, TableEstimator(SPEEDS, CLUSTER))
    command_of = world.commands.__getitem__
    world.engine = LiveEngine(
        world.state, world.runner, world.inbox, command_of, world.clock, progress_s=1.0, lease_floor=lambda job: floor
    )
    world.state.pass_time(now_s)
    event = world.engine.renumbered()
    if event is not None:
        world.state.fold(event)
    return [event, *world.engine.resume(strangers)]


def leases(world: VirtualWorld, id_: str) -> int:
    return int(world.state.leases[world.state.position[id_]])


def test_a_lease_that_the_log_contains_is_adopted_under_its_number() -> None:
    world = VirtualWorld()
    world.add("a", Does.TRAIN)
    world.start("a")
    world.until(Started, "a")

    assert put_back(world, dump(world.state), floor=1000) == [None]
    assert leases(world, "a") == 1
    world.until(Finished, "a")
    assert world.runner.numbers("a") == [1]


def test_a_lease_that_the_log_does_not_contain_is_stopped_before_the_job_runs_again() -> None:
    world = VirtualWorld()
    world.add("a", Does.TRAIN)
    backup = dump(world.state)
    world.start("a")
    world.until(Started, "a")

    event, *strangers = put_back(world, backup)
    assert isinstance(event, Renumbered)
    assert (event.leases.tolist(), strangers) == ([1000], [])
    world.start("a", SLOW)  # the runner fails the test if two copies run
    world.until(Finished, "a")
    assert world.runner.numbers("a") == [1, 1001]


def test_a_job_that_finished_after_the_backup_is_not_run_again() -> None:
    world = VirtualWorld()
    world.add("a", Does.END)
    backup = dump(world.state)
    world.start("a")
    world.until(Finished, "a")

    put_back(world, backup)
    assert world.phase("a") is Phase.WAITING
    world.start("a")
    world.until(Finished, "a")
    assert world.runner.numbers("a") == [1]


def test_a_job_that_arrives_again_keeps_away_from_the_numbers_of_its_leases() -> None:
    world = VirtualWorld()
    backup = dump(world.state)  # before the scheduler took the job
    world.add("a", Does.TRAIN)
    world.start("a")
    world.until(Started, "a")

    event, *strangers = put_back(world, backup, strangers=("a",))
    assert (event, strangers) == (None, [("a", 1)])
    world.add("a", Does.TRAIN)
    assert leases(world, "a") == 1000
    world.start("a")
    world.until(Finished, "a")
    assert world.runner.numbers("a") == [1, 1001]


def test_nobody_gets_the_gpus_of_a_stranger_before_it_is_gone() -> None:
    world = VirtualWorld()
    backup = dump(world.state)
    world.add("lost", Does.TRAIN, gpus=2)
    world.start("lost", FAST, gpus=2)
    world.until(Started, "lost")

    assert put_back(world, backup, strangers=("lost",)) == [None, ("lost", 1)]
    world.add("new", Does.TRAIN, gpus=2)
    world.start("new", FAST, gpus=2)  # the runner fails the test if two leases share a GPU
    world.until(Finished, "new")
    assert world.alive("lost") == 0
    assert world.runner.numbers("new") == [1]


@pytest.mark.parametrize("begun", [False, True])
def test_a_job_of_an_earlier_incarnation_without_a_lease_here_continues_at_its_floor(begun: bool) -> None:
    world = VirtualWorld()
    world.add("a", Does.TRAIN)
    if begun:
        world.start("a")
        world.until(Started, "a")
    backup = dump(world.state)
    world.runner.runs.clear()  # another machine

    put_back(world, backup, floor=2000)
    assert leases(world, "a") == 2000
    world.wait(0.0)
    world.start("a")
    world.until(Finished, "a")
    assert world.runner.numbers("a") == [2001]


def test_a_job_with_many_leases_continues_at_the_next_thousand() -> None:
    world = VirtualWorld()
    world.add("a", Does.TRAIN)
    world.state.fold(Renumbered(world.state.now_s, np.array([0]), np.array([999])))
    backup = dump(world.state)
    world.start("a")
    world.until(Started, "a")

    event = put_back(world, backup)[0]
    assert isinstance(event, Renumbered)
    assert event.leases.tolist() == [2000]
