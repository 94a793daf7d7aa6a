"""Requests to stop that reach a job at its most awkward instants, with real processes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from engine_world import spec_of
from local_world import SOURCE, LocalWorld

from fairlead.engines.requests import Command, Submit
from fairlead.model.events import Failed, Finished, Started, Stopped
from fairlead.model.lifecycle import Phase
from waiting import PATIENCE_S, wait_for

BEFORE_ITS_HANDLER = """
import os, sys, time
print("here", flush=True)
while not os.path.exists(sys.argv[1]): time.sleep(0.02)  # in place of long imports
from fairlead import lease
lease.restore()
lease.report(60)
"""
AFTER_ITS_LAST_STEP = """
import os, sys, time
from fairlead import lease
class Last:
    def __del__(self, write=os.write, exists=os.path.exists, sleep=time.sleep, over=sys.argv[1]):
        write(1, b"here")
        while not exists(over): sleep(0.02)  # in place of a long shutdown of the interpreter
lease.restore()
last = Last()
lease.report(60)
"""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[LocalWorld]:
    world = LocalWorld(tmp_path)
    yield world
    world.let_end()
    world.close()


def begin(world: LocalWorld, script: str) -> None:
    """Job a, at the instant at which its script waits."""
    (world.root / "script.py").write_text(script)
    run = f"exec {sys.executable} script.py {world.root}/over"
    world.commands["a"] = Command(run, workdir=str(world.root), env={"PYTHONPATH": str(SOURCE)}, grace_s=PATIENCE_S)
    world.ask(Submit(spec_of("a", 1), world.commands["a"]))
    world.start("a")
    world.until(Started, "a")
    wait_for(lambda: "here" in world.log("a", 1), "the instant")


def test_a_job_that_is_stopped_before_its_handler_is_installed_runs_again(world: LocalWorld) -> None:
    begin(world, BEFORE_ITS_HANDLER)

    world.stop("a")
    world.until(Stopped, "a")

    assert world.phase("a") is Phase.WAITING
    world.start("a")
    world.until(Finished, "a")
    assert not world.count(Failed, "a")


def test_a_job_that_is_stopped_while_its_interpreter_shuts_down_has_finished_once(world: LocalWorld) -> None:
    begin(world, AFTER_ITS_LAST_STEP)

    world.stop("a")
    finished = world.until(Finished, "a")

    assert finished.samples[0] == 60
    assert world.count(Finished, "a") == world.state.leases[0] == 1
