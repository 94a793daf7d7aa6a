"""The load that a workload puts on a cluster: one definition, used to generate traces and to describe them.

A job of width g runs at rate r_k on type k (on the fewest nodes that hold it). With c_k GPUs of type k, its mean rate
is r = sum_k c_k r_k / sum_k c_k over the types on which it runs, its mean time T = work / r, and its demand g T
GPU-seconds.

    load = sum_j g_j T_j / (C x span)

where C counts all GPUs of the cluster and `span` is jobs x the mean gap between arrivals. At load 1 the
cluster could just keep up if every job divided its time among its types in proportion to their GPUs (its isolated
share) and nothing was lost to packing. A policy that sends each job where it gains most can keep up with a higher load.
"""

from __future__ import annotations

import numpy as np

from fairlead.model.cluster import Cluster
from fairlead.rates.estimator import TableEstimator


def seconds_per_step(
    rates: TableEstimator, cluster: Cluster, model: str, width: int, types: tuple[str, ...] = ()
) -> float | None:
    """Seconds per step at the mean rate over the types on which the model runs, weighted by their GPUs.

    Only `types` count if there are any. None if the model runs on none of them.
    """
    rate = rates.best(model, width)  # t  samples/s
    runs = rate > 0
    if types:
        runs = runs & np.array(
            [label in types or gpu in types for label, gpu in zip(cluster.types, cluster.gpu, strict=True)]
        )
    if not runs.any():
        return None
    mean = float(np.average(rate[runs], weights=cluster.capacity[runs]))
    return rates.samples_per_step(model, width) / mean


def offered_load(gpu_s: float, cluster: Cluster, jobs: int, first_s: float, last_s: float) -> float | None:
    """The load; None if arrivals span no time (fewer than two jobs, or all at once)."""
    if jobs < 2 or last_s <= first_s:
        return None
    span_s = (last_s - first_s) * jobs / (jobs - 1)
    return gpu_s / (cluster.total_gpus * span_s)
