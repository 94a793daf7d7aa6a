"""How much a workload asks of a cluster. One definition, used to make traces and to describe them.

A job of width g takes t_k on type k (on the fewest nodes that hold it). With c_k GPUs of type k, its mean time is
T = sum_k c_k t_k / sum_k c_k over the types on which it runs, and its demand is g T GPU-seconds. Then

    load = sum_j g_j T_j / (C x span)

where C counts all GPUs of the cluster and `span` is jobs x the mean gap between arrivals. So at load 1 the cluster could
just keep up if types were assigned blindly and nothing was lost to packing.
"""

from __future__ import annotations

import numpy as np

from fairlead.model.cluster import Cluster
from fairlead.rates.estimator import TableEstimator


def seconds_per_step(
    rates: TableEstimator, cluster: Cluster, model: str, width: int, types: tuple[str, ...] = ()
) -> float | None:
    """Mean over the types on which the job runs (of `types`, if it names any), weighted by their GPUs; None = nowhere."""
    rate = rates.best(model, width)  # t  samples/s
    runs = rate > 0
    if types:
        runs = runs & np.array(
            [label in types or gpu in types for label, gpu in zip(cluster.types, cluster.gpu, strict=True)]
        )
    if not runs.any():
        return None
    seconds = rates.samples_per_step(model, width) / rate[runs]
    return float(np.average(seconds, weights=cluster.capacity[runs]))


def offered_load(gpu_s: float, cluster: Cluster, jobs: int, first_s: float, last_s: float) -> float | None:
    """None where arrivals span no time: fewer than two jobs, or all at once."""
    if jobs < 2 or last_s <= first_s:
        return None
    span_s = (last_s - first_s) * jobs / (jobs - 1)
    return gpu_s / (cluster.total_gpus * span_s)
