"""One decision of every optimising policy with 10,000 active jobs: CPU seconds of one thread.

`python -m benchmarks.decisions` prints the table, `python -m benchmarks.decisions hops sia --large` only these policies
and also on 96,000 GPUs. The jobs are those of `trace generate --durations gavel --tenants 1000`, all of them waiting;
the second decision is made one round later, when the jobs that the first one started hold their GPUs.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy starts: a pool of threads would spin

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.measuring import spend
from benchmarks.scale import CLUSTER
from fairlead.model.events import Arrived, Started
from fairlead.policies import find_round_policy
from fairlead.rates.estimator import TableEstimator
from fairlead.rounds.decide import Memory, decide
from fairlead.rounds.look import look
from fairlead.rounds.state import State
from fairlead.traces.clusters import read_cluster
from fairlead.traces.formats import read_trace
from fairlead.traces.profiles import load_default_profile

ROUND_S = 360.0
JOBS = 10_000
LARGE = "h100:9600x8,a100:19200x8,v100:19200x4,p100:19200x4,t4:19200x4,k80:9600x4"  # 96,000 GPUs in the same ratio
WORKLOAD = f"--jobs {JOBS} --load 3 --durations gavel --tenants 1000 --tenant-skew 0 --seed 0"
TARGET_S, LARGE_S = 0.1, 3.0
POLICIES = (
    "gavel-ftf",
    "sia",
    "gavel-sjf",
    "themis",
    "gavel-makespan",
    "fft",
    "fft-ranked",
    "hops",
    "hops-late",
    "fairlead",
    "gandiva-fair",
)


def run(policies: Sequence[str] = POLICIES, *, large: bool = False) -> None:
    print(f"{'':16} {'GPUs':>6} {'first':>8} {'second':>8} {'target':>7}   CPU s of the policy alone; (whole decision)")
    with tempfile.TemporaryDirectory() as folder:
        trace = f"{folder}/trace.csv"
        spend(["trace", "generate", "--cluster", CLUSTER, *WORKLOAD.split(), "--out", trace])
        for policy in policies:
            print(_row(policy, CLUSTER, trace, TARGET_S), flush=True)
            if large and policy in ("hops", "sia"):
                print(_row(policy, LARGE, trace, LARGE_S), flush=True)


def _row(name: str, cluster: str, trace: str, target_s: float) -> str:
    policy, state = find_round_policy(name), queue(cluster, trace)
    memory, spent, whole, solver = Memory(), [], [], []
    for number in range(2):
        view = look(state, policy, ROUND_S)
        start_s = time.process_time()
        allocation, _ = policy.allocate(view, memory.policy)
        spent.append(time.process_time() - start_s)
        solver.append(allocation.answer.solver)
        start_s = time.process_time()
        decision, memory = decide(look(state, policy, ROUND_S), policy, memory)
        whole.append(time.process_time() - start_s)
        if number == 0:
            started = decision.start
            state.fold(decision)
            resume_s = np.full(len(started), state.now_s)
            state.fold(Started(state.now_s, started, np.ones(len(started)), resume_s, measured=False))
            state.pass_time(state.now_s + ROUND_S)
    met = "met" if max(spent) <= target_s else "MISSED"
    return (
        f"{name:16} {int(state.cluster.total_gpus):6} {spent[0]:8.3f} {spent[1]:8.3f} {target_s:7.1f} {met:6} "
        f"({whole[0]:.3f}, {whole[1]:.3f}; {', '.join(solver)})"
    )


def queue(cluster: str, trace: str) -> State:
    """The state in which all jobs of the trace have arrived and none runs."""
    where, profile = read_cluster(cluster), load_default_profile()
    state = State(where, TableEstimator(profile, where))
    jobs = read_trace(Path(trace), profile=profile).jobs
    for job in jobs:
        state.fold(Arrived(job.arrival_s, job))
    state.pass_time(max(job.arrival_s for job in jobs))
    return state


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="benchmarks.decisions")
    parser.add_argument("policies", nargs="*", help="only these; default: all")
    parser.add_argument("--large", action="store_true", help="hops and sia also on 96,000 GPUs")
    chosen = parser.parse_args()
    run(chosen.policies or POLICIES, large=chosen.large)
