"""Decisions of a service with 10,000 queued jobs while start estimates are made, and while none are, in short turns.

Estimates are made by a process of their own, which is paused in every other turn, so both ways share the same service,
the same jobs and the same minutes. On a busy machine the wall-clock time of a decision shows what the machine does else;
what estimates can cost a decision is CPU time (caches, memory) and waiting for a CPU, and the kernel counts both for
each process.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.live import CLUSTER, JOBS, POLICY, _pid, get, serving, submit, together, wait_until_taken

PAIRS, TURN_S = 60, 5.0
QUANTILES = (50, 90, 99)
ROUND_S = 0.2  # the cluster is full, so that rounds lead to decisions and arrivals do not
ARRIVAL_S = 0.2
LOOK_S = 0.02
BUDGET = 1.0  # of a CPU: an estimate follows another at once, so that one is being made in every turn
DRAWS = 2000  # of pairs with replacement, for the range of a ratio
BOUND = 1.1


@dataclass(frozen=True, slots=True)
class MeasuredDecision:
    """Milliseconds: news to commit on the wall clock, CPU time, and time for which a process was ready and had no CPU."""

    wall: float
    cpu: float
    queued: float


def run() -> None:
    """Ratios have the range of 95 % over pairs of turns; a target is met or missed only if the whole range says so."""
    print(f"{JOBS:,} jobs on {CLUSTER}, policy {POLICY}; load average {os.getloadavg()[0]:.1f}")
    turns: dict[bool, list[list[MeasuredDecision]]] = {True: [], False: []}
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder) / "state"
        with serving(state, estimates=BUDGET, round_s=ROUND_S) as port:
            together(port)
            wait_until_taken(port)
            for pair in range(PAIRS):
                for estimates in (True, False) if pair % 2 else (False, True):
                    turns[estimates].append(_turn(port, state, estimates))
    for name in ("wall", "cpu", "queued"):
        for estimates in (False, True):
            values = [getattr(one, name) for turn in turns[estimates] for one in turn]
            shown = ", ".join(f"p{q} {np.quantile(values, q / 100):.1f} ms" for q in QUANTILES)
            print(f"{name}, estimates {'on' if estimates else 'off'}: {shown} of {len(values)} decisions")
        for q in QUANTILES:
            ratio, low, high = _ratio(turns, name, q)
            verdict = "met" if high <= BOUND else "MISSED" if low > BOUND else "not shown"
            print(f"  p{q} on / off: {ratio:.2f} ({low:.2f} to {high:.2f}; target {BOUND}: {verdict})")


def _turn(port: int, state: Path, estimates: bool) -> list[MeasuredDecision]:
    """The decisions that looks at the service show, while jobs arrive."""
    estimating = _estimating(state)
    if not estimates:
        os.kill(estimating, signal.SIGSTOP)
    deciding = _with_children(_pid(state, "scheduler"))
    found: list[MeasuredDecision] = []
    before, submitted_s, last_age_s = _spent_ms(deciding), 0.0, 0.0
    end_s = time.perf_counter() + TURN_S
    while (now_s := time.perf_counter()) < end_s:
        if now_s > submitted_s + ARRIVAL_S:
            submitted_s = now_s
            submit(port, 0, 1, 1)
        scheduler = get(port, "/v1/status")["scheduler"]
        age_s = scheduler["decision_age_s"]
        if age_s is not None and scheduler["decision_s"] is not None:
            if age_s < last_age_s:
                after = _spent_ms(deciding)
                found.append(MeasuredDecision(scheduler["decision_s"] * 1e3, *(after - before)))
                before = after
            last_age_s = age_s
        time.sleep(LOOK_S)
    if not estimates:
        os.kill(estimating, signal.SIGCONT)
    return found[1:]  # the first one began in the turn before


def _ratio(turns: dict[bool, list[list[MeasuredDecision]]], name: str, percent: int) -> tuple[float, float, float]:
    """With estimates over without, and its range over pairs of turns."""
    on, off = ([[getattr(one, name) for one in turn] for turn in turns[way]] for way in (True, False))
    random = np.random.default_rng(0)

    def ratio(pairs: np.ndarray) -> float:
        ends = [np.quantile(np.concatenate([way[pair] for pair in pairs]), percent / 100) for way in (on, off)]
        return float(ends[0] / ends[1])

    drawn = [ratio(random.integers(len(on), size=len(on))) for _ in range(DRAWS)]
    low, high = np.quantile(drawn, (0.025, 0.975))
    return ratio(np.arange(len(on))), float(low), float(high)


def _estimating(state: Path) -> int:
    """The process that makes estimates; the next one follows within seconds."""
    while True:
        for pid in _processes():
            words = _text(pid, "cmdline").split("\0")
            if "fairlead.service.process.estimating" in words and str(state) in words:
                return pid
        time.sleep(LOOK_S)


def _with_children(pid: int) -> list[int]:
    """The scheduler and the child in which its policy decides."""
    children = [
        one for one in _processes() if (stat := _text(one, "stat")) and int(stat.rpartition(")")[2].split()[1]) == pid
    ]
    return [pid, *children]


def _spent_ms(pids: list[int]) -> np.ndarray:
    """CPU time, and time without a CPU while ready, of the main threads so far; the kernel counts nanoseconds."""
    spent = [_text(pid, "schedstat").split()[:2] for pid in pids]
    return np.asarray(np.array([[int(part) for part in one] for one in spent if one]).sum(axis=0) / 1e6)


def _processes() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def _text(pid: int, name: str) -> str:
    """A file of a process; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/{name}").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


if __name__ == "__main__":
    run()
