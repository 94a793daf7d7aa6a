"""Why a job can never run on a cluster, in words for its owner."""

from __future__ import annotations

import numpy as np

from fairlead.model.cluster import Cluster
from fairlead.model.jobs import JobSpec
from fairlead.rates.estimator import allowed_types


def why_never(spec: JobSpec, cluster: Cluster) -> str:
    types = allowed_types(spec, cluster)
    sizes = zip(cluster.types, cluster.capacity.tolist(), strict=True)
    have = ", ".join(f"{gpus} x {name}" for name, gpus in sizes if gpus) or "no GPUs"
    if not cluster.capacity[types].any():
        return f"the job allows only {', '.join(spec.types) or 'any type'}; the cluster has {have}"
    if spec.gpus > int(np.max(cluster.capacity[types])):
        return f"the job needs {spec.gpus} GPUs of one type; the cluster has {have}"
    return f"{spec.model} needs more memory per GPU than any allowed type has, or was measured and does not run there"
