"""Fits what FFT's paper leaves open about its workload to figures of its baselines, without a run of FFT.

The paper reports most figures of its baselines as factors by which FFT is better. The quotient of two such factors is a
figure of two baselines alone: 5.22x better than AlloX and 1.46x better than Gavel say that AlloX takes 3.58 times as long
as Gavel. With the shares of jobs that the paper reports for baselines, these quotients are what a workload can be fitted to
without knowing how well FFT does on it (docs/decisions/0144).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from fairlead.studies.papers.fft.runs import ALLOX, BASELINES, LEAST_LOAD, MAX_MIN, RANDOM, SHORTEST, column, run
from fairlead.studies.papers.fft.testbed import Bed

SEEDS = (200, 201)  # never evaluated
EQUAL_WIDTHS = (4,)  # trace 1: the paper's JCT figures are about it, and it leaves no widths open
LOADS = (0.8, 1.0, 1.2, 1.5)
SHORTEST_S = (60.0, 300.0, 600.0)
MEAN_ACTIVE, ISOLATED_RUN = "", "_isolated"  # endings of the two FTF measures


@dataclass(frozen=True, slots=True)
class BaselineReading:
    """One way to read what the paper says about its baselines and its measure of fairness."""

    gavel: str
    tiresias: str
    ftf: str

    def __str__(self) -> str:
        rule = "isolated run" if self.ftf else "mean active jobs"
        return f"{self.gavel}; {self.tiresias}; FTF by {rule}"


READINGS = tuple(
    BaselineReading(*one) for one in product((SHORTEST, MAX_MIN), (RANDOM, LEAST_LOAD), (MEAN_ACTIVE, ISOLATED_RUN))
)


@dataclass(frozen=True, slots=True)
class BaselineFigure:
    """A number of the paper about baselines alone: of one of them, or of one divided by another."""

    name: str
    paper: float
    metric: str
    of: str  # "gavel", "tiresias" or "allox"
    over: str = ""


FIGURES = (
    BaselineFigure("JCT, AlloX / Gavel", 5.22 / 1.46, "jct_h", "allox", "gavel"),
    BaselineFigure("JCT, Tiresias / Gavel", 3.15 / 1.46, "jct_h", "tiresias", "gavel"),
    BaselineFigure("mean FTF, Tiresias / Gavel", 1.67 / 1.64, "mean_ftf", "tiresias", "gavel"),
    BaselineFigure("max FTF, Tiresias / Gavel", 2.18 / 1.4, "max_ftf", "tiresias", "gavel"),
    BaselineFigure("longest starvation, Tiresias / Gavel", 6.35 / 2.03, "starvation_h", "tiresias", "gavel"),
    BaselineFigure("jobs with FTF at most 1, Gavel", 0.38, "share_at_most_1", "gavel"),
    BaselineFigure("jobs with FTF at most 1, Tiresias", 0.49, "share_at_most_1", "tiresias"),
    BaselineFigure("changes of type to a faster one, Gavel", 0.49, "to_faster", "gavel"),
)


def calibrate(jobs: int, seeds: Sequence[int] = SEEDS) -> list[dict[str, Any]]:
    """For every bed: its load and shortest job, and its figures in every reading."""
    return [_fit(Bed(load, shortest_s), jobs, seeds) for shortest_s in SHORTEST_S for load in LOADS]


def _fit(bed: Bed, jobs: int, seeds: Sequence[int]) -> dict[str, Any]:
    runs = {name: [run(name, EQUAL_WIDTHS, jobs, seed, bed=bed) for seed in seeds] for name in BASELINES}
    means = {name: {metric: float(column(of, metric).mean()) for metric in of[0]} for name, of in runs.items()}
    readings = {str(reading): figures(means, reading) for reading in READINGS}
    return {"load": bed.load, "shortest_s": bed.shortest_s, "readings": readings}


def figures(means: Mapping[str, Mapping[str, float]], reading: BaselineReading) -> dict[str, float]:
    """Our values of `FIGURES`, from the mean of each metric of each baseline."""
    name_of = {"gavel": reading.gavel, "tiresias": reading.tiresias, "allox": ALLOX}

    def value(figure: BaselineFigure, baseline: str) -> float:
        metric = figure.metric + (reading.ftf if "ftf" in figure.metric or "share" in figure.metric else "")
        return means[name_of[baseline]][metric]

    return {one.name: value(one, one.of) / (value(one, one.over) if one.over else 1.0) for one in FIGURES}


def distances(ours: Mapping[str, float]) -> list[float]:
    """|ln(ours / paper)| of every figure: one that is twice the paper's counts as much as one that is half of it."""
    tiny = 1e-3  # a share can be zero in a small run
    return [abs(float(np.log(max(ours[one.name], tiny) / one.paper))) for one in FIGURES]


def best_fit(fits: Sequence[Mapping[str, Any]]) -> tuple[Bed, str]:
    """The bed and the reading with the smallest mean distance; the first of equals."""
    ranked = [
        (float(np.mean(distances(ours))), i, name)
        for i, fit in enumerate(fits)
        for name, ours in fit["readings"].items()
    ]
    _, i, name = min(ranked)
    return Bed(fits[i]["load"], fits[i]["shortest_s"]), name
