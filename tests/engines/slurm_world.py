"""A real Slurm as a world of the contract: one for each test process, which every test finds empty."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest
from engine_world import CLUSTER, Does, LiveWorld
from local_world import TRAINING, commands, is_child, processes, until_under_way

from fairlead.engines.leases import Lease
from fairlead.engines.local.files import LocalReader
from fairlead.engines.local.shim import LOG
from fairlead.engines.requests import Command
from fairlead.engines.runner import Runner
from fairlead.engines.slurm.commands import Slurm
from fairlead.engines.slurm.lease_runner import SlurmLeaseRunner
from fairlead.model.handshake import LEASE_VARIABLE
from slurm_cluster import SlurmCluster, TestNode, missing
from waiting import PATIENCE_S, wait_for

NODES = [
    TestNode(name, CLUSTER.types[type_], gpus)
    for name, type_, gpus in zip(CLUSTER.nodes, CLUSTER.node_type.tolist(), CLUSTER.node_gpus.tolist(), strict=True)
]


@cache
def shared_cluster() -> SlurmCluster:
    return SlurmCluster(NODES)


class SlurmLeaseWorld(LiveWorld):
    """The live engine over Slurm jobs, one for each lease, on the machine's clock."""

    name = "slurm-leases"
    patience_s = PATIENCE_S
    lacks: Mapping[str, str] = {}

    def __init__(self, root: Path) -> None:
        reason = missing()
        if reason is not None:
            pytest.skip(reason)
        began = time.monotonic()
        self._woken = threading.Event()
        super().__init__(lambda: time.monotonic() - began, lambda seconds: bool(self._woken.wait(seconds)))  # type: ignore[arg-type]
        self.slurm = shared_cluster()
        os.environ["SLURM_CONF"] = self.slurm.environment["SLURM_CONF"]
        self.root = root
        self.runner: SlurmLeaseRunner = self._open()
        self.reader = LocalReader(self.runner.root)
        (root / "training.py").write_text(TRAINING)
        self.connect()

    def _open(self) -> SlurmLeaseRunner:
        gpus = {node.name: node.gpus for node in NODES}
        return SlurmLeaseRunner(self.root / "state", Slurm(), gpus_of=lambda: gpus, look_s=0.2, report_every_s=0.2)

    def again(self) -> Runner:
        self.runner = self._open()
        return self.runner

    def launch_unbegun(self, lease: Lease) -> None:
        """There is no room for it."""
        for node in lease.nodes:
            gpus = self.slurm.nodes[node].gpus
            self.slurm.run(
                "sbatch", f"--nodelist={node}", f"--gres=gpu:{gpus}", "--output=/dev/null", "--wrap=sleep 999"
            )
        wait_for(lambda: "RUNNING" in self.slurm.run("squeue", "-h", "-o", "%T"), "a foreign job to run")
        self.runner.launch(lease)

    def command(self, does: Does, max_retries: int) -> Command:
        return commands(self.root, does, max_retries)

    def under_way(self, id_: str) -> None:
        until_under_way(self, id_, self.log)

    def let_end(self) -> None:
        (self.root / "over").touch()

    def lose_node(self, node: int) -> None:
        self.slurm.run("scontrol", "update", f"nodename={CLUSTER.nodes[node]}", "state=down", "reason=test")

    def find_node(self, node: int) -> None:
        self.slurm.run("scontrol", "update", f"nodename={CLUSTER.nodes[node]}", "state=resume")

    def lose_sight(self, id_: str) -> None:
        for pid in self._shims(id_):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def alive(self, id_: str) -> int:
        return len(self._shims(id_)) or len(self._programs(id_))

    def log(self, id_: str, number: int) -> str:
        path = self.runner.directory((id_, number)) / LOG
        return path.read_text() if path.exists() else ""

    def close(self) -> None:
        self.slurm.clear()

    def _programs(self, id_: str) -> list[int]:
        """Processes of the job, which must not outlive its batch script."""
        variable = f"{LEASE_VARIABLE}={self.runner.root}/leases/{id_}/".encode()
        return [pid for pid, _ in processes() if variable in environment_of(pid)]

    def _shims(self, id_: str) -> list[int]:
        wanted = str(self.runner.root / "leases" / id_) + "/"
        shims = [pid for pid, words in processes() if "--foreground" in words and words[-2].startswith(wanted)]
        return [pid for pid in shims if not is_child(pid, shims)]


def environment_of(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/environ").read_bytes()
    return b""
