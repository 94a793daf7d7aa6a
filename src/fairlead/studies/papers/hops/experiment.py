"""Hops' main results, reproduced: 64 and 512 GPUs against Sia and Gavel, priorities, arrival rates, sensing (SoCC 2024).

Clusters, job classes and requirement sets are the paper's; speeds are relative to the 1080Ti (TitanXP by FP32 peak, 3090
from Lambda's public FP32 benchmarks of similar models). Values that the paper does not state are marked as ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from fairlead.model.cluster import Cluster, NodeGroup, build_cluster
from fairlead.model.jobs import JobSpec
from fairlead.numerics.random import stream
from fairlead.policies import find_policy
from fairlead.rates.profile import ModelFacts, Profile, Speed
from fairlead.rates.three_layer import Sensing
from fairlead.rounds.loop import Settings, When
from fairlead.rounds.state import State
from fairlead.sim.truth import World
from fairlead.studies.runs.simulate import Setup, simulate
from fairlead.studies.runs.summary import summarise, summarise_run
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
# GPU-hours and jobs of a class: 7 S, 9 M, 7 L, 2 XL. Ours: hours log-uniform at the mean speed over the types, XL up to 100.
CLASSES = (((0.0, 1.0), 7), ((1.0, 10.0), 9), ((10.0, 50.0), 7), ((50.0, 100.0), 2))
# GPUs that jobs of the classes may have; the paper has 1 to 16 for all together.
WIDTHS = {
    "narrow": ((1, 4), (2, 8), (4, 16), (8, 16)),
    "wide": ((1, 4), (2, 8), (8, 16), (16, 16)),
}
MOST_WIDTHS = 8
# Ours, because the paper does not state it.
ROUND_S = 540.0
RESTART_S = 30.0
SERVER_FACTOR = (0.85, 1.05)  # every server; the paper has three models of servers for its 3090s


@dataclass(frozen=True)
class HopsJobs:
    """What the paper leaves open about its jobs: a key of `WIDTHS`, a factor for all lengths, and the shortest S job."""

    widths: str
    stretch: float
    shortest_h: float  # GPU-hours


# Those of `CANDIDATES` that are closest to the paper's numbers of Gavel on seeds 100 to 104, never to those of Hops.
JOBS = {"64 GPUs": HopsJobs("wide", 1.75, 0.25), "512 GPUs": HopsJobs("wide", 1.0, 0.02)}

PAPER: dict[str, dict[str, dict[str, float]]] = {
    "64 GPUs": {
        "hops": {"makespan_h": 9.51, "jct_h": 3.2, "wait_h": 0.95, "max_lr": 0.37, "idle": 0.15},
        "sia": {"makespan_h": 11.68, "jct_h": 4.41, "wait_h": 1.47, "max_lr": 1.03, "idle": 5.89},
        "gavel": {"makespan_h": 14.46, "jct_h": 5.92, "wait_h": 2.11, "max_lr": 1.31, "idle": 3.36},
    },
    "512 GPUs": {
        "hops": {"makespan_h": 10.48, "jct_h": 2.24, "wait_h": 0.87, "max_lr": 3.22, "idle": 0.45, "max_ftf": 2.15},
        "sia": {"makespan_h": 12.36, "jct_h": 3.79, "wait_h": 1.68, "max_lr": 78.5, "idle": 56, "max_ftf": 28.27},
        "gavel": {"makespan_h": 15.42, "jct_h": 4.04, "wait_h": 2.24, "max_lr": 70.43, "idle": 18, "max_ftf": 32.01},
    },
}
Part = dict[str, dict[str, list[float]]]  # variant -> number -> by seed
NUMBERS = ("makespan_h", "jct_h", "wait_h", "max_lr", "idle", "max_ftf", "decision_s")
PRIORITIES = ("latency-ratio", "ftf", "las", "sjf", "srtf")


@dataclass(frozen=True)
class HopsScale:
    """The policy was tuned on seeds 0 to 2, earlier pages used seeds 10 to 14, and forms of baselines were compared on 100."""

    small_seeds: int  # of the 64-GPU setting
    large_seeds: int  # of the 512-GPU setting
    large_jobs: int
    priorities: tuple[str, ...]
    arrivals_per_h: tuple[float, ...]
    first_seed: int = 100
    forms: tuple[str, ...] = (
        "packed",
        "scattered",
        "one node",
        "refilled",
        "slow network",
    )  # of the baselines, see `FORMS`

    @property
    def small(self) -> range:
        return range(self.first_seed, self.first_seed + self.small_seeds)

    @property
    def large(self) -> range:
        return range(self.first_seed, self.first_seed + self.large_seeds)


QUICK = HopsScale(
    small_seeds=1, large_seeds=1, large_jobs=60, priorities=(), arrivals_per_h=(), forms=("packed", "scattered")
)
FULL = HopsScale(5, 2, 500, PRIORITIES, (30.0, 1200.0), first_seed=2000)  # 100 jobs/h is the setting itself


@dataclass(frozen=True)
class Variant:
    policy: str
    sensing: Sensing = Sensing.TABLE
    parameters: tuple[tuple[str, Any], ...] = ()
    when: When = When.EVENTS
    placer: str = "pack"
    network: float = 1.0  # of the rate that a gang on several nodes keeps, the part that remains


HOPS, OURS = "hops", "hops-late"  # the paper's system, and what goes beyond it
SYSTEMS = {HOPS: Variant(HOPS, Sensing.SERVERS), OURS: Variant(OURS, Sensing.THREE_LAYER)}
RIVALS = ("sia", "gavel")
SLOW = 0.5  # twice the loss and more: a gang on several nodes keeps 30 to 48 % of its rate
# The forms of a baseline between which the paper leaves the choice open. It introduces several plans per round as a part
# of Hops, so its baselines decide once per round. Two more forms test explanations: "refilled" has the same decisions
# inside a round as Hops, and "slow network" is a scattered baseline in a world in which nodes matter more.
FORMS: dict[str, dict[str, Any]] = {
    "packed": {"when": When.ROUNDS},
    "scattered": {"when": When.ROUNDS, "placer": "scatter"},
    "one node": {"when": When.ROUNDS, "placer": "strict"},
    "refilled": {},
    "slow network": {"when": When.ROUNDS, "placer": "scatter", "network": SLOW},
}
SLOW_HOPS = "hops, slow network"
BASELINES = {f"{name}, {form}": Variant(name, **how) for name in RIVALS for form, how in FORMS.items()}
# Sia gives a gang that is wider than a node nodes of its own (SOSP 2023). Measured as a part of its own.
WHOLE_NODES = "whole nodes"
ON_WHOLE_NODES = {f"{name}, {WHOLE_NODES}": Variant(name, when=When.ROUNDS, placer="whole") for name in RIVALS}
# In a world in which every job may also run on a single GPU, so that fragments can be used; on fewer seeds.
ONE_GPU = "one GPU allowed"
WITH_ONE_GPU = {
    f"{HOPS}, {ONE_GPU}": SYSTEMS[HOPS],
    f"sia, {ONE_GPU}": ON_WHOLE_NODES[f"sia, {WHOLE_NODES}"],
}
ONE_GPU_SEEDS = {"64 GPUs": 3, "512 GPUs": 1}
COMPARED = {**SYSTEMS, **BASELINES, SLOW_HOPS: replace(SYSTEMS[HOPS], network=SLOW)}
ABLATION = {
    "hops, rounds only": Variant(HOPS, Sensing.SERVERS, when=When.ROUNDS),
    "hops, knows types only": Variant(HOPS, Sensing.TYPES),
    "hops-late, rounds only": Variant(OURS, Sensing.THREE_LAYER, when=When.ROUNDS),
    "hops-late, knows types only": Variant(OURS, Sensing.TYPES),
    "hops-late, restarts ignored": Variant(OURS, Sensing.THREE_LAYER, (("restart", False),)),
}
SENSING = {
    "three layers": SYSTEMS[OURS],
    "no server factor": Variant(OURS, Sensing.SERVERS),
    "types only": Variant(OURS, Sensing.TYPES),
}
SENSED_JOBS, SENSED_PER_H = 150, 20.0  # of the part on sensing: half empty, so that there is a choice of servers
SENSED_FACTOR = (0.75, 1.05)
AT_OTHER_RATES = (HOPS, "sia, packed", "gavel, packed")
LARGE_JOBS = 500
# Candidates for the jobs, the seeds on which they were compared, and the runs that are held against the paper's Gavel.
CANDIDATES = {
    "64 GPUs": {
        **{f"narrow, lengths x {f:g}": HopsJobs("narrow", f, 0.25) for f in (1.0, 1.5, 2.0)},
        **{f"wide, lengths x {f:g}": HopsJobs("wide", f, 0.25) for f in (1.0, 1.25, 1.5, 1.75, 2.0)},
        **{f"wide, lengths x 1.75, from {low:g} GPU-h": HopsJobs("wide", 1.75, low) for low in (0.05, 0.01)},
    },
    "512 GPUs": {
        **{f"{w}, lengths x {f:g}": HopsJobs(w, f, 0.25) for w in WIDTHS for f in (0.85, 1.0, 1.15)},
        **{f"wide, lengths x 1, from {low:g} GPU-h": HopsJobs("wide", 1.0, low) for low in (0.05, 0.02, 0.01)},
    },
}
CALIBRATION = {"64 GPUs": range(100, 105), "512 GPUs": range(100, 102)}
FITTED_TO = ("gavel, packed", "gavel, scattered")
Case = tuple[Cluster, Trace, int]


def reproduce(scale: HopsScale) -> Iterator[tuple[str, Callable[[], Part]]]:
    """(name of the part, function that measures it), in order."""
    compared = {name: variant for name, variant in COMPARED.items() if _is_compared(name, scale.forms)}
    few = [_small(seed, JOBS["64 GPUs"]) for seed in scale.small]
    yield "64 GPUs", partial(compare, compared, few)
    many = [_large(seed, JOBS["512 GPUs"], scale.large_jobs) for seed in scale.large]
    yield "512 GPUs", partial(compare, compared, many)
    if scale.priorities:
        yield "64 GPUs, parts of Hops", partial(compare, ABLATION, few)
        by_priority = {name: Variant(HOPS, Sensing.SERVERS, (("priority", name),)) for name in scale.priorities}
        yield "512 GPUs, priorities", partial(compare, by_priority, many)
        sensed = [_large(seed, JOBS["512 GPUs"], SENSED_JOBS, SENSED_PER_H) for seed in scale.large]
        yield "512 GPUs, sensing", partial(compare, SENSING, sensed, SENSED_FACTOR)
        yield f"64 GPUs, {WHOLE_NODES}", partial(compare, ON_WHOLE_NODES, few)
        yield f"512 GPUs, {WHOLE_NODES}", partial(compare, ON_WHOLE_NODES, many)
        for setting, cases in (("64 GPUs", few), ("512 GPUs", many)):
            narrower = [_with_one_gpu(case) for case in cases[: ONE_GPU_SEEDS[setting]]]
            yield f"{setting}, {ONE_GPU}", partial(compare, WITH_ONE_GPU, narrower)
    for rate in scale.arrivals_per_h:
        faster = [_large(seed, JOBS["512 GPUs"], scale.large_jobs, rate) for seed in scale.large]
        yield f"512 GPUs, {rate:g} jobs/h", partial(compare, {name: COMPARED[name] for name in AT_OTHER_RATES}, faster)
    if scale.priorities:
        for setting in JOBS:
            yield f"{setting}, calibration", partial(calibrate, setting)


def _is_compared(name: str, forms: Sequence[str]) -> bool:
    return name in SYSTEMS or name.partition(", ")[2] in forms


def calibrate(setting: str) -> Part:
    """Gavel's numbers for each candidate of the jobs, mean of packed and scattered gangs, by calibration seed."""
    part: Part = {}
    for name, mix in CANDIDATES[setting].items():
        case = partial(_small, mix=mix) if setting == "64 GPUs" else partial(_large, mix=mix, jobs=LARGE_JOBS)
        runs = compare({form: COMPARED[form] for form in FITTED_TO}, [case(seed) for seed in CALIBRATION[setting]])
        part[name] = {key: np.mean([runs[form][key] for form in FITTED_TO], axis=0).tolist() for key in NUMBERS}
    return part


