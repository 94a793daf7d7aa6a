"""Steering a large partition: a real Slurm of 64 nodes on this machine, and 2,000 jobs on hold.

It needs root and Debian's Slurm packages, like the tests whose cluster it uses. CPU seconds are those of this process and
of the commands that it runs; those of Slurm's own daemons do not count.
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from benchmarks.measuring import ROOT
from fairlead.engines.grants import without_slots
from fairlead.engines.leases import Lease
from fairlead.engines.requests import Command
from fairlead.engines.slurm.commands import Slurm
from fairlead.engines.slurm.importing import import_cluster
from fairlead.engines.slurm.intake import Intake, Take
from fairlead.engines.slurm.job_requests import site_of
from fairlead.engines.slurm.steer_runner import SlurmSteerRunner
from fairlead.model.decision import Cause, Decision
from fairlead.model.events import Arrived
from fairlead.policies import find_round_policy
from fairlead.rates.estimator import TableEstimator
from fairlead.rates.unmeasured import WithUnmeasured
from fairlead.rounds.decide import Memory
from fairlead.rounds.loop import HereDecider, Settings
from fairlead.rounds.state import State
from fairlead.traces.profiles import load_default_profile

NODES, ARRAYS, TASKS, RELEASED, POLICY = 64, 2, 1000, 100, "oef-coop"
_T = TypeVar("_T")


def run() -> None:
    sys.path.insert(0, str(ROOT / "tests"))
    from slurm_cluster import STEERED, SlurmCluster, TestNode, missing

    reason = missing()
    if reason is not None:
        print(f"left out: {reason}")
        return
    types = ("v100", "p100", "k80", "t4")
    cluster = SlurmCluster([TestNode(f"n{n:02d}", types[n % 4], 4) for n in range(NODES)], steering=True)
    try:
        os.environ["SLURM_CONF"] = cluster.environment["SLURM_CONF"]
        for user in ("games", "news")[:ARRAYS]:
            cluster.submit(user, "sleep 600", f"--partition={STEERED}", "--gres=gpu:1", f"--array=1-{TASKS}")
        _measure(STEERED)
    finally:
        cluster.stop()


def _measure(partition: str) -> None:
    slurm = Slurm()
    queue, nodes = _spend(
        "a look at the queue and the nodes", lambda: (slurm.queue(partition=partition), slurm.nodes())
    )
    site = site_of(nodes.values())
    steps = _spend("which jobs to take over", lambda: list(Intake().steps({j.id: j for j in queue}, {}, site)))
    hardware = import_cluster(slurm, {}, partition)
    state = State(hardware, WithUnmeasured(TableEstimator(load_default_profile(), hardware)))
    commands: dict[str, Command] = {}
    for step in steps:
        if isinstance(step, Take):
            state.fold(Arrived(0.0, replace(step.spec, tenant=step.slurm_job.user)))
            commands[step.spec.id] = step.command
    decider = HereDecider(find_round_policy(POLICY), Settings(), Memory())
    decision = _spend(f"a decision of {POLICY}", lambda: decider.decide(state, Cause.ROUND))
    state.fold(decision)
    with tempfile.TemporaryDirectory() as folder:
        gpus = dict(zip(hardware.nodes, hardware.node_gpus.tolist(), strict=True))
        runner = SlurmSteerRunner(Path(folder), slurm, partition, gpus_of=lambda: gpus)
        _spend("a look of the runner", lambda: runner.look([]))
        _spend(f"{RELEASED} releases", lambda: _release(runner, state, decision, commands))


def _release(runner: SlurmSteerRunner, state: State, decision: Decision, commands: Mapping[str, Command]) -> None:
    for j, spot in list(zip(decision.start.tolist(), decision.spots, strict=True))[:RELEASED]:
        id_ = state.specs[j].id
        runner.launch(Lease(id_, 1, without_slots(state, spot), commands[id_]))


def _spend(name: str, make: Callable[[], _T]) -> _T:
    began_s, cpu_s = time.monotonic(), _cpu_s()
    result = make()
    print(f"{name:36}{_cpu_s() - cpu_s:8.2f} CPU s{time.monotonic() - began_s:8.2f} s")
    return result


def _cpu_s() -> float:
    """Of this process and of the commands that it has run."""
    uses = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(use.ru_utime + use.ru_stime for use in uses)


if __name__ == "__main__":
    run()
