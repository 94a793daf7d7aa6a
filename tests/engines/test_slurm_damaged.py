"""Steered jobs whose records are damaged: the job concerned loses its run, and nobody else anything."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from fake_steer_world import FakeSteerWorld, world_with_two_jobs
from test_damaged_leases import DAMAGES

from fairlead.engines.local import shim
from fairlead.model.events import Failed, Finished, Lost, Started
from fairlead.model.lifecycle import Phase


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSteerWorld:
    return world_with_two_jobs(tmp_path, monkeypatch)


def restart_with_damage(world: FakeSteerWorld, *damaged: Path, damage: Callable[[Path], object]) -> None:
    def away() -> None:
        for path in damaged:
            damage(path)
        world.again()

    world.restart(while_away=away)


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=list(DAMAGES))
def test_a_job_whose_lease_is_damaged_is_stopped_and_starts_again(
    world: FakeSteerWorld, damage: Callable[[Path], object]
) -> None:
    lease = world.file("a", shim.LEASE)
    restart_with_damage(world, lease, damage=damage)

    world.until(Lost, "a")
    assert world.reasons("a") == [f"{lease} no longer describes a lease"]
    assert (world.slurm.jobs["1"].state, world.slurm.jobs["1"].held) == ("SPECIAL_EXIT", True), "it saved its work"
    assert (world.phase("b"), world.slurm.jobs["2"].restarts) == (Phase.RUNNING, 0)
    world.settle(5.0)  # its pause
    world.start("a")
    world.until(Started, "a")
    for id_, job in (("1", "a"), ("2", "b")):
        world.slurm.end(id_)
        world.until(Finished, job)


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=list(DAMAGES))
def test_damage_to_the_second_record_of_a_lease_changes_nothing(
    world: FakeSteerWorld, damage: Callable[[Path], object]
) -> None:
    restart_with_damage(world, world.file("a", shim.CLAIM), damage=damage)
    world.settle(30.0)

    assert (world.phase("a"), world.phase("b")) == (Phase.RUNNING, Phase.RUNNING)
    world.slurm.end("1", 3)
    world.until(Failed, "a")
    assert world.slurm.jobs["1"].restarts == 0


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=list(DAMAGES))
def test_a_job_of_which_nothing_is_known_any_more_waits_and_others_go_on(
    world: FakeSteerWorld, damage: Callable[[Path], object]
) -> None:
    files = world.file("a", shim.LEASE), world.file("a", shim.CLAIM)
    restart_with_damage(world, *files, damage=damage)

    world.until(Lost, "a")
    world.settle(30.0)

    assert (world.phase("a"), world.phase("b")) == (Phase.WAITING, Phase.RUNNING)
    assert world.slurm.jobs["1"].active, "its GPUs count as those of a foreign job until it ends"
    assert int(world.state.node_free.sum()) == 1
    world.slurm.end("2")
    world.until(Finished, "b")


def test_a_lease_whose_exit_code_is_damaged_is_a_failure_with_a_reason(world: FakeSteerWorld) -> None:
    world.slurm.end("1")
    path = world.file("a", shim.EXIT)
    path.write_text("{")
    restart_with_damage(world, damage=DAMAGES["empty"])

    world.until(Failed, "a")

    assert f"{path} holds no exit code" in world.reasons("a")[0]
    assert world.phase("b") is Phase.RUNNING
