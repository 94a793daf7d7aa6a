"""A real Ray as a world of the contract: one cluster for all tests, each of which finds it empty."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from engine_world import CLUSTER, Does, LiveWorld
from local_world import TRAINING, commands, is_child, processes, until_under_way

from fairlead.engines.leases import Lease
from fairlead.engines.local import shim
from fairlead.engines.local.files import LocalReader
from fairlead.engines.ray.actor import NodePart
from fairlead.engines.ray.runner import RayRunner
from fairlead.engines.requests import Command
from fairlead.engines.runner import Runner
from ray_cluster import missing, shared_cluster
from waiting import PATIENCE_S, wait_for


class RayWorld(LiveWorld):
    """The live engine over actors of Ray, on the machine's clock."""

    name = "ray"
    patience_s = PATIENCE_S
    lacks: Mapping[str, str] = {}

    def __init__(self, root: Path) -> None:
        reason = missing()
        if reason is not None:
            pytest.skip(reason)
        began = time.monotonic()
        self._woken = threading.Event()
        super().__init__(lambda: time.monotonic() - began, lambda seconds: bool(self._woken.wait(seconds)))  # type: ignore[arg-type]
        self.ray = shared_cluster()
        self.root = root
        self.runner: RayRunner = self._open()
        self.reader = LocalReader(self.runner.root)
        (root / "training.py").write_text(TRAINING)
        self.connect()

    def _open(self) -> RayRunner:
        gpus = dict(zip(CLUSTER.nodes, CLUSTER.node_gpus.tolist(), strict=True))
        return RayRunner(self.root / "state", self.ray.driver, gpus_of=lambda: gpus, look_s=0.2, report_every_s=0.2)

    def again(self) -> Runner:
        self.runner = self._open()
        self.runner.look([])
        return self.runner

    def launch_unbegun(self, lease: Lease) -> None:
        """There is no room for it."""
        for node in lease.nodes:
            self.ray.hold(node, self.ray.nodes[node].gpus)
        self.runner.launch(lease)

    def command(self, does: Does, max_retries: int) -> Command:
        return commands(self.root, does, max_retries)

    def under_way(self, id_: str) -> None:
        until_under_way(self, id_, self.log)

    def let_end(self) -> None:
        (self.root / "over").touch()

    def lose_node(self, node: int) -> None:
        """The processes of its jobs notice that their actors are gone, and end soon."""
        jobs = [id_ for id_, j in self.state.position.items() if node in (n for n, _ in self.state.spots[j])]
        self.ray.kill_node(CLUSTER.nodes[node])
        wait_for(lambda: not any(self.alive(id_) for id_ in jobs), "the processes of a lost node to end")

    def find_node(self, node: int) -> None:
        self.ray.start_node(CLUSTER.nodes[node])

    def lose_sight(self, id_: str) -> None:
        """Its actor is killed; the job is the only one."""
        for pid, words in processes():
            if words[0].startswith(f"ray::{NodePart.__name__}"):
                os.kill(pid, signal.SIGKILL)

    def alive(self, id_: str) -> int:
        """Processes that watch over the job."""
        folder = str(self.runner.root / "leases" / id_) + "/"
        watching = f"from {shim.__name__} "
        named = [
            pid
            for pid, words in processes()
            if any(watching in word for word in words) and any(word.startswith(folder) for word in words)
        ]
        return len([pid for pid in named if not is_child(pid, named)])

    def log(self, id_: str, number: int) -> str:
        path = self.runner.directory((id_, number)) / shim.LOG
        return path.read_text() if path.exists() else ""

    def close(self) -> None:
        self.ray.clear()
        for id_ in self.commands:
            wait_for(lambda id_=id_: not self.alive(id_), "the end of a job whose actor has ended")  # type: ignore[misc]
