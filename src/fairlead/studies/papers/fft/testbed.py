"""FFT's test bed: its cluster, its models with their speeds, and workloads like its traces (ICS 2025).

12 T4, 12 A10 and 12 V100, four to a host, rounds of five minutes, 800 jobs over two days. Speeds of VGG, ResNet and
DenseNet are from a public table by the paper's first author (batch 512, 1 and 4 GPUs); values that the paper does not
state are marked as ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.cluster import Cluster, NodeGroup, build_cluster
from fairlead.model.jobs import JobSpec
from fairlead.numerics.random import stream
from fairlead.rates.estimator import TableEstimator
from fairlead.rates.profile import ModelFacts, Profile, Speed
from fairlead.traces.formats import Trace
from fairlead.traces.generate import philly_durations
from fairlead.traces.load import seconds_per_step

TYPES = ("t4", "a10", "v100")
MEMORY_GIB = (16.0, 24.0, 32.0)
ROUND_S = 300.0
DAYS_S = 2 * 86400.0
JOBS = 800
WIDTHS = (1, 2, 3, 4, 8)
# Ours, because the paper does not state it.
SPREAD = 0.85  # rate of a gang over several hosts / on one, at 10 Gbit/s
LONGEST_S = 86400.0  # before durations are scaled to the load
STOP_S = 34.0  # of a move, besides its state at 1.25 GB/s


@dataclass(frozen=True, slots=True)
class Bed:
    """What the paper leaves open about its workload, and `calibration` fits to the paper's baselines."""

    load: float  # of the pooled GPUs, as in traces/load.py
    shortest_s: float  # the shortest job, at the mean rate over types
    language: float | None = None  # the share of jobs that train GPT or OPT models; None: as many as of any other model
    within: float | None = None  # the longest job / the shortest one; None: Philly-like


FITTED = Bed(load=1.0, shortest_s=60.0)  # docs/decisions/0144


@dataclass(frozen=True)
class Family:
    """Models with equal speeds. `a10` and `v100`: rate relative to the T4, at one GPU and at four."""

    params: dict[str, float]
    widths: tuple[int, ...]
    a10: tuple[float, float]
    v100: tuple[float, float]
    bytes_per_param: float  # of training state


MODELS = (
    Family({"vgg16": 138e6, "vgg19": 144e6}, (1, 2, 3, 4), (2.32, 2.69), (2.29, 4.38), 12),
    Family({"resnet50": 26e6, "resnet152": 60e6}, (1, 2, 3, 4), (2.82, 2.14), (1.61, 1.58), 12),
    Family({"densenet121": 8e6, "densenet201": 20e6}, (1, 2, 3, 4), (2.03, 2.0), (1.64, 1.25), 12),
    # Ours from here on: BERT's ratios for Bark, GPT-neo's for GPT-2, the same V100 for all.
    Family({"bark": 1e9, "bert-base": 110e6, "bert-large": 340e6}, (1,), (2.3, 2.3), (3.2, 3.2), 16),
    Family({"gpt-neo-1.3b": 1.3e9, "gpt-neo-2.7b": 2.7e9}, (4,), (2.25, 2.25), (3.2, 3.2), 16),
    Family({"gpt2-m": 355e6, "gpt2-l": 774e6}, (4, 8), (2.25, 2.25), (3.2, 3.2), 16),
    Family({"opt-2.7b": 2.7e9, "opt-6.7b": 6.7e9}, (4, 8), (1.6, 1.6), (3.2, 3.2), 16),
)

LANGUAGE_MODELS = ("gpt", "opt")  # how the names of the models in question begin


def paper_cluster(hosts: int = 3) -> Cluster:
    """This many hosts with four GPUs of each type."""
    return build_cluster([NodeGroup(hosts, gpu, 4, memory) for gpu, memory in zip(TYPES, MEMORY_GIB, strict=True)])


