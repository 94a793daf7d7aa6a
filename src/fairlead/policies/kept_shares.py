"""Shares that are kept while the jobs stay the same, for policies whose objective changes every second."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fairlead.model.allocation import Answer, Shares
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.view import View
from fairlead.policies.type_queues import remaining_times


@dataclass(frozen=True, slots=True, eq=False)
class KeptShares:
    """The last shares, and the problem for which they were computed."""

    job: IntArray  # j
    weight: FloatArray  # j
    tenant_weight: FloatArray  # u
    rate: FloatArray  # j,t
    capacity: IntArray  # t
    shares: Shares

    def still_holds(self, view: View) -> bool:
        return (
            view.now_s < self.shares.answer.holds_until_s
            and np.array_equal(view.job, self.job)
            and np.array_equal(view.weight, self.weight)
            and np.array_equal(view.tenant_weight, self.tenant_weight)
            and np.array_equal(view.capacity, self.capacity)
            and np.array_equal(view.rate, self.rate)
        )


def keep(view: View, gpus: FloatArray, every_s: float, solver: str) -> KeptShares:
    """Shares with every job as an owner, valid for `every_s` unless a job arrives, ends or changes its weight."""
    answer = Answer(holds_until_s=view.now_s + every_s, solver=solver)
    shares = Shares(gpus, np.arange(view.jobs), view.job, answer)
    return KeptShares(view.job, view.weight, view.tenant_weight, view.rate, view.capacity, shares)


def to_go_s(view: View) -> FloatArray:
    """j  seconds until the job ends with its gang on its fastest type that is up; at least one, inf if it runs nowhere."""
    up = np.where(view.capacity > 0, remaining_times(view), np.inf)
    return np.asarray(np.maximum(up.min(axis=1, initial=np.inf), 1.0))
