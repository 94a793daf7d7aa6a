"""The weight of a job among all jobs: between tenants only the tenants' weights count, inside a tenant its jobs' own."""

from __future__ import annotations

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray


def entitled_weights(weight: FloatArray, tenant: IntArray, tenant_weight: FloatArray) -> FloatArray:
    """j  Weights of jobs that mean the same to all tenants.

        w'_j = W_u  n_u  w_j / sum_{i of u} w_i         u the tenant of job j, W_u its weight, n_u its jobs

    The jobs of a tenant keep their proportions, and weigh W_u on average, whatever numbers their owners chose. Where no
    weights were set, all are 1. The jobs of a single tenant keep their weights, because a common factor means nothing.
    """
    jobs = np.bincount(tenant, minlength=len(tenant_weight))  # u
    if np.count_nonzero(jobs) < 2:
        return weight
    whole = np.bincount(tenant, weight, len(tenant_weight))  # u
    factor = tenant_weight * jobs / np.where(whole > 0, whole, 1.0)  # u
    return np.asarray(weight * factor[tenant])
