"""Hops' main results, reproduced: 64 and 512 GPUs against Sia and Gavel, priorities, arrival rates, sensing (SoCC 2024)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from fairlead.model.arrays import FloatArray
from fairlead.model.cluster import Cluster
from fairlead.policies import find_policy
from fairlead.policies.policy import AnyPolicy
from fairlead.rates.three_layer import Sensing
from fairlead.rounds.loop import Settings, When
from fairlead.rounds.state import State
from fairlead.sim.truth import World
from fairlead.studies.papers.hops.gavel_by_latency import BY_LATENCY
from fairlead.studies.papers.hops.jobs import (
    CALIBRATION,
    CANDIDATES,
    JOBS,
    Case,
    large_case,
    profile,
    small_case,
    with_elastic_gangs,
    with_one_gpu,
)
from fairlead.studies.papers.hops.ratios import ages_s, alone_s
from fairlead.studies.runs.simulate import Setup, simulate
from fairlead.studies.runs.summary import summarise, summarise_run
from fairlead.traces.formats import Trace

# Ours, because the paper does not state it.
ROUND_S = 540.0
RESTART_S = 30.0
SERVER_FACTOR = (0.85, 1.05)  # every server; the paper has three models of servers for its 3090s

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
NUMBERS = ("makespan_h", "jct_h", "wait_h", "max_lr", "later_lr", "idle", "max_ftf", "decision_s")
PRIORITIES = ("latency-ratio", "ftf", "las", "sjf", "srtf")


@dataclass(frozen=True)
class HopsScale:
    """The policy was tuned on seeds 0 to 2, jobs were fitted on 100 to 104, and earlier pages used 10 to 14 and 2000 to 2004."""

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
FULL = HopsScale(5, 2, 500, PRIORITIES, (30.0, 1200.0), first_seed=3000)  # 100 jobs/h is the setting itself


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
# In a world in which the widest jobs may have 2 to 16 GPUs instead of 16, so that their widths depend on the policy.
ELASTIC = "elastic gangs"
WITH_ELASTIC_GANGS = {
    f"{HOPS}, {ELASTIC}": SYSTEMS[HOPS],
    **{f"{name}, {ELASTIC}": BASELINES[f"{name}, packed"] for name in RIVALS},
}
# In the paper, the queues of both baselines are in order of latency ratios. Our Sia uses them where nodes do not suffice.
BY_LATENCY_RATIO = "by latency ratio"
GAVEL_BY_LATENCY = {f"gavel, {BY_LATENCY_RATIO}": Variant(BY_LATENCY.name, when=When.ROUNDS)}
OTHER_JOBS: dict[str, tuple[Callable[[Case], Case], dict[str, Variant]]] = {
    ONE_GPU: (with_one_gpu, WITH_ONE_GPU),
    ELASTIC: (with_elastic_gangs, WITH_ELASTIC_GANGS),
}
OTHER_JOBS_SEEDS = {"64 GPUs": 3, "512 GPUs": 1}
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
FITTED_TO = ("gavel, packed", "gavel, scattered")


def reproduce(scale: HopsScale) -> Iterator[tuple[str, Callable[[], Part]]]:
    """(name of the part, function that measures it), in order."""
    compared = {name: variant for name, variant in COMPARED.items() if _is_compared(name, scale.forms)}
    few = [small_case(seed, JOBS["64 GPUs"]) for seed in scale.small]
    yield "64 GPUs", partial(compare, compared, few)
    many = [large_case(seed, JOBS["512 GPUs"], scale.large_jobs) for seed in scale.large]
    yield "512 GPUs", partial(compare, compared, many)
    if scale.priorities:
        yield "64 GPUs, parts of Hops", partial(compare, ABLATION, few)
        by_priority = {name: Variant(HOPS, Sensing.SERVERS, (("priority", name),)) for name in scale.priorities}
        yield "512 GPUs, priorities", partial(compare, by_priority, many)
        sensed = [large_case(seed, JOBS["512 GPUs"], SENSED_JOBS, SENSED_PER_H) for seed in scale.large]
        yield "512 GPUs, sensing", partial(compare, SENSING, sensed, SENSED_FACTOR)
        yield f"64 GPUs, {WHOLE_NODES}", partial(compare, ON_WHOLE_NODES, few)
        yield f"512 GPUs, {WHOLE_NODES}", partial(compare, ON_WHOLE_NODES, many)
        for setting, cases in (("64 GPUs", few), ("512 GPUs", many)):
            yield f"{setting}, {BY_LATENCY_RATIO}", partial(compare, GAVEL_BY_LATENCY, cases)
            for name, (changed, variants) in OTHER_JOBS.items():
                other = [changed(case) for case in cases[: OTHER_JOBS_SEEDS[setting]]]
                yield f"{setting}, {name}", partial(compare, variants, other)
    for rate in scale.arrivals_per_h:
        faster = [large_case(seed, JOBS["512 GPUs"], scale.large_jobs, rate) for seed in scale.large]
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
        case = partial(small_case, mix=mix) if setting == "64 GPUs" else partial(large_case, mix=mix, jobs=LARGE_JOBS)
        forms = {form: replace(COMPARED[form], network=mix.network) for form in FITTED_TO}
        runs = compare(forms, [case(seed) for seed in CALIBRATION[setting]])
        part[name] = {key: np.mean([runs[form][key] for form in FITTED_TO], axis=0).tolist() for key in NUMBERS}
    return part


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

    setup = setup_of(cluster, trace, variant, seed, server_factor)
    result = simulate(setup, tick=count_idle)
    summary = summarise(result.state)
    assert summary.makespan_s is not None, "no job finished"
    columns = columns_of(result.state)
    age_s = ages_s(cluster, trace.jobs, setup.profile)
    alone = alone_s(cluster, trace.jobs, setup.profile, columns["crowd"])
    return {
        "makespan_h": summary.makespan_s / 3600,
        "jct_h": summary.jct_s["mean"] / 3600,
        "wait_h": summary.wait_s["mean"] / 3600,
        "max_lr": float((columns["wait_s"] / age_s).max()),
        "later_lr": float((np.maximum(columns["wait_s"] - ROUND_S, 0.0) / age_s).max()),
        "idle": float(np.mean(idle)) if idle else 0.0,
        "max_ftf": float((columns["jct_s"] / alone).max()),
        "decision_s": summarise_run(result.run)["decision_s"]["max"],
    }


def columns_of(state: State) -> dict[str, FloatArray]:
    """j  JCT, waiting time and mean number of active jobs during the job's life, in the order of the trace."""
    jobs = slice(0, state.jobs)
    jct_s = state.end_s[jobs] - state.arrival_s[jobs]
    crowd = (state.crowd_out[jobs] - state.crowd_in[jobs]) / jct_s
    return {"jct_s": jct_s, "wait_s": np.maximum(jct_s - state.run_s[jobs], 0.0), "crowd": crowd}


def setup_of(
    cluster: Cluster, trace: Trace, variant: Variant, seed: int, server_factor: tuple[float, float] = SERVER_FACTOR
) -> Setup:
    return Setup(
        cluster,
        trace,
        profile(variant.network),
        _policy(variant),
        Settings(ROUND_S, variant.when, placer=variant.placer),
        World(seed=seed, server_factor=server_factor),
        restart_s=RESTART_S,
        sensing=variant.sensing,
    )


def _policy(variant: Variant) -> AnyPolicy:
    policy = BY_LATENCY if variant.policy == BY_LATENCY.name else find_policy(variant.policy)
    return policy.with_parameters(dict(variant.parameters))


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
