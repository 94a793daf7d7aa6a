"""Task-level simulation at scale: CPU seconds of one thread, compilation left out.

`python -m benchmarks.hare` prints the table.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np

from fairlead.model.tasks import Choice, Instance, Rule, weighted_jct_s
from fairlead.policies.hare import ADVANTAGE, weighted_srpt
from fairlead.policies.hlas import hlas
from fairlead.sim.tasks.check import violations
from fairlead.sim.tasks.schedules import run_rule
from fairlead.studies.papers.hare.task_workloads import TaskWorkload, draw

REPEATS = 3


def run() -> None:
    """Every row, printed as it is measured."""
    print(f"{'':46} {'tasks':>9} {'cpu_s':>8} {'tasks/s':>11} {'target':>12} {'mean JCT':>9}")
    large = draw(TaskWorkload("", (16, 16, 16, 16), 2000, 0.9, rounds=(50, 500)), 1)
    paper = draw(TaskWorkload("", (16, 16, 16, 16), 200, 1.0, rounds=(5, 55)), 1)
    in_turn = _in_turn(large)
    _row("constant-time key, fastest idle, 64 GPUs", large, lambda: in_turn, "1e6 tasks/s")
    _row("weighted SRPT, earliest finish, 64 GPUs", paper, lambda: weighted_srpt(paper), "1 s")
    _row("the same with comparative advantage", paper, lambda: weighted_srpt(paper, advantage=ADVANTAGE), "1 s")
    _row("HLAS, earliest finish, 64 GPUs", paper, lambda: hlas(paper.known), "1 s")
    _row("HLAS without promotion", paper, lambda: hlas(paper.known, promote=math.inf), "-")


def _in_turn(instance: Instance) -> Rule:
    nothing = np.zeros(instance.jobs)
    return Rule(nothing, nothing, choice=Choice.FASTEST_IDLE)


def _row(name: str, instance: Instance, make: Callable[[], Rule], target: str) -> None:
    rule = make()
    schedule = run_rule(instance, rule)  # compiles
    if violations(instance, schedule):
        raise AssertionError(f"{name}: not a schedule that can be carried out")
    spent_s = min(_cpu(lambda: run_rule(instance, rule)) for _ in range(REPEATS))
    jct = weighted_jct_s(instance, schedule)
    print(f"{name:46} {len(schedule):9} {spent_s:8.4f} {len(schedule) / spent_s:11.0f} {target:>12} {jct:9.1f}")


def _cpu(work: Callable[[], object]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


if __name__ == "__main__":
    run()
