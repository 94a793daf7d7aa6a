"""Claims of tenants: a ledger of what each tenant is owed of every GPU type, and a first claim on what it is owed.

A tenant that *wants more* of a type (a job of it that runs there waits) earns its slice of it and pays for what it holds:

    c_ut  <-  c_ut + e_ut - x_ut          e_ut = w_u / sum(w) A_t   <=   s_ut = w_u / sum(w) m_t          GPU-rounds

m_t are the GPUs that are up, x_ut those that u holds, and w_u the weights of tenants with active jobs. A_t are the
GPUs that gangs can use: all m_t in a round in which every claim on the type is served; otherwise what the claimants
are granted, because no gang that they have waiting fits on the rest.

u *claims* type t while a_ut = c_ut - (h - 1) s_ut > 0, that is if it would otherwise lag by more than `h` rounds of
its slice. Claims are served before everything else, by whole gangs, each until it is granted a_ut or more, or no gang
fits. What a tenant is ahead on a type by more than D_ut = d_t + s_ut, where d_t is the widest gang, is exchanged at
its own speeds against its claims on other types: a tenant that is well served anywhere does not claim.

**Bound.** While the same n tenants want more of type t, after every round

    sum_u max(0, c_ut - h s_ut)  <=  n d_t + m_t          for each type t,

so no tenant is ever owed more than h rounds of its slice, n gangs and one round of the type, however long it waits.

*Proof.* Let b_ut = max(c_ut - h s_ut, -D_ut) and B_t = sum_u b_ut. After a round in which every claim on t is served,
c_ut <= h s_ut for all u: a claimant has paid for a_ut or more, and any other tenant had c_ut <= (h - 1) s_ut before
it earned at most s_ut. So B_t <= 0. In any other round the tenants earn sum_u e_ut <= A_t, and the claimants pay A_t.
A gang is granted to a claim only while less than a_ut is, so a claimant ends at b_ut > -d_t + e_ut - s_ut >= -D_ut,
and its payment lowers B_t in full. What else tenants hold does not raise B_t. An exchange does not either: it lowers
claims, and what it raises was below -D_ut and stays there or reaches it. So B_t does not grow, it is still at most 0,
and sum_u max(0, b_ut) <= sum_u max(0, -b_ut) <= sum_u D_ut <= n d_t + m_t.

A tenant that leaves or stops wanting may take an entry of -D_ut out of the sum, and GPU time that is lost with a node
is owed on top; each adds what it takes to the bound. Jobs that must stay where they are (pins) are counted before
claims are served, and their GPUs are available only as far as they serve a claim of their own tenant.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.numerics.division import NO_TYPE
from fairlead.numerics.gangs import assign

AHEAD = 50.0  # rounds of its slice; a tenant that is ahead by more is not remembered to be
NOTHING = 1e-9  # GPU-rounds
TRIES = 2  # programs of a round, before all claims are served first


@dataclass(frozen=True, slots=True, eq=False)
class TenantClaims:
    """What tenants claim in this round."""

    tenant: IntArray  # j  -> u
    amount: FloatArray  # u,t  a: GPUs; at most 0 where there is no claim
    lag: FloatArray  # u,t  c / s: claims with more are served first

    @classmethod
    def of(cls, credit: FloatArray, slices: FloatArray, horizon: float, tenant: IntArray) -> TenantClaims:
        """The claims that follow from credits c (u,t), slices s (u,t) and a horizon of h rounds."""
        amount = credit - (horizon - 1.0) * slices
        return cls(tenant, amount, credit / np.maximum(slices, NOTHING))

    def less(self, held: FloatArray) -> TenantClaims:
        """The claims that are left if tenants hold this much already (u,t)."""
        return TenantClaims(self.tenant, self.amount - held, self.lag)


def next_credit(
    credit: FloatArray,
    slices: FloatArray,
    available: FloatArray,
    held: FloatArray,
    wants: BoolArray,
    rounds: float,
    worth: FloatArray,
    widest: FloatArray | IntArray,
) -> FloatArray:
    """u,t  The ledger after `rounds` rounds in which tenants held this many GPU-rounds (u,t).

    `available` (t) is A and `widest` (t) is d. A tenant that wants no more of a type (u,t) neither earns nor owes there: what it is owed is
    repaid by what it holds beyond its slice, and what it is ahead is forgotten at the speed of its slice. A tenant
    without active jobs, whose slice is 0, starts from 0 when it comes back.
    """
    share = slices.sum(axis=1, keepdims=True) / max(float(slices.sum()), 1e-300)  # u,1
    beyond = np.maximum(held - slices * rounds, 0.0)
    content = np.where(credit > 0, np.maximum(credit - beyond, 0.0), np.minimum(credit + slices * rounds, 0.0))
    credit = np.where(wants, credit + share * available * rounds - held, content)
    band = widest + slices
    credit = np.maximum(exchanged(credit, worth, band), -AHEAD * slices - band)
    return np.asarray(np.where(slices.sum(axis=1, keepdims=True) > 0, credit, 0.0))


def assign_with_claims(
    cost: FloatArray,
    runs: BoolArray,
    width: IntArray,
    free: IntArray,
    held_type: IntArray,
    claims: TenantClaims,
    idle: float,
) -> ClaimedGrants:
    """The cheapest grants (`numerics/gangs.py`) under which all claims are served, as far as their gangs fit.

    If a program without constraints serves all claims, it is the answer. Otherwise the claims that it does not serve
    are served first and the rest is solved again; after `TRIES` programs, all claims are served first.
    """
    forced = np.zeros(claims.amount.shape, dtype=np.bool_)
    for tries in range(TRIES + 1):
        first = serve(claims, forced, cost, runs, width, free)
        served = first >= 0
        left = free - np.bincount(first[served], width[served], len(free)).astype(np.int64)
        rest = np.flatnonzero(~served & runs.any(axis=1))
        type_of = first.copy()
        type_of[rest], solver = assign(cost[rest], runs[rest], width[rest], left, held_type[rest], idle)
        short = unserved(claims, type_of, runs, width)
        if not (short & ~forced).any():
            break
        forced = forced | short if tries < TRIES - 1 else np.ones_like(forced)
    return ClaimedGrants(type_of, first, np.asarray(short.any(axis=0)), solver)


@dataclass(frozen=True, slots=True, eq=False)
class ClaimedGrants:
    """The grants of a round."""

    type_of: IntArray  # j  -1: none
    first: IntArray  # j  the type on which the job serves a claim that was served first, or -1
    short: BoolArray  # t  whether a claim on the type is not served
    solver: str  # the name of the method

    def available(self, claims: TenantClaims, pinned: FloatArray, width: IntArray, capacity: IntArray) -> FloatArray:
        """t  A. `claims` are those before what pinned jobs hold (u,t) was counted."""
        pins = np.minimum(pinned, np.maximum(claims.amount, 0.0)).sum(axis=0)
        served = granted(claims, self.first, width).sum(axis=0) + pins
        return np.asarray(np.where(self.short, served, capacity))


def exchanged(credit: FloatArray, worth: FloatArray, band: FloatArray) -> FloatArray:
    """u,t  Credits after what a tenant is ahead on some types, beyond the band D, has paid for its claims on others.

    `worth` (u,t) is the speed of a GPU to the tenant; the value of its credits, sum_t worth c, does not change.
    """
    spare = np.where(worth > 0, np.maximum(-credit - band, 0.0), 0.0)  # u,t
    behind = np.where(worth > 0, np.maximum(credit, 0.0), 0.0)
    offered, wanted = (worth * spare).sum(axis=1), (worth * behind).sum(axis=1)  # u
    traded = np.minimum(offered, wanted)
    pays = np.divide(traded, offered, out=np.zeros_like(traded), where=offered > 0)
    gets = np.divide(traded, wanted, out=np.zeros_like(traded), where=wanted > 0)
    return np.asarray(credit + spare * pays[:, None] - behind * gets[:, None])


def serve(
    claims: TenantClaims, pairs: BoolArray, cost: FloatArray, runs: BoolArray, width: IntArray, free: IntArray
) -> IntArray:
    """j  The type on which each job serves a claim of its tenant, or -1.

    Only claims in `pairs` (u,t) are served: those that lag most first, and for each the tenant's gangs by least cost
    per GPU, until what is granted reaches the claim.
    """
    type_of, left = np.full(len(width), NO_TYPE), free.tolist()
    users, types = np.nonzero(pairs & (claims.amount > NOTHING))
    for k in np.lexsort((types, users, -claims.lag[users, types])).tolist():
        u, t = int(users[k]), int(types[k])
        mine = np.flatnonzero((claims.tenant == u) & runs[:, t] & (type_of < 0) & (width <= left[t]))
        due = float(claims.amount[u, t])
        for j in mine[np.argsort(cost[mine, t] / width[mine], kind="stable")].tolist():
            if due <= NOTHING:
                break
            if width[j] <= left[t]:
                type_of[j], due = t, due - float(width[j])
                left[t] -= int(width[j])
    return type_of


def unserved(claims: TenantClaims, type_of: IntArray, runs: BoolArray, width: IntArray) -> BoolArray:
    """u,t  Claims that the grants do not reach, of tenants with a job that waits and runs on the type."""
    waits = np.zeros(claims.amount.shape, dtype=np.bool_)
    without = type_of < 0
    np.logical_or.at(waits, claims.tenant[without], runs[without])
    return np.asarray((claims.amount > NOTHING) & (claims.amount - granted(claims, type_of, width) > NOTHING) & waits)


def granted(claims: TenantClaims, type_of: IntArray, width: IntArray) -> FloatArray:
    """u,t  GPUs."""
    given = np.zeros(claims.amount.shape)
    has = type_of >= 0
    np.add.at(given, (claims.tenant[has], type_of[has]), width[has])
    return given
