"""How long a GPU is idle when one PyTorch job makes room for another, with cold and with warm starts.

`python -m benchmarks switching` runs two real training processes on one emulated GPU, under the live engine. A switch
begins when the running job is asked to stop, includes its checkpoint, and ends with the first step of the other job
after it has restored its own. Wall clock: it grows with what else the machine does.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import sys
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fairlead.engines.live import LiveEngine
from fairlead.engines.local.devices import slots_as_devices
from fairlead.engines.local.runner import LocalRunner
from fairlead.engines.local.warm.pool import WarmLimits
from fairlead.engines.requests import Command, Request, Submit
from fairlead.model import events as ev
from fairlead.model.arrays import IntArray
from fairlead.model.cluster import parse_short_form
from fairlead.model.decision import Cause, Decision
from fairlead.model.jobs import JobSpec
from fairlead.rates.estimator import TableEstimator
from fairlead.rounds.state import State
from fairlead.service.jobfile import WARM_MODULES
from fairlead.traces.profiles import load_default_profile

SWITCHES = 5  # of each kind
TARGET = 5.0  # times faster
JOBS = ("a", "b")
SCRIPT = """
import json, os, time
import torch
from fairlead import lease

model = torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 512))
optimizer = torch.optim.Adam(model.parameters())
saved, step = lease.restore(), 0
if saved is not None:
    state = torch.load(saved / "state.pt")
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    step = state["step"]
first = step


def save(folder):
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, folder / "state.pt")


while True:
    x = torch.randn(64, 512)
    loss = (model(x) - x).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    step += 1
    if step == first + 1:
        lease_file = os.environ["FAIRLEAD_LEASE"]
        with open(lease_file.replace("lease.json", "first.draft"), "w") as file:
            json.dump({"step": step, "at_s": time.monotonic()}, file)
        os.rename(lease_file.replace("lease.json", "first.draft"), lease_file.replace("lease.json", "first"))
    lease.report(step)
    if lease.should_stop():
        lease.stop(save)
    time.sleep(0.02)
"""


@dataclass(frozen=True, slots=True)
class Switch:
    """Seconds from the request to stop to the release of the GPU, and from there to the first step of the next job."""

    stop_s: float
    start_s: float
    warm: bool

    @property
    def total_s(self) -> float:
        return self.stop_s + self.start_s


class _Inbox:
    def __init__(self) -> None:
        self.requests: deque[Request] = deque()

    def take(self, timeout_s: float) -> list[Request]:
        if not self.requests:
            time.sleep(min(timeout_s, 0.01))
        requests = list(self.requests)
        self.requests.clear()
        return requests


class _Machine:
    """The part of the scheduling loop: it decides which of the two jobs has the GPU."""

    def __init__(self, folder: Path, modules: Sequence[str]) -> None:
        cluster = parse_short_form("v100:1")
        self.state = State(cluster, TableEstimator(load_default_profile(), cluster))
        slots = slots_as_devices(cluster.nodes, cluster.node_gpus.tolist())
        self.runner = LocalRunner(folder / "state", slots, warm=WarmLimits(2))
        (folder / "train.py").write_text(SCRIPT, encoding="utf-8")
        inbox = _Inbox()
        command = Command(
            f"{sys.executable} train.py",
            workdir=str(folder),
            env={"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path[1:])},
            warm=tuple(modules),
        )
        inbox.requests += [Submit(JobSpec(id_, "t", "resnet50", 0.0, 1, 1e9), command) for id_ in JOBS]
        self.engine = LiveEngine(self.state, self.runner, inbox, lambda _: command, time.monotonic)
        self.state.pass_time(time.monotonic())
        self.stopped_s = 0.0
        self.wait()

    def wait(self) -> None:
        for event in self.engine.wait(self.engine.now() + 0.5) or ():
            if isinstance(event, ev.Stopped):
                self.stopped_s = time.monotonic()
            self.state.fold(event)

    def decide(self, stop: Sequence[str], start: Sequence[str]) -> None:
        now_s = max(self.engine.now(), self.state.now_s)
        spots = (((0, 1),),) * len(start)
        decision = Decision(now_s, Cause.ROUND, self._positions(stop), self._positions(start), spots, math.inf, "")
        self.state.fold(decision)
        self.engine.apply(decision)

    def _positions(self, ids: Sequence[str]) -> IntArray:
        return np.array([self.state.position[id_] for id_ in ids], dtype=np.int64)

    def first_step_s(self, id_: str) -> float:
        """Wait for the first step of the job's current lease; its time by the machine's monotonic clock."""
        path = self.runner.directory((id_, int(self.state.leases[self.state.position[id_]]))) / "first"
        while not path.exists():
            self.wait()
        return float(json.loads(path.read_text(encoding="utf-8"))["at_s"])

    def settle(self, standbys: int) -> None:
        """Wait until the next switch is not disturbed by the last."""
        while len([standby for standby in self.runner.warm.standbys if standby.ready]) < standbys:
            self.wait()
        until_s = time.monotonic() + 1.0
        while time.monotonic() < until_s:
            self.wait()

    def switch(self, old: str, new: str) -> Switch:
        before = self.runner.warm.loaded
        asked_s = time.monotonic()
        self.decide([old], [new])
        first_s = self.first_step_s(new)
        return Switch(self.stopped_s - asked_s, first_s - self.stopped_s, self.runner.warm.loaded > before)

    def close(self, id_: str) -> None:
        self.decide([id_], [])
        asked_s = time.monotonic()
        while self.stopped_s < asked_s:
            self.wait()
        self.runner.warm.close()


def measure(modules: Sequence[str], switches: int = SWITCHES) -> list[Switch]:
    """Switches between two jobs that have run before, all warm if there are modules to import ahead."""
    with tempfile.TemporaryDirectory() as folder:
        machine, running = _Machine(Path(folder), modules), JOBS[0]
        machine.decide([], [running])
        machine.first_step_s(running)
        measured = []
        for number in range(switches + 1):
            machine.settle(min(number + 1, 2) if modules else 0)
            other = JOBS[1 - JOBS.index(running)]
            switch = machine.switch(running, other)
            if number:  # before the first one the other job has never run
                measured.append(switch)
            running = other
        machine.close(running)
        return measured


def run() -> None:
    print(f"{SWITCHES} switches of each kind between two PyTorch jobs; load average {os.getloadavg()[0]:.1f}")
    totals = {}
    for name, modules in (("cold", ()), ("warm", WARM_MODULES)):
        switches = measure(modules)
        assert all(switch.warm == bool(modules) for switch in switches), "a switch was not of its kind"
        totals[name] = _show(name, switches)
    ratio = totals["cold"] / totals["warm"]
    print(f"warm is {ratio:.1f}x faster than cold (target {TARGET:g}x: {'met' if ratio >= TARGET else 'MISSED'})")


def _show(name: str, switches: Sequence[Switch]) -> float:
    total_s = [switch.total_s for switch in switches]
    median_s = statistics.median(total_s)
    stop_s, start_s = (
        statistics.median(getattr(switch, part) for switch in switches) for part in ("stop_s", "start_s")
    )
    print(
        f"{name}: {median_s:.2f} s ({min(total_s):.2f}-{max(total_s):.2f}) from the request to stop to the first step; "
        f"of it {stop_s:.2f} s until the GPU is free, {start_s:.2f} s from there",
        flush=True,
    )
    return median_s


if __name__ == "__main__":
    run()
