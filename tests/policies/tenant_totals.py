"""GPUs of tenants in an answer of a policy."""

from __future__ import annotations

import numpy as np

from fairlead.model.allocation import Allocation, Grants, Shares
from fairlead.model.arrays import FloatArray
from fairlead.model.view import View


def by_tenant(view: View, answer: Allocation) -> FloatArray:
    """u  GPUs."""
    if isinstance(answer, Shares):
        owner = np.zeros(len(answer.gpus), dtype=np.int64)  # o  -> u
        owner[answer.owner_of] = view.tenant
        gpus: FloatArray = answer.gpus.sum(axis=1)
    elif isinstance(answer, Grants):
        owner, gpus = view.tenant[answer.jobs], answer.gpus.astype(np.float64)
    else:
        owner, gpus = view.tenant, np.array([float(sum(count for _, count in spot)) for spot in answer.spots])
    total = np.zeros(len(view.tenant_weight))
    np.add.at(total, owner, gpus)
    return total
