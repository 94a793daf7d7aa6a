"""Steering of users' jobs on a real Slurm, as a world of the contract. Every job is submitted with `sbatch` by its owner."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest
from engine_world import CLUSTER, FAST, Does, LiveWorld
from local_world import is_child, processes
from slurm_world import NODES, environment_of

from fairlead.engines.leases import Lease
from fairlead.engines.local.files import LocalReader
from fairlead.engines.requests import Command
from fairlead.engines.runner import Runner
from fairlead.engines.slurm.commands import Slurm
from fairlead.engines.slurm.steer_runner import SlurmSteerRunner
from slurm_cluster import STEERED, SlurmCluster, missing
from waiting import PATIENCE_S, wait_for

OWNER = "games"
# It counts, remembers what it has counted, and leaves with 85 when it is asked to.
TRAINING = """#!/bin/bash
count={folder}/$SLURM_JOB_ID
n=$(cat $count 2>/dev/null || echo 0)
trap 'echo $n > $count; exit 85' USR1
echo "from $n" >> $count.log
while [ $n -lt 60 ] || [ ! -e {folder}/over ]; do sleep 0.05 & wait $!; n=$((n + 1)); echo $n > $count; done
"""
SCRIPTS = {
    Does.TRAIN: TRAINING,
    Does.END: "#!/bin/bash\nexit 0\n",
    Does.FAIL: "#!/bin/bash\nexit 3\n",
    Does.DEAF: "#!/bin/bash\ntrap '' USR1 TERM\necho 1 > {folder}/$SLURM_JOB_ID\nwhile :; do sleep 0.2; done\n",
}
UNKNOWN = "999999"


@cache
def shared_cluster() -> SlurmCluster:
    return SlurmCluster(NODES, {"KillWait": "2"}, steering=True)


class SteerWorld(LiveWorld):
    """The live engine over jobs of a user in the steered partition, on the machine's clock."""

    name = "slurm-steer"
    patience_s = PATIENCE_S
    lacks: Mapping[str, str] = {
        "progress": "jobs of users report nothing",
        "processes": "logs and ranks are their owner's business",
        "retry": "Slurm keeps a job that failed, and its owner requeues it",
        "shapes": "the nodes and GPUs of a job cannot be changed once it is submitted",
        "sight": "Slurm itself follows the processes of a job",
    }

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
        self.folder = self.slurm.home(OWNER)
        for old in self.folder.iterdir():
            with suppress(OSError):
                old.unlink()
        self.runner: SlurmSteerRunner = self._open()
        self.reader = LocalReader(self.runner.root)
        self.connect()

    def _open(self) -> SlurmSteerRunner:
        gpus = {node.name: node.gpus for node in NODES}
        return SlurmSteerRunner(self.root / "state", Slurm(), STEERED, gpus_of=lambda: gpus, look_s=0.2)

    def again(self) -> Runner:
        self.runner = self._open()
        return self.runner

    def command(self, does: Does, max_retries: int) -> Command:
        if does is Does.NOTHING_THERE:
            return Command("", foreign=UNKNOWN)
        script = SCRIPTS[does].format(folder=self.folder)
        options = (f"--partition={STEERED}", "--gres=gpu:1", "--output=/dev/null")
        return Command("", grace_s=5.0, foreign=self.slurm.submit(OWNER, script, *options))

    def start(self, id_: str, node: int = FAST, gpus: int = 1) -> None:
        """As soon as Slurm has given back what a job of an earlier test held there."""

        def room() -> bool:
            self.wait(0.1)
            return int(self.state.node_free[node]) >= gpus

        wait_for(room, f"{gpus} free GPUs of {CLUSTER.nodes[node]}")
        super().start(id_, node, gpus)

    def launch_unbegun(self, lease: Lease) -> None:
        """There is no room for it."""
        for node in lease.nodes:
            gpus = self.slurm.nodes[node].gpus
            words = (f"--nodelist={node}", f"--gres=gpu:{gpus}", "--output=/dev/null", "--wrap=sleep 999")
            self.slurm.run("sbatch", "--partition=all", *words)
        wait_for(lambda: "RUNNING" in self.slurm.run("squeue", "-h", "-o", "%T"), "a foreign job to run")
        self.runner.launch(lease)

    def under_way(self, id_: str) -> None:
        count = self.folder / self.commands[id_].foreign

        def seen() -> bool:
            self.wait(0.1)
            return count.exists() and bool(count.read_text().strip())

        wait_for(seen, f"job {id_} to be under way")

    def let_end(self) -> None:
        (self.folder / "over").touch(0o666)

    def lose_node(self, node: int) -> None:
        self.slurm.run("scontrol", "update", f"nodename={CLUSTER.nodes[node]}", "state=down", "reason=test")

    def find_node(self, node: int) -> None:
        self.slurm.run("scontrol", "update", f"nodename={CLUSTER.nodes[node]}", "state=resume")

    def alive(self, id_: str) -> int:
        """Copies of its batch script. Slurm counts a job as running shortly before it has a process."""
        foreign = self.commands[id_].foreign
        wait_for(lambda: self._scripts(foreign) or not self._runs(foreign), f"the script of {foreign} to begin")
        return len(self._scripts(foreign))

    def _scripts(self, foreign: str) -> list[int]:
        wanted = f"SLURM_JOB_ID={foreign}\0".encode()
        spool = f"{self.slurm.root}/spool/"  # other test processes have clusters with the same numbers of jobs
        scripts = [pid for pid, words in processes() if any(spool in w and "slurm_script" in w for w in words)]
        return [pid for pid in scripts if wanted in environment_of(pid) and not is_child(pid, scripts)]

    def _runs(self, foreign: str) -> bool:
        return self.slurm.run("squeue", "-h", "-o", "%T", f"--jobs={foreign}", check=False).strip() == "RUNNING"

    def log(self, id_: str, number: int) -> str:
        path = self.folder / f"{self.commands[id_].foreign}.log"
        return path.read_text() if path.exists() else ""

    def close(self) -> None:
        self.slurm.clear()
