"""One decision of FFT at scale: CPU seconds of one thread, beside the target.

`python -m benchmarks.fft` prints the table. The paper's program takes 1.53 s for 1000 GPUs, 8 types and 4000 jobs.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from fairlead.numerics.conserving import assign_conserving
from fairlead.policies import ROUND_POLICIES
from fairlead.policies.fft import phi
from fairlead.rounds.look import look
from fairlead.studies.papers.fft.crowd import crowd, random_speeds

SEEDS = 3


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    gpus: int
    types: int
    jobs: int
    cpu_s: float  # the worst of the seeds
    target_s: float | None = None
    how: str = ""

    def __str__(self) -> str:
        target = "-" if self.target_s is None else format(self.target_s, ".1f")
        return f"{self.name:34} {self.gpus:5} {self.types:6} {self.jobs:5} {self.cpu_s:9.4f} {target:>7}  {self.how}"


HEADER = f"{'':34} {'GPUs':>5} {'types':>6} {'jobs':>5} {'cpu_s':>9} {'target':>7}  decided by"


def run() -> list[Row]:
    """Every row, printed as it is measured."""
    print(HEADER)
    rows: list[Row] = []
    assign_conserving(
        np.ones((1, 1)),
        np.ones((1, 1), dtype=np.bool_),
        np.ones(1, dtype=np.int64),
        np.ones(1, dtype=np.int64),
        np.full(1, -1),
    )
    for gpus, types, jobs, target_s in (
        (512, 4, 200, None),
        (512, 4, 500, None),
        (2048, 4, 1000, None),
        (2048, 8, 1000, None),
        (1000, 8, 4000, 0.5),
    ):
        rows.append(_program(gpus, types, jobs, target_s))
        print(rows[-1])
        for policy in ("fft", "fft-ranked"):
            rows.append(_decision(policy, gpus, types, jobs, target_s))
            print(rows[-1])
    return rows


def _program(gpus: int, types: int, jobs: int, target_s: float | None) -> Row:
    """Random costs: lengths over three decades, a third of the jobs behind, restarts of 0.05 to 0.5 rounds."""
    spent, how = [], []
    for seed in range(SEEDS):
        random = np.random.default_rng(seed)
        d = random.choice([1, 2, 4, 8], jobs, p=[0.5, 0.2, 0.2, 0.1])
        theta = random_speeds(random, jobs, types)
        rho = np.where(random.random(jobs) < 0.3, random.exponential(1.0, jobs), 0.0)
        last = random.integers(-1, types, jobs)
        moves = (last >= 0)[:, None] & (last[:, None] != np.arange(types))
        s = np.where(moves, random.uniform(0.05, 0.5, jobs)[:, None], 0.0)
        W = np.exp(random.normal(2.0, 1.5, jobs))
        c = phi(random.uniform(0.0, 50.0, jobs), theta, W, d) + s - rho[:, None] * theta
        runs = random.random((jobs, types)) < 0.95
        started_s = time.process_time()
        how.append(assign_conserving(c, runs, d, np.full(types, gpus // types), last)[1])
        spent.append(time.process_time() - started_s)
    return Row("one round's program", gpus, types, jobs, max(spent), target_s, ", ".join(how))


def _decision(policy: str, gpus: int, types: int, jobs: int, target_s: float | None) -> Row:
    """A whole decision from a state full of jobs: costs, program and memory; the second of two, with a memory."""
    spent, how = [], []
    for seed in range(SEEDS):
        state = crowd(gpus, types, jobs, seed)
        memory = None
        for _ in range(2):
            view = look(state, ROUND_POLICIES[policy], 300.0)
            started_s = time.process_time()
            grants, memory = ROUND_POLICIES[policy].allocate(view, memory)
            cpu_s = time.process_time() - started_s
            state.pass_time(state.now_s + 300.0)
        spent.append(cpu_s)
        how.append(grants.answer.solver)
    return Row(f"  a decision of {policy}", gpus, types, jobs, max(spent), target_s, ", ".join(how))


if __name__ == "__main__":
    run()
