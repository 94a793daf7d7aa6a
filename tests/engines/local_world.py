"""The local engine as a world of the contract: real processes."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from engine_world import CLUSTER, STEPS, Does, LiveWorld

from fairlead.engines.leases import Lease
from fairlead.engines.local.devices import slots_as_devices
from fairlead.engines.local.files import LocalReader
from fairlead.engines.local.hierarchies import find
from fairlead.engines.local.runner import LocalRunner
from fairlead.engines.local.shim import LOG
from fairlead.engines.requests import Command
from fairlead.engines.runner import Runner
from waiting import PATIENCE_S, wait_for

TRAINING = """
import json, os, sys, time
from fairlead import lease
steps, pause, over = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
saved = lease.restore()
step = json.loads((saved / "step").read_text()) if saved else 0
print("from", step)
save = lambda folder: (folder / "step").write_text(json.dumps(step))
while step < steps:
    time.sleep(0.05)
    goes_on = step < pause or os.path.exists(over)
    step += goes_on
    lease.report(step)
    if goes_on and step % 10 == 0:
        lease.checkpoint(save)
    if lease.should_stop():
        lease.stop(save)
"""
PAUSE = 40  # a job stays at this step until it may end, so that it runs for as long as a test needs it
SOURCE = Path(__file__).resolve().parents[2] / "src"


class LocalWorld(LiveWorld):
    """The live engine over real processes, on the machine's clock: its limits only end a hang."""

    name = "local"
    patience_s = PATIENCE_S
    lacks: Mapping[str, str] = {
        "queue": "processes begin as soon as they are started",
        "foreign": "all GPUs of the cluster file are Fairlead's",
    }

    def __init__(self, root: Path) -> None:
        began = time.monotonic()
        self._woken = threading.Event()
        super().__init__(lambda: time.monotonic() - began, self._rest)
        self.root = root
        self.runner: LocalRunner = self._open()
        self.reader = LocalReader(self.runner.root)
        (root / "training.py").write_text(TRAINING)
        self.connect()

    def _open(self) -> LocalRunner:
        devices = slots_as_devices(CLUSTER.nodes, CLUSTER.node_gpus.tolist())
        return LocalRunner(self.root / "state", devices, hierarchies=find())  # the warm world has no control groups

    def again(self) -> Runner:
        self.runner = self._open()
        return self.runner

    def launch_unbegun(self, lease: Lease) -> None:
        self.runner._lay_out(self.runner.directory(lease.key), lease)

    def _rest(self, seconds: float) -> None:
        self._woken.wait(seconds)

    def command(self, does: Does, max_retries: int) -> Command:
        return commands(self.root, does, max_retries)

    def under_way(self, id_: str) -> None:
        until_under_way(self, id_, self.log)

    def let_end(self) -> None:
        (self.root / "over").touch()

    def lose_node(self, node: int) -> None:
        (self.runner.root / "down").mkdir(exist_ok=True)
        (self.runner.root / "down" / CLUSTER.nodes[node]).touch()

    def find_node(self, node: int) -> None:
        (self.runner.root / "down" / CLUSTER.nodes[node]).unlink()

    def lose_sight(self, id_: str) -> None:
        for pid in self.shims(id_):
            os.kill(pid, signal.SIGKILL)

    def claims(self, id_: str) -> Iterator[dict[str, Any]]:
        for path in (self.runner.root / "leases" / id_).glob("*/claim"):
            yield json.loads(path.read_text())

    def shims(self, id_: str) -> list[int]:
        return shims(str(self.runner.root / "leases" / id_) + "/")

    def alive(self, id_: str) -> int:
        """Process groups of the job with a process that is not dead."""
        groups = {claim["group"] for claim in self.claims(id_) if "group" in claim}
        return len(groups & {group for state, group in _states() if state not in "ZX"})

    def log(self, id_: str, number: int) -> str:
        path = self.runner.directory((id_, number)) / LOG
        return path.read_text() if path.exists() else ""

    def close(self) -> None:
        for id_ in self.commands:
            for claim in self.claims(id_):
                with suppress(ProcessLookupError, KeyError):
                    os.killpg(claim["group"], signal.SIGKILL)
            wait_for(lambda id_=id_: not self.shims(id_), "the end of a shim whose job has ended")  # type: ignore[misc]


def commands(root: Path, does: Does, max_retries: int) -> Command:
    """What a job of real processes executes; `root` has the program that trains."""
    run = {
        Does.TRAIN: f"exec {sys.executable} {root}/training.py {STEPS:g} {PAUSE} {root}/over",
        Does.END: "true",
        Does.FAIL: "exit 3",
        Does.DEAF: "trap '' TERM USR1; echo deaf; while true; do sleep 0.1; done",
        Does.NOTHING_THERE: "true",
    }[does]
    workdir = root / "missing" if does is Does.NOTHING_THERE else root
    env = {"PYTHONPATH": str(SOURCE), "PYTHONDONTWRITEBYTECODE": "1"}
    grace_s = 1.0 if does is Does.DEAF else PATIENCE_S
    return Command(run, workdir=str(workdir), env=env, grace_s=grace_s, max_retries=max_retries)


def until_under_way(world: LiveWorld, id_: str, log: Callable[[str, int], str]) -> None:
    """Until a job of `commands` has saved some work, or ignores signals."""
    key = (id_, int(world.state.leases[world.state.position[id_]]))

    def seen() -> bool:
        world.wait(0.1)
        report = world.runner.look([key]).sight(key).report
        return bool(report and report.saved_step) or "deaf" in log(*key)

    wait_for(seen, f"job {id_} to be under way")


def shims(folder: str) -> list[int]:
    """The processes that watch over leases in `folder`."""
    named = [pid for pid, words in processes() if any(word.startswith(folder) for word in words)]
    return [pid for pid in named if not is_child(pid, named)]


def is_child(pid: int, parents: list[int]) -> bool:
    """Whether one of these is its parent: a process that was just forked still looks like it."""
    with suppress(OSError, ValueError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]) in parents
    return True  # it is gone


def processes() -> Iterator[tuple[int, list[str]]]:
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with suppress(OSError):
                yield int(entry), Path(f"/proc/{entry}/cmdline").read_bytes().decode(errors="replace").split("\0")


def _states() -> Iterator[tuple[str, int]]:
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with suppress(OSError):
                state, _, group = Path(f"/proc/{entry}/stat").read_text(errors="replace").rpartition(")")[2].split()[:3]
                yield state, int(group)