def _small(seed: int, mix: HopsJobs) -> Case:
    return small_cluster(), workload(seed, 25, 10.0, mix), seed


def _large(seed: int, mix: HopsJobs, jobs: int, arrivals_per_h: float = 100.0) -> Case:
    return large_cluster(), workload(seed, jobs, arrivals_per_h, mix), seed


def _with_one_gpu(case: Case) -> Case:
    cluster, trace, seed = case
    jobs = tuple(replace(spec, widths=tuple(sorted({1, *spec.widths}))) for spec in trace.jobs)
    return cluster, replace(trace, jobs=jobs), seed


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
        gpu_hours = float(np.exp(random.uniform(np.log(max(low, mix.shortest_h)), np.log(high)))) * mix.stretch
        count = int(random.integers(1, min(MOST_WIDTHS, most - least + 1) + 1))
        widths = tuple(sorted((random.choice(most - least + 1, count, replace=False) + least).tolist()))
        width = widths[(count - 1) // 2]
        model = str(random.choice(list(MODELS)))
        steps = gpu_hours * 3600.0 / width * (1.0 + TITAN_XP + MODELS[model][0]) / 3
        specs.append(JobSpec(f"job-{i:03d}", "t", model, float(arrival_s[i]), width, steps, widths))
    return Trace(tuple(specs), f"hops-{seed}", "generated")


def run_one(
    cluster: Cluster,
    trace: Trace,
    variant: Variant,
    seed: int,
    server_factor: tuple[float, float] = SERVER_FACTOR,
) -> dict[str, float]:
    """The numbers of one run. As in the paper, idle GPUs are counted once per round, after its plans, while a job waits."""
    idle: list[int] = []

    def count_idle(state: State) -> None:
        if starts_round(state.now_s):
            idle.append(idle_while_waiting(state))

    result = simulate(setup_of(cluster, trace, variant, seed, server_factor), tick=count_idle)
    summary = summarise(result.state)
    assert summary.makespan_s is not None, "no job finished"
    return {
        "makespan_h": summary.makespan_s / 3600,
        "jct_h": summary.jct_s["mean"] / 3600,
        "wait_h": summary.wait_s["mean"] / 3600,
        "max_lr": summary.latency_ratio["max"],
        "idle": float(np.mean(idle)) if idle else 0.0,
        "max_ftf": summary.ftf["max"],
        "decision_s": summarise_run(result.run)["decision_s"]["max"],
    }


def setup_of(
    cluster: Cluster, trace: Trace, variant: Variant, seed: int, server_factor: tuple[float, float] = SERVER_FACTOR
) -> Setup:
    return Setup(
        cluster,
        trace,
        profile(variant.network),
        find_policy(variant.policy).with_parameters(dict(variant.parameters)),
        Settings(ROUND_S, variant.when, placer=variant.placer),
        World(seed=seed, server_factor=server_factor),
        restart_s=RESTART_S,
        sensing=variant.sensing,
    )


def starts_round(now_s: float) -> bool:
    """Whether a decision at this time is that of a round; others are plans inside a round, for GPUs that became idle."""
    rounds = now_s / ROUND_S
    return abs(rounds - round(rounds)) < 1e-9


def idle_while_waiting(state: State) -> int:
    waits = state.active > state.running
    return int(np.where(state.node_up, state.node_free, 0).sum()) if waits else 0


def compare(
    variants: dict[str, Variant],
    instances: Sequence[Case],
    server_factor: tuple[float, float] = SERVER_FACTOR,
) -> Part:
    part: Part = {}
    for name, variant in variants.items():
        runs = [run_one(cluster, trace, variant, seed, server_factor) for cluster, trace, seed in instances]
        part[name] = {number: [run[number] for run in runs] for number in NUMBERS}
    return part
