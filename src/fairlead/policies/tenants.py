"""From jobs to tenants: policies that divide the cluster among tenants, by any rule of division."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np

from fairlead.model.allocation import Answer, Shares
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.outcomes import Terms
from fairlead.model.view import View
from fairlead.policies.policy import Allocate

SPLITS = ("equal", "demand")
W = TypeVar("W")  # what a division keeps for a warm start of the next one


class Divide(Protocol[W]):
    """A rule of division: speedup (l,t), capacity (t), weight (l), warm start -> shares (l,t), solver, warm start."""

    def __call__(
        self, speedup: FloatArray, capacity: FloatArray, weight: FloatArray, warm: W | None, /
    ) -> tuple[FloatArray, str, W | None]: ...


@dataclass(frozen=True, slots=True, eq=False)
class VirtualUsers:
    """Virtual users, one for each kind of job (tenant, model, width, allowed types), which share their tenant's weight."""

    key: IntArray  # l  permanent, ascending
    of_job: IntArray  # j  -> l
    tenant: IntArray  # l
    speedup: FloatArray  # l,t  rate per GPU
    weight: FloatArray  # l


@dataclass(frozen=True, slots=True, eq=False)
class TenantMemory(Generic[W]):
    """The last division, which is valid until the tenants, their rates or the capacity change."""

    users: VirtualUsers
    capacity: IntArray
    shares: FloatArray  # l,t
    terms: FloatArray  # l,2  GPUs of the share, and its speed by weight
    solver: str
    warm: W | None

    def still_holds(self, users: VirtualUsers, capacity: IntArray) -> bool:
        mine = self.users
        return (
            np.array_equal(mine.key, users.key)
            and np.array_equal(mine.weight, users.weight)
            and np.array_equal(self.capacity, capacity)
            and np.array_equal(mine.speedup, users.speedup)
        )


def by_tenants(divide: Divide[W]) -> Allocate[TenantMemory[W]]:
    """The policy that gives every virtual user its part of the division by `divide`.

    `split` is how a tenant's weight is split between its kinds of jobs: in equal parts, or by the GPUs that its jobs
    request (`demand`).
    """

    def allocate(view: View, memory: TenantMemory[W] | None, *, split: str = "equal") -> tuple[Shares, TenantMemory[W]]:
        users = virtual_users(view, split)
        if memory is None or not memory.still_holds(users, view.capacity):
            warm = None if memory is None else memory.warm
            shares, solver, warm = divide(users.speedup, view.capacity.astype(np.float64), users.weight, warm)
            worth = (users.speedup * shares).sum(axis=1) / users.weight
            terms_of_users = np.column_stack((shares.sum(axis=1), worth))
            memory = TenantMemory(users, view.capacity, shares, terms_of_users, solver, warm)
        terms = Terms(("share", "speed"), memory.terms[users.of_job])
        return Shares(memory.shares, users.of_job, users.key, Answer(solver=memory.solver, terms=terms)), memory

    return allocate


def virtual_users(view: View, split: str = "equal") -> VirtualUsers:
    key, first, of_job = np.unique(view.kind, return_index=True, return_inverse=True)
    tenant = view.tenant[first]
    demand = np.bincount(of_job, view.width, len(key)).astype(np.float64) if split == "demand" else None
    speedup = view.ideal_rate[first] / view.width[first, None]
    return VirtualUsers(key, of_job, tenant, speedup, split_weights(tenant, view.tenant_weight, demand))


def split_weights(tenant: IntArray, weight: FloatArray, work: FloatArray | None = None) -> FloatArray:
    """l  a tenant's weight in equal parts, or in proportion to `work`; if there is no work, also in equal parts."""
    equal = np.ones(len(tenant))
    part = equal if work is None else np.where(np.bincount(tenant, work, len(weight))[tenant] > 0, work, equal)
    return np.asarray(weight[tenant] * part / np.bincount(tenant, part, len(weight))[tenant])
