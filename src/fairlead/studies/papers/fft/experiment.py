"""FFT's main results, reproduced: completion times and fairness on its test bed, with its baselines (ICS 2025)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from fairlead.policies import ROUND_POLICIES
from fairlead.rounds.look import look
from fairlead.studies.papers.fft.calibration import SEEDS, calibrate
from fairlead.studies.papers.fft.crowd import crowd
from fairlead.studies.papers.fft.runs import (
    BASELINES,
    CONTENDERS,
    FFT,
    LEAST_LOAD,
    MAX_MIN,
    RANDOM,
    RANKED,
    SHORTEST,
    column,
    run,
    scattered,
)
from fairlead.studies.papers.fft.testbed import FITTED, JOBS, ROUND_S, WIDTHS, Bed
from fairlead.studies.papers.spread import SeedSpread, spread

LENGTH_ERROR = 0.3
DECISION_SEEDS = 3
PROFILING_S = 60.0  # ours: to measure a model on one type
# To see what depends on the load, on jobs that are shorter than a round, and on GPUs that are never free.
CROWDED = Bed(load=1.5, shortest_s=FITTED.shortest_s)
LONGER = Bed(load=FITTED.load, shortest_s=ROUND_S)
EMPTIER = Bed(load=0.3, shortest_s=FITTED.shortest_s)
OTHER_BED_SEEDS = 3
TIMES_BETTER = (
    *("jct_h", "makespan_h", "starvation_h", "migrations"),
    *("mean_ftf", "max_ftf", "mean_ftf_isolated", "max_ftf_isolated"),
)
TRACES = {"trace 1, all 4 GPUs wide": (4,), "trace 2, mixed widths": WIDTHS}
LARGE_RIVALS = (SHORTEST, MAX_MIN, RANDOM, LEAST_LOAD, scattered(RANDOM))
CROWDED_PART = f"trace 1 at a load of {CROWDED.load:g}"
LONGER_PART = f"trace 1 with jobs from {LONGER.shortest_s:g} s"
LARGE_SCATTERED = (scattered(SHORTEST), scattered(MAX_MIN))  # measured as a part of their own
LARGE_CROWDED = (MAX_MIN, RANDOM, scattered(MAX_MIN), scattered(RANDOM))
LARGE_PART = "large simulation"
LARGE_SCATTERED_PART = f"{LARGE_PART}, scattered gavel"
LARGE_CROWDED_PART = f"{LARGE_PART} at a load of {CROWDED.load:g}"
EMPTIER_PARTS = {f"{trace.partition(',')[0]} at a load of {EMPTIER.load:g}": trace for trace in TRACES}
# Two of the traces that the paper simulates, by what it says about them: half of the jobs of trace 6 train GPT or OPT
# models, and the lengths of trace 9 are within a factor of three.
SIMULATED_BEDS = {
    "trace 6, half GPT and OPT": replace(FITTED, language=0.5),
    "trace 9, lengths within 3x": replace(FITTED, within=3.0),
}
SIMULATED_RIVALS = (SHORTEST, MAX_MIN, RANDOM, LEAST_LOAD, scattered(RANDOM))
OTHER_BEDS = {CROWDED_PART: CROWDED, LONGER_PART: LONGER}

FIRST_SEED = 4000  # ours: seeds 100-105 chose the costs of fft-ranked, 200-201 the workload, 3000-3004 were seen before


@dataclass(frozen=True)
class FftScale:
    jobs: int
    seeds: int
    large_jobs: int  # of the simulation on ten times the cluster; 0: none
    large_seeds: int = 1
    calibration_seeds: int = 1
    first_seed: int = FIRST_SEED

    @property
    def every_seed(self) -> range:
        return range(self.first_seed, self.first_seed + self.seeds)

    @property
    def other_bed_seeds(self) -> range:
        return self.every_seed[:OTHER_BED_SEEDS]


QUICK = FftScale(jobs=60, seeds=2, large_jobs=0)
FULL = FftScale(jobs=JOBS, seeds=5, large_jobs=4000, large_seeds=2, calibration_seeds=len(SEEDS))


def reproduce(scale: FftScale) -> Iterator[tuple[str, Callable[[], Any]]]:
    """(name of the part, function that measures it), in order."""
    for name, widths in TRACES.items():
        yield name, partial(compare, CONTENDERS, widths, scale.jobs, scale.every_seed)
    for name, bed in OTHER_BEDS.items():
        yield name, partial(compare, [FFT, RANKED, *BASELINES], (4,), scale.jobs, scale.other_bed_seeds, bed=bed)
    yield "calibration", partial(calibrate, scale.jobs, SEEDS[: scale.calibration_seeds])
    yield "wrong lengths", partial(wrong_lengths, scale)
    yield "profiling", partial(profiling, scale)
    yield "one decision", one_decision
    if scale.large_jobs:
        seeds, both = scale.every_seed[: scale.large_seeds], (FFT, RANKED)
        for name, trace in EMPTIER_PARTS.items():
            names = (*both, SHORTEST)
            yield name, partial(compare, names, TRACES[trace], scale.jobs, seeds[:1], bed=EMPTIER)
        large = partial(compare, widths=WIDTHS, jobs=scale.large_jobs, hosts=30)
        yield LARGE_PART, partial(large, [*both, *LARGE_RIVALS], seeds=seeds)
        yield LARGE_SCATTERED_PART, partial(large, [*both, *LARGE_SCATTERED], seeds=seeds)
        yield LARGE_CROWDED_PART, partial(large, [*both, *LARGE_CROWDED], seeds=seeds[:1], bed=CROWDED)
        for name, bed in SIMULATED_BEDS.items():
            yield name, partial(compare, [*both, *SIMULATED_RIVALS], WIDTHS, scale.jobs, seeds[:1], bed=bed)


def compare(
    names: Iterable[str], widths: tuple[int, ...], jobs: int, seeds: range, *, hosts: int = 3, bed: Bed = FITTED
) -> dict[str, Any]:
    """Every number of every contender over seeds, and the factors by which `fft` and `fft-ranked` are better."""
    runs = {name: [run(name, widths, jobs, seed, hosts=hosts, bed=bed) for seed in seeds] for name in names}
    numbers: dict[str, Any] = {}
    least = {**dict.fromkeys(TIMES_BETTER, 0.0), "migrations": 1.0 / jobs}  # a run may have no migration at all
    for name, results in runs.items():
        row: dict[str, Any] = {metric: spread(column(results, metric)) for metric in results[0]}
        row["times_better"] = {
            ours: {
                metric: spread(column(results, metric) / np.maximum(column(runs[ours], metric), least[metric]))
                for metric in TIMES_BETTER
            }
            for ours in (FFT, RANKED)
        }
        numbers[name] = row
    return numbers


def wrong_lengths(scale: FftScale) -> dict[str, Any]:
    """How much longer jobs take when lengths are declared wrong by up to 30 % either way."""
    return {trace: _change(widths, scale, error=LENGTH_ERROR) for trace, widths in TRACES.items()}


def profiling(scale: FftScale) -> dict[str, Any]:
    """The cost of measuring every model once at every width, for a minute on each type."""
    return {trace: _change(widths, scale, profiling_s=PROFILING_S) for trace, widths in TRACES.items()}


def _change(widths: tuple[int, ...], scale: FftScale, **options: float) -> dict[str, SeedSpread]:
    """What options of FFT's run change, and the share of time that was spent on measuring models."""
    plain = [run(FFT, widths, scale.jobs, seed) for seed in scale.every_seed]
    other = [run(FFT, widths, scale.jobs, seed, **options) for seed in scale.every_seed]
    changes = {
        f"{metric}_change": spread(column(other, metric) / column(plain, metric) - 1.0)
        for metric in ("jct_h", "max_ftf")
    }
    return {**changes, "profiling_share": spread(column(other, "profiling_share"))}


def one_decision() -> dict[str, SeedSpread]:
    """CPU seconds of a decision for 8 types, 960 GPUs and 4000 jobs: the second of two, with a memory."""
    return {name: _decision_s(name) for name in (FFT, RANKED)}


def _decision_s(name: str) -> SeedSpread:
    policy, spent = ROUND_POLICIES[name], []
    for seed in range(DECISION_SEEDS + 1):
        state, memory = crowd(1000, 8, 4000, seed), None
        for _ in range(2):
            view = look(state, policy, ROUND_S)
            started_s = time.process_time()
            _, memory = policy.allocate(view, memory)
            cpu_s = time.process_time() - started_s
            state.pass_time(state.now_s + ROUND_S)
        spent.append(cpu_s)
    return spread(np.array(spent[1:]))  # the first one may include compilation
