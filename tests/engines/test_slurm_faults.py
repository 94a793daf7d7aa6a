"""Leases on a real Slurm whose daemons are killed, and whose administrators act by hand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from engine_world import FAST, SLOW, Does
from slurm_world import SlurmLeaseWorld

from fairlead.model.events import Finished, Lost, NodeUp, Started
from fairlead.model.lifecycle import Phase
from waiting import wait_for

pytestmark = pytest.mark.slow


@pytest.fixture
def world(tmp_path: Path) -> Iterator[SlurmLeaseWorld]:
    made = SlurmLeaseWorld(tmp_path)
    yield made
    made.close()


def run(world: SlurmLeaseWorld, id_: str) -> str:
    """The number of the Slurm job of a job that runs and has saved some work."""
    world.add(id_, Does.TRAIN)
    world.start(id_)
    world.until(Started, id_)
    world.under_way(id_)
    return world.slurm.run("squeue", "-h", "--me", f"--name=fairlead-{id_}", "-o", "%A").strip()


def test_jobs_of_a_slurmd_that_was_killed_continue_elsewhere_and_their_old_processes_end(
    world: SlurmLeaseWorld,
) -> None:
    run(world, "a")
    world.slurm.kill("slurmd-v100-1")
    world.until(Lost, "a")
    world.start("a", SLOW)
    world.until(Started, "a")

    world.slurm.start_node("v100-1")
    world.until(NodeUp)

    wait_for(lambda: world.alive("a") == 1, "processes of the first lease to end")
    world.until(Finished, "a")
    assert world.count(Finished, "a") == 1


def test_jobs_run_on_while_the_controller_is_away(world: SlurmLeaseWorld) -> None:
    run(world, "a")
    world.slurm.wait_until_saved()
    world.slurm.kill("slurmctld")
    world.settle(2.0)
    assert world.phase("a") is Phase.RUNNING
    world.slurm.start_controller()

    world.until(Finished, "a")

    assert world.count(Started, "a") == 1
    assert world.count(Lost, "a") == 0


def test_a_lease_that_is_cancelled_by_hand_is_lost_and_its_job_starts_again(world: SlurmLeaseWorld) -> None:
    world.slurm.run("scancel", run(world, "a"))

    assert world.until(Lost, "a").samples[0] > 0
    world.start("a")
    world.until(Finished, "a")

    assert world.alive("a") == 0


def test_a_lease_that_is_requeued_by_hand_does_not_run_twice(world: SlurmLeaseWorld) -> None:
    number = run(world, "a")

    world.slurm.run("scontrol", "requeue", number, check=False)
    world.settle(1.0)

    assert world.alive("a") <= 1
    if world.phase("a") is not Phase.RUNNING:
        world.start("a")
    world.until(Finished, "a")
    assert world.count(Finished, "a") == 1


def test_a_node_that_is_drained_by_hand_keeps_its_job_and_takes_no_other(world: SlurmLeaseWorld) -> None:
    run(world, "a")
    world.slurm.run("scontrol", "update", "nodename=v100-1", "state=drain", "reason=test")

    def closed() -> bool:
        world.wait(0.1)
        return int(world.state.node_free[FAST]) == 0

    wait_for(closed, "the other GPU of the node to be out of use")
    world.until(Finished, "a")

    assert world.count(Lost, "a") == 0
