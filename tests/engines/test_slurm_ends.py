"""Ends of steered jobs that nobody has seen yet when something else is decided about the job."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from engine_world import SLOW
from fake_steer_world import FakeSteerWorld, world_with_two_jobs

from fairlead.engines.requests import Cancel, Hold
from fairlead.model.events import Event, Failed, Finished

DECISIONS: dict[str, Callable[[FakeSteerWorld], object]] = {
    "stop": lambda world: world.decide(("a",), {}),
    "move": lambda world: world.decide(("a",), {"a": SLOW}),
    "hold": lambda world: world.ask(Hold("a")),
    "cancel": lambda world: world.ask(Cancel("a")),
}


@pytest.mark.parametrize(("code", "end"), [(3, Failed), (0, Finished)], ids=["failed", "finished"])
@pytest.mark.parametrize("decide", DECISIONS.values(), ids=list(DECISIONS))
def test_a_job_that_ended_before_a_request_to_stop_could_reach_it_has_ended_that_way(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    decide: Callable[[FakeSteerWorld], object],
    code: int,
    end: type[Event],
) -> None:
    world = world_with_two_jobs(tmp_path, monkeypatch)
    world.slurm.end("1", code)

    decide(world)
    world.until(end, "a")

    assert world.slurm.jobs["1"].restarts == 0, "it is not run again"
