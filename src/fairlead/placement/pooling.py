"""Shares that an owner's jobs cannot use, passed on to other owners of the same tenant."""

from __future__ import annotations

import numpy as np

from fairlead.model.allocation import Shares
from fairlead.model.arrays import FloatArray
from fairlead.model.view import View


def pooled(view: View, shares: Shares) -> FloatArray:
    """o,t  Shares in which what an owner cannot use goes to its tenant's other owners that ask for more.

        surplus_ot = x_ot max(1 - D_o / sum_t x_ot, 0)       D_o: GPUs that all jobs of owner o ask for
        lack_o     = max(D_o - sum_t x_ot, 0)

    The surplus of a tenant by type is divided in proportion to what is lacked by those of its owners that run on the
    type, and nobody gets more than it lacks. What is still left stays where it was, for any job to be refilled with. A
    kind of job that is one single GPU wide would otherwise give most of its tenant's share away.
    """
    x, owners = shares.gpus, len(shares.owner_key)
    asked = np.bincount(shares.owner_of, view.width, owners)  # o
    total = x.sum(axis=1)
    if not (total > asked).any() or not (total < asked).any():
        return x
    tenant = np.zeros(owners, dtype=np.int64)
    tenant[shares.owner_of] = view.tenant
    runs = np.zeros(x.shape, dtype=np.bool_)
    np.logical_or.at(runs, shares.owner_of, view.rate > 0)
    lack = np.maximum(asked - total, 0.0)
    surplus = x * np.maximum(1.0 - asked / np.where(total > 0, total, 1.0), 0.0)[:, None]
    pool, wish = _sums(tenant, surplus), lack[:, None] * runs  # u,t  o,t
    wanted = _sums(tenant, wish)[tenant]  # o,t
    more = np.divide(pool[tenant] * wish, wanted, out=np.zeros_like(x), where=wanted > 0)
    got = more.sum(axis=1)
    more *= np.minimum(1.0, np.divide(lack, got, out=np.ones_like(got), where=got > 0))[:, None]
    taken = _sums(tenant, more)  # u,t
    part = np.divide(taken, pool, out=np.zeros_like(pool), where=pool > 0)
    return np.asarray(x - surplus * part[tenant] + more)


def _sums(tenant: np.ndarray, rows: FloatArray) -> FloatArray:
    """u,t  Sums by tenant."""
    total = np.zeros((int(tenant.max(initial=-1)) + 1, rows.shape[1]))
    np.add.at(total, tenant, rows)
    return total
