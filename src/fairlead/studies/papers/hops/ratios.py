"""Latency ratio and finish-time fairness as Hops' paper computes them, from the jobs' allowed widths (SoCC 2024)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fairlead.model.arrays import FloatArray
from fairlead.model.cluster import Cluster
from fairlead.model.jobs import JobSpec
from fairlead.rates.profile import Profile


def ages_s(cluster: Cluster, jobs: Sequence[JobSpec], profile: Profile) -> FloatArray:
    """j  age = sum_t (N_t / N) total / (thr_t R_avg), the denominator of the latency ratio.

    thr is the rate of one GPU of type t, R_avg the mean of the allowed widths.
    """
    average = [float(np.mean(spec.widths)) for spec in jobs]
    return np.array([_mean_s(cluster, spec, profile, gpus) for spec, gpus in zip(jobs, average, strict=True)])


def alone_s(cluster: Cluster, jobs: Sequence[JobSpec], profile: Profile, crowd: FloatArray) -> FloatArray:
    """j  T_id, the denominator of finish-time fairness: alone on 1/n of the GPUs, of each type in turn (Sia's rule).

    n (`crowd`) is the mean number of active jobs during the job's life. On g GPUs a job runs at the largest allowed
    width up to g, below its smallest width on a part of it; between whole numbers of GPUs its speed is interpolated.
    """
    gpus = cluster.total_gpus / np.maximum(crowd, 1.0)
    effective = [_usable(spec.widths, float(g)) for spec, g in zip(jobs, gpus, strict=True)]
    return np.array([_mean_s(cluster, spec, profile, g) for spec, g in zip(jobs, effective, strict=True)])


def _mean_s(cluster: Cluster, spec: JobSpec, profile: Profile, gpus: float) -> float:
    """Seconds at this many times the speed of one GPU, averaged over the types by their GPUs."""
    samples = (spec.steps or 0.0) * profile.samples_per_step(spec.model, spec.gpus)
    alone = np.array([samples / profile.samples_per_s(spec.model, gpu, 1) for gpu in cluster.types])
    return float((cluster.capacity * alone).sum() / (cluster.capacity.sum() * gpus))


def _usable(widths: Sequence[int], gpus: float) -> float:
    """The number of GPUs whose speed a job has on this many."""
    below = np.floor(gpus)
    low, high = (_whole(widths, count) for count in (below, below + 1))
    return float(low + (high - low) * (gpus - below))


def _whole(widths: Sequence[int], gpus: float) -> float:
    return float(max((width for width in widths if width <= gpus), default=gpus))