def profile_of(widths: Sequence[int]) -> Profile:
    """Speeds in which each width of a model is a separate model, because its memory is 16 bytes x parameters / width."""
    speeds: list[Speed] = []
    facts: dict[str, ModelFacts] = {}
    for family in MODELS:
        for model, params in family.params.items():
            for width in set(family.widths) & set(widths):
                label = f"{model}@{width}"
                four = 1 if width >= 3 else 0  # ours: measured at 1 and at 4
                for gpu, rate in zip(TYPES, (1.0, family.a10[four], family.v100[four]), strict=True):
                    speeds.append(Speed(label, gpu, 1, 1, 1.0, rate, "public table, relative to the T4; see MODELS"))
                facts[label] = ModelFacts(
                    memory_gib=16 * params / width / 2**30,
                    restart_s=STOP_S + family.bytes_per_param * params / 1.25e9,
                    spread=SPREAD,
                )
    return Profile("FFT's test bed", tuple(speeds), facts)


def workload(
    cluster: Cluster, widths: tuple[int, ...], jobs: int, seed: int, bed: Bed = FITTED
) -> tuple[Trace, Profile]:
    """Evenly drawn models, widths that they allow, Poisson arrivals, Philly-like durations scaled to the load.

    The time span of arrivals is in proportion to the paper's for its 800 jobs and 36 GPUs.
    """
    random = stream(seed, "FFT workload")
    profile = profile_of(widths)
    by_model: dict[str, list[str]] = {}
    for label in profile.models:
        by_model.setdefault(label.split("@")[0], []).append(label)
    names = list(by_model)
    labels = [str(random.choice(sorted(by_model[names[k]]))) for k in _models(random, names, jobs, bed.language)]
    width = np.array([int(label.split("@")[1]) for label in labels])  # j
    span_s = DAYS_S * (jobs / JOBS) * (36 / cluster.total_gpus)
    arrival_s = np.sort(random.uniform(0.0, span_s, jobs))
    drawn_s = _durations(random, jobs, bed.within)
    gpu_s = bed.load * cluster.total_gpus * span_s
    duration_s = _scaled(drawn_s, width, gpu_s, bed.shortest_s)  # j  at the mean rate over types
    rates = TableEstimator(profile, cluster)
    specs = []
    for i, label in enumerate(labels):
        step_s = seconds_per_step(rates, cluster, label, int(width[i]))
        assert step_s is not None, f"{label} runs nowhere"
        steps = float(duration_s[i]) / step_s
        specs.append(JobSpec(f"job-{i:05d}", "all", label, float(arrival_s[i]), int(width[i]), steps))
    return Trace(tuple(specs), f"fft-{seed}", "generated"), profile


def _models(random: np.random.Generator, names: Sequence[str], jobs: int, language: float | None) -> IntArray:
    """The place of every job's model in `names`: evenly drawn, or with a given share of GPT and OPT models."""
    if language is None:
        return random.integers(0, len(names), jobs)
    large = np.array([name.startswith(LANGUAGE_MODELS) for name in names])
    share = np.where(large, language / large.sum(), (1.0 - language) / (~large).sum())
    return random.choice(len(names), jobs, p=share)


def _durations(random: np.random.Generator, jobs: int, within: float | None) -> FloatArray:
    """Durations in seconds before they are scaled to the load."""
    if within is None:
        return np.minimum(philly_durations(random, jobs), LONGEST_S)
    return LONGEST_S * np.exp(random.uniform(-np.log(within), 0.0, jobs))


def _scaled(drawn_s: FloatArray, width: np.ndarray, gpu_s: float, shortest_s: float) -> FloatArray:
    """Durations in proportion to those drawn, none below `shortest_s`, that add up to `gpu_s` GPU-seconds."""
    low, high = 0.0, gpu_s / float((width * drawn_s).sum()) * 2.0
    for _ in range(60):
        factor = (low + high) / 2
        if float((width * np.maximum(drawn_s * factor, shortest_s)).sum()) > gpu_s:
            high = factor
        else:
            low = factor
    return np.maximum(drawn_s * low, shortest_s)
