"""Statistics of a workload: its jobs, widths, durations, tenants and load."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from fairlead.model.cluster import Cluster, NodeGroup, build_cluster
from fairlead.rates.estimator import TableEstimator
from fairlead.rates.profile import Profile
from fairlead.traces.assign import REFERENCE, REFERENCE_NODE_GPUS
from fairlead.traces.formats import Trace
from fairlead.traces.load import offered_load, seconds_per_step

_N = TypeVar("_N", int, float)


@dataclass(frozen=True, slots=True)
class Spread:
    """The distribution of one number over many jobs; all fields are None if there are none."""

    mean: float | None
    p50: float | None
    p90: float | None
    p99: float | None
    max: float | None


@dataclass(frozen=True, slots=True)
class TraceStats:
    """Statistics of one trace.

    Durations and GPU-hours use the mean time T of `traces.load`, on the cluster or, without one, on `reference`.
    `unknown` counts jobs without a length or that run on none of the types; durations and GPU-hours leave them out.
    """

    name: str
    format: str
    jobs: int
    unknown: int
    span_s: float
    arrivals_per_h: float | None
    reference: str
    duration_s: Spread
    duration_percentiles_s: tuple[float, ...]  # 0, 1, ..., 100 %; empty if no duration is known
    gpu_hours: float
    load: float | None  # on the cluster
    widths: Mapping[int, int]  # GPUs -> jobs, ascending
    models: Mapping[str, int]  # -> jobs, most first
    tenants: Mapping[str, int]  # -> jobs, most first
    gpu_hours_by_tenant: Mapping[str, float]  # most first


def trace_stats(
    trace: Trace, profile: Profile, cluster: Cluster | None = None, reference: str = REFERENCE
) -> TraceStats:
    """The statistics of a trace, with its load on `cluster`."""
    hardware = cluster or _nodes_of(reference, max((job.gpus for job in trace.jobs), default=1))
    rates = TableEstimator(profile, hardware)
    known = set(profile.models)
    step_s: dict[tuple[str, int, tuple[str, ...]], float | None] = {}
    durations_s: list[float] = []
    gpu_s: dict[str, float] = {}  # by tenant
    for job in trace.jobs:
        key = (job.model, job.gpus, job.types if cluster else ())
        if key not in step_s:
            step_s[key] = seconds_per_step(rates, hardware, *key) if job.model in known else None
        per_step = step_s[key]
        if per_step is not None and job.steps is not None:
            durations_s.append(job.steps * per_step)
            gpu_s[job.tenant] = gpu_s.get(job.tenant, 0.0) + job.gpus * durations_s[-1]
    first_s, last_s = (trace.jobs[0].arrival_s, trace.jobs[-1].arrival_s) if trace.jobs else (0.0, 0.0)
    total_gpu_s = sum(gpu_s.values())
    return TraceStats(
        name=trace.name,
        format=trace.format,
        jobs=len(trace.jobs),
        unknown=len(trace.jobs) - len(durations_s),
        span_s=last_s - first_s,
        arrivals_per_h=(len(trace.jobs) - 1) * 3600.0 / (last_s - first_s) if last_s > first_s else None,
        reference="the cluster" if cluster else reference,
        duration_s=spread(durations_s),
        duration_percentiles_s=tuple(np.percentile(durations_s, np.arange(101)).tolist()) if durations_s else (),
        gpu_hours=total_gpu_s / 3600.0,
        load=offered_load(total_gpu_s, cluster, len(trace.jobs), first_s, last_s) if cluster else None,
        widths=dict(sorted(Counter(job.gpus for job in trace.jobs).items())),
        models=_most_first(Counter(job.model for job in trace.jobs)),
        tenants=_most_first(Counter(job.tenant for job in trace.jobs)),
        gpu_hours_by_tenant={name: seconds / 3600.0 for name, seconds in _most_first(gpu_s).items()},
    )


def spread(values: list[float]) -> Spread:
    if not values:
        return Spread(None, None, None, None, None)
    p50, p90, p99 = np.percentile(values, [50, 90, 99]).tolist()
    return Spread(float(np.mean(values)), p50, p90, p99, float(max(values)))


def _nodes_of(gpu: str, widest: int) -> Cluster:
    nodes = -(-widest // REFERENCE_NODE_GPUS)
    return build_cluster([NodeGroup(nodes, gpu, REFERENCE_NODE_GPUS, memory_gib=1e5)])  # memory never limits here


def _most_first(counts: Mapping[str, _N]) -> dict[str, _N]:
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
