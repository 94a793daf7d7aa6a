"""What a start costs, as the live engine measures it on real processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from engine_world import FAST, SLOW, Does
from local_world import LocalWorld
from warm_world import WarmWorld

from fairlead.engines.live import LiveEngine
from fairlead.model.events import FirstProgress, Started, Stopped


@pytest.fixture(params=[LocalWorld, WarmWorld])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LocalWorld]:
    make: Callable[[Path], LocalWorld] = request.param
    made = make(tmp_path)
    yield made
    made.close()


def test_every_start_is_measured_once_from_its_launch_to_its_first_progress(world: LocalWorld) -> None:
    world.add("a", Does.TRAIN)
    for number, node in enumerate((FAST, SLOW), start=1):
        before_s = world.engine.now()
        world.start("a", node)
        first = world.until(FirstProgress, "a")
        world.under_way("a")

        assert 0 < first.cost_s[0] <= first.time_s - before_s
        assert first.warm == isinstance(world, WarmWorld)
        assert world.count(FirstProgress, "a") == number
        world.stop("a")
        world.until(Stopped, "a")


def test_a_lease_that_was_adopted_is_not_measured(world: LocalWorld) -> None:
    """Nobody knows when it was launched."""
    world.add("a", Does.TRAIN)
    world.start("a")
    world.until(Started, "a")
    measured = world.count(FirstProgress, "a")  # it may be quick
    world.restart()

    world.under_way("a")

    assert world.count(FirstProgress, "a") == measured


def test_nothing_is_measured_if_the_operator_has_set_what_restarts_cost(world: LocalWorld) -> None:
    command_of = world.commands.__getitem__
    world.engine = LiveEngine(
        world.state, world.runner, world.inbox, command_of, world._clock, progress_s=1.0, learns_restarts=False
    )
    world.add("a", Does.TRAIN)
    world.start("a")

    world.under_way("a")

    assert world.count(FirstProgress, "a") == 0
