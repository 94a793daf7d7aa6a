"""Decisions of a service with 10,000 queued jobs while start estimates are made, and while none are, in turns."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

from benchmarks.live import CLUSTER, JOBS, POLICY, get, serving, submit, together, wait_until_taken

TURNS, TURN_S = 4, 40.0
ROUND_S = 0.5  # the cluster is full, so that rounds lead to decisions and arrivals do not
ARRIVAL_S = 0.5
LOOK_S = 0.05
PARTS = (0.0, 0.1)  # of a CPU, for estimates


def run() -> None:
    """Wall clock from news to commit. Both ways are measured in turns over the same state."""
    print(f"{JOBS:,} jobs on {CLUSTER}, policy {POLICY}; load average {os.getloadavg()[0]:.1f}")
    times: dict[float, list[float]] = {part: [] for part in PARTS}
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder) / "state"
        with serving(state, estimates=0.0, round_s=ROUND_S) as port:
            together(port)
            wait_until_taken(port)
        for _ in range(TURNS):
            for part in PARTS:
                with serving(state, estimates=part, round_s=ROUND_S) as port:
                    times[part] += _decisions(port)
    for part, taken_s in times.items():
        shown = ", ".join(f"p{q} {_quantile(taken_s, q) * 1e3:.0f} ms" for q in (50, 90, 99))
        print(f"estimates with {part:.0%} of a CPU: {shown} of {len(taken_s)} decisions")
    ratio = _quantile(times[PARTS[1]], 99) / _quantile(times[PARTS[0]], 99)
    print(f"p99 with estimates / without: {ratio:.2f} (target 1.10: {'met' if ratio <= 1.1 else 'MISSED'})")


def _decisions(port: int) -> list[float]:
    """How long each decision took that a look at the service shows, while jobs arrive.

    The first estimates begin ten seconds after the service, and last for the rest of the turn.
    """
    taken_s: list[float] = []
    end_s, submitted_s, last_age_s = time.perf_counter() + TURN_S, 0.0, 0.0
    while time.perf_counter() < end_s:
        if time.perf_counter() > submitted_s + ARRIVAL_S:
            submitted_s = time.perf_counter()
            submit(port, 0, 1, 1)
        scheduler = get(port, "/v1/status")["scheduler"]
        age_s = scheduler["decision_age_s"]
        if age_s is not None and scheduler["decision_s"] is not None:
            if age_s < last_age_s:
                taken_s.append(scheduler["decision_s"])
            last_age_s = age_s
        time.sleep(LOOK_S)
    return sorted(taken_s)


def _quantile(taken_s: list[float], percent: int) -> float:
    ordered = sorted(taken_s)
    return ordered[min(int(percent / 100 * len(ordered)), len(ordered) - 1)]


if __name__ == "__main__":
    run()
