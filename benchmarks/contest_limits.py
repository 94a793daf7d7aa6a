"""How far any policy could get on the contest's settings, and what lengths that are declared wrongly cost ours.

python -m benchmarks.contest_limits bound      mean JCT above the offline optimum of a relaxation, on the first jobs
python -m benchmarks.contest_limits lengths    `fairlead` where declared lengths are wrong by up to 50 %
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy starts: a pool of threads would spin

from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.contest_settings import SETTINGS
from fairlead.numerics.solve import LinearProgram, Optimal, columns_from_entries, solve
from fairlead.policies import REGISTRY
from fairlead.studies.runs.simulate import Result, Setup, simulate
from fairlead.studies.runs.summary import summarise

POLICIES = ("fairlead", "srtf", "gavel-sjf", "fft-ranked", "hops", "fairlead-blind", "gavel", "themis")
JOBS = 30  # of a setting, in the bound: a program of about 10,000 columns
SLOT_S = 2700.0
ERROR = 0.5


def bound() -> None:
    """A table: mean JCT of each policy over the bound."""
    print(f"| setting | bound, h | {' | '.join(POLICIES)} |")
    for setting in SETTINGS:
        if setting.name not in ("contended, 5 tenants", "light, 20 tenants"):
            continue
        for seed in setting.seeds:
            setup = setting.build(Path(), seed)
            setup = replace(setup, trace=replace(setup.trace, jobs=setup.trace.jobs[:JOBS]), restart_s=0.0)
            runs = [simulate(replace(setup, policy=REGISTRY[name])) for name in POLICIES]
            jct_s = [summarise(run.state, run.finished_jobs()).jct_s["mean"] for run in runs]
            least_s = least_mean_jct_s(runs[0])
            ratios = " | ".join(f"{value / least_s:.2f}" for value in jct_s)
            print(f"| {setting.name}, seed {seed} | {least_s / 3600:.2f} | {ratios} |", flush=True)


def least_mean_jct_s(run: Result) -> float:
    """A lower bound of the mean JCT of any schedule of the run's jobs, which may know all of them beforehand.

        min  sum_jts y_jts max(start of slot s, a_j)   s.t.  sum_ts y_jts = 1                    every job
             sum_t x_jts <= 1 (the part of the slot after a_j),   sum_j d_j x_jts <= m_t         every slot

    x_jts is the part of slot s that job j spends on type t, and y_jts the part of its work that this does. Gangs may be
    divided, moves and rounds cost nothing. A job ends at least half of its shortest run time after the mean time of its
    work, which is not before the sum, so mean JCT >= objective / n + mean (p_j / 2 - a_j).
    """
    state = run.state
    n = state.jobs
    arrival_s, rate, width = state.arrival_s[:n], state.best_rate[:n], state.width[:n]
    shortest_s = state.done[:n] / rate.max(axis=1)  # j  p
    slots = int(np.ceil(float(state.end_s[:n].max()) / SLOT_S)) + 1
    start_s = np.arange(slots) * SLOT_S
    open_part = np.clip((start_s + SLOT_S - arrival_s[:, None]) / SLOT_S, 0.0, 1.0)  # j,s
    j, t, s = np.nonzero((rate > 0)[:, :, None] & (open_part > 0)[:, None, :])
    work = rate[j, t] * SLOT_S / state.done[:n][j]  # of a whole slot
    column = np.arange(len(j))
    rows = np.concatenate((j, n + j * slots + s, n + n * slots + t * slots + s))
    entries = np.concatenate((work, np.ones(len(j)), width[j].astype(np.float64)))
    start, index, value = columns_from_entries(rows, np.tile(column, 3), entries, len(j))
    high = np.concatenate((np.ones(n), open_part.ravel(), np.repeat(state.capacity.astype(np.float64), slots)))
    low = np.concatenate((np.ones(n), np.full(len(high) - n, -np.inf)))
    cost = work * np.maximum(start_s[s], arrival_s[j]) / SLOT_S
    outcome = solve(LinearProgram(cost, np.zeros(len(j)), np.full(len(j), np.inf), low, high, start, index, value))
    assert isinstance(outcome, Optimal), f"found {type(outcome).__name__}, wanted the optimum of the relaxation"
    return float(cost @ outcome.x) * SLOT_S / n + float((shortest_s / 2 - arrival_s).mean())


def lengths() -> None:
    """A table: mean JCT and max FTF with wrong lengths over those with right ones."""
    print("| setting | mean JCT | max FTF | p99 JCT |")
    for setting in SETTINGS:
        if setting.needs or setting.name == "Hops' bed":
            continue
        ratios = np.array([_wrong_over_right(setting.build(Path(), seed)) for seed in setting.seeds])
        print(
            f"| {setting.name} | " + " | ".join(f"{r:.2f}" for r in np.exp(np.log(ratios).mean(axis=0))) + " |",
            flush=True,
        )


def _wrong_over_right(setup: Setup) -> list[float]:
    found = []
    for error in (ERROR, 0.0):
        world = replace(setup.world, length_error=error)
        run = simulate(replace(setup, policy=REGISTRY["fairlead"], world=world))
        summary = summarise(run.state, run.finished_jobs())
        found.append((summary.jct_s["mean"], summary.ftf["max"], summary.jct_s["p99"]))
    return [wrong / right for wrong, right in zip(*found, strict=True)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("bound", "lengths"))
    {"bound": bound, "lengths": lengths}[parser.parse_args().what]()
