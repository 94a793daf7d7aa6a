"""The clusters and jobs of Hops' paper, and what the paper leaves open about them (SoCC 2024).

Clusters, job classes and requirement sets are the paper's; speeds are relative to the 1080Ti (TitanXP by FP32 peak, 3090
from Lambda's public FP32 benchmarks of similar models). Values that the paper does not state are marked as ours.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fairlead.model.cluster import Cluster, NodeGroup, build_cluster
from fairlead.model.jobs import JobSpec
from fairlead.numerics.random import stream
from fairlead.rates.profile import ModelFacts, Profile, Speed
from fairlead.traces.formats import Trace

TITAN_XP = 1.12
# Speed of a 3090 relative to a 1080Ti, and (ours) the part of the rate per GPU that remains on several nodes.
MODELS: dict[str, tuple[float, float]] = {
    "resnet50": (2.4, 0.95),
    "ssd": (2.0, 0.90),
    "mask-rcnn": (2.1, 0.80),
    "gnmt": (3.6, 0.65),
    "transformer-xl": (4.2, 0.60),
}
# GPU-hours and jobs of a class: 7 S, 9 M, 7 L, 2 XL. Ours: hours at the mean speed over the types, XL up to 100.
CLASSES = (((0.0, 1.0), 7), ((1.0, 10.0), 9), ((10.0, 50.0), 7), ((50.0, 100.0), 2))
# GPUs that jobs of the classes may have; the paper has 1 to 16 for all together.
WIDTHS = {
    "narrow": ((1, 4), (2, 8), (4, 16), (8, 16)),
    "wide": ((1, 4), (2, 8), (8, 16), (16, 16)),
    "any": ((1, 16),) * len(CLASSES),
}
MOST_WIDTHS = 8


@dataclass(frozen=True)
class HopsJobs:
    """What the paper leaves open about its jobs, and about the network between their nodes."""

    widths: str  # a key of `WIDTHS`
    stretch: float  # a factor for all lengths
    shortest_h: float = 0.25  # GPU-hours of the shortest S job, before they are stretched
    even: bool = False  # whether GPU-hours are evenly distributed inside a class; otherwise their logarithms are
    network: float = 1.0  # the part that remains of the rate which `MODELS` has for several nodes

    def __str__(self) -> str:
        hours = ", even hours" if self.even else ""
        shortest = "" if self.shortest_h == 0.25 else f", from {self.shortest_h:g} GPU-h"
        network = "" if self.network == 1.0 else f", network x {self.network:g}"
        return f"{self.widths}{hours}, lengths x {self.stretch:g}{shortest}{network}"


# Those of `CANDIDATES` that are closest to the paper's numbers of Gavel on the seeds of `CALIBRATION`, never to Hops'.
JOBS = {"64 GPUs": HopsJobs("wide", 1.35, even=True), "512 GPUs": HopsJobs("wide", 0.75, 0.02, even=True)}
_COMPARED = {
    "64 GPUs": (
        *(HopsJobs("narrow", factor) for factor in (1.5, 2.0)),
        *(HopsJobs("wide", factor) for factor in (1.25, 1.5, 1.75, 2.0)),
        HopsJobs("wide", 1.75, 0.05),
        *(HopsJobs(widths, 1.25, even=True) for widths in ("any", "narrow")),
        *(HopsJobs("wide", factor, even=True) for factor in (1.0, 1.25, 1.35, 1.5)),
        *(HopsJobs("wide", 1.25, low, even=True) for low in (0.05, 0.5)),
        *(HopsJobs("wide", 1.0, 0.5, even=True, network=network) for network in (0.7, 0.5)),
    ),
    "512 GPUs": (
        *(HopsJobs(widths, 0.85, 0.02) for widths in ("narrow", "wide")),
        HopsJobs("narrow", 1.0, 0.02),
        *(HopsJobs("wide", 1.0, low) for low in (0.25, 0.05, 0.02, 0.01)),
        *(HopsJobs(widths, 0.75, 0.02, even=True) for widths in ("any", "narrow")),
        *(HopsJobs("wide", factor, 0.02, even=True) for factor in (0.65, 0.75, 0.85, 1.0)),
        *(HopsJobs("wide", 0.75, low, even=True) for low in (0.05, 0.01)),
        *(HopsJobs("wide", 0.65, 0.02, even=True, network=network) for network in (0.7, 0.5)),
    ),
}
# The candidates for the jobs by name, and the seeds on which they were compared.
CANDIDATES = {setting: {str(mix): mix for mix in mixes} for setting, mixes in _COMPARED.items()}
_ELASTIC: dict[str, Any] = {"gpus": 8, "widths": tuple(range(2, 17, 2))}
CALIBRATION = {"64 GPUs": range(100, 105), "512 GPUs": range(100, 102)}
Case = tuple[Cluster, Trace, int]  # with its seed


def small_case(seed: int, mix: HopsJobs) -> Case:
    return small_cluster(), workload(seed, 25, 10.0, mix), seed


def large_case(seed: int, mix: HopsJobs, jobs: int, arrivals_per_h: float = 100.0) -> Case:
    return large_cluster(), workload(seed, jobs, arrivals_per_h, mix), seed


def with_one_gpu(case: Case) -> Case:
    """The same with jobs that may also run on a single GPU."""
    cluster, trace, seed = case
    jobs = tuple(replace(spec, widths=tuple(sorted({1, *spec.widths}))) for spec in trace.jobs)
    return cluster, replace(trace, jobs=jobs), seed


def with_elastic_gangs(case: Case) -> Case:
    """The same with jobs of the widest class that may have 2, 4 to 16 GPUs instead of 16; a rigid policy gives them 8."""
    cluster, trace, seed = case
    jobs = (
        replace(spec, **_ELASTIC, steps=2 * (spec.steps or 0)) if spec.widths == (16,) else spec for spec in trace.jobs
    )
    return cluster, replace(trace, jobs=tuple(jobs)), seed


def small_cluster() -> Cluster:
    """64 GPUs on 10 servers."""
    groups = [("1080ti", 2, 8), ("titanxp", 4, 8), ("3090", 2, 4), ("3090", 2, 4)]
    return build_cluster([NodeGroup(count, gpu, gpus) for gpu, count, gpus in groups])


def large_cluster() -> Cluster:
    """512 GPUs on 64 servers."""
    return build_cluster([NodeGroup(count, gpu, 8) for gpu, count in (("1080ti", 16), ("titanxp", 16), ("3090", 32))])


def profile(network: float = 1.0) -> Profile:
    source = "relative to the 1080Ti: FP32 peak of the TitanXP; Lambda's FP32 benchmarks of the 3090"
    rows = [
        Speed(model, gpu, 1, 1, 1.0, rate, source)
        for model, (fast, _) in MODELS.items()
        for gpu, rate in (("1080ti", 1.0), ("titanxp", TITAN_XP), ("3090", fast))
    ]
    return Profile(
        "1080Ti, TitanXP, 3090", tuple(rows), {m: ModelFacts(spread=network * kept) for m, (_, kept) in MODELS.items()}
    )


def workload(seed: int, jobs: int, arrivals_per_h: float, mix: HopsJobs) -> Trace:
    """Poisson arrivals of shuffled classes; up to 8 allowed widths per job, whose median a rigid policy uses."""
    random = stream(seed, "Hops workload")
    kinds = np.resize(np.repeat(np.arange(len(CLASSES)), [count for _, count in CLASSES]), jobs)
    random.shuffle(kinds)
    arrival_s = np.cumsum(random.exponential(3600.0 / arrivals_per_h, jobs))
    specs = []
    for i in range(jobs):
        (low, high), (least, most) = CLASSES[int(kinds[i])][0], WIDTHS[mix.widths][int(kinds[i])]
        gpu_hours = _hours(random, max(low, mix.shortest_h), high, mix.even) * mix.stretch
        count = int(random.integers(1, min(MOST_WIDTHS, most - least + 1) + 1))
        widths = tuple(sorted((random.choice(most - least + 1, count, replace=False) + least).tolist()))
        width = widths[(count - 1) // 2]
        model = str(random.choice(list(MODELS)))
        steps = gpu_hours * 3600.0 / width * (1.0 + TITAN_XP + MODELS[model][0]) / 3
        specs.append(JobSpec(f"job-{i:03d}", "t", model, float(arrival_s[i]), width, steps, widths))
    return Trace(tuple(specs), f"hops-{seed}", "generated")


def _hours(random: np.random.Generator, low: float, high: float, even: bool) -> float:
    if even:
        return float(random.uniform(low, high))
    return float(np.exp(random.uniform(np.log(low), np.log(high))))
