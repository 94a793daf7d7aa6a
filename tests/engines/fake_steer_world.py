"""The live engine over a Slurm in memory, on a virtual clock: quick, and the same every time."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from engine_world import CLUSTER, Does, LiveWorld
from fake_slurm import FakeSlurm
from virtual_world import Clock

from fairlead.engines.local.files import LocalReader
from fairlead.engines.requests import Command
from fairlead.engines.runner import Runner
from fairlead.engines.slurm import steer_runner
from fairlead.engines.slurm.steer_runner import SlurmSteerRunner
from fairlead.model.events import Failed, Lost, Started


class FakeSteerWorld(LiveWorld):
    """The live engine over a Slurm in memory, on a virtual clock. Job "a" is Slurm's job "1", "b" is "2"."""

    name = "fake-slurm-steer"
    patience_s = 600.0
    lacks: Mapping[str, str] = {}

    def __init__(self, root: Path) -> None:
        clock = Clock()
        super().__init__(clock, clock.rest)
        gpus = zip(CLUSTER.nodes, CLUSTER.node_type.tolist(), CLUSTER.node_gpus.tolist(), strict=True)
        self.slurm = FakeSlurm({name: (CLUSTER.types[type_], gpus) for name, type_, gpus in gpus})
        self.root = root
        self.runner: SlurmSteerRunner = self._open()
        self.reader = LocalReader(self.runner.root)
        self.connect()

    def _open(self) -> SlurmSteerRunner:
        gpus = {name: gpus for name, (_, gpus) in self.slurm.nodes_.items()}
        return SlurmSteerRunner(self.root / "state", self.slurm, "fair", gpus_of=lambda: gpus)

    def again(self) -> Runner:
        self.runner = self._open()
        return self.runner

    def command(self, does: Does, max_retries: int) -> Command:
        id_ = str(len(self.commands) + 1)
        self.slurm.submit_held(id_)
        return Command("", foreign=id_)

    def file(self, id_: str, name: str, number: int = 1) -> Path:
        return self.runner.directory((id_, number)) / name

    def reasons(self, id_: str) -> list[str]:
        j = self.state.position[id_]
        return [event.reason for event in self.told if isinstance(event, Lost | Failed) and j in event.jobs]


def world_with_two_jobs(root: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSteerWorld:
    """Jobs "a" and "b" run on the fast node."""
    monkeypatch.setattr(steer_runner, "BEGINS_S", 0.0)  # by the clock of the machine
    monkeypatch.setattr(steer_runner, "CREDENTIAL_S", 0.0)
    world = FakeSteerWorld(root)
    for id_ in ("a", "b"):
        world.add(id_, Does.TRAIN)
        world.start(id_)
        world.until(Started, id_)
    return world
