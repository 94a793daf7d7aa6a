"""OEF: optimal efficiency with fairness in mixed GPU clusters (Mo, Xu, Lau, Middleware 2024).

Tenants l = 1..n with weights w_l share types j = 1..k of m_j GPUs. W_l is tenant l's speedup vector, in units of the
slowest type that it can use; x_lj are its GPUs, W_l.x_l its normalised throughput. The total sum_l W_l.x_l is as large
as the guarantee of the mode allows:

- `non_cooperative`: equal throughput per weight. Exaggerating one's speedups never pays; understating them can, so
  rates must be measured, not declared.
- `cooperative`: no tenant prefers the GPUs of another (per weight), so no tenant does worse than with a private
  w_l / sum(w) slice of every type.

Departs: vectors are normalised by their smallest positive entry, because a type may be too small for a job (speedup 0).
Tenants with equal vectors are one group, and types with equal speedups for all tenants are one type, divided in
proportion: the optimum is the same and the division symmetric. A weight counts as that many virtual users, whole or not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fairlead.model.allocation import Level
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.numerics.envy_free import EnvyFree, Warm, largest_total
from fairlead.numerics.fairness import normalise
from fairlead.numerics.solve import (
    NO_LIMIT,
    Infeasible,
    Limit,
    LinearProgram,
    Optimal,
    SolverFailed,
    TimeLimit,
    columns_from_entries,
    solve,
)
from fairlead.policies.policy import Promise, RoundPolicy
from fairlead.policies.ranges import Word
from fairlead.policies.tenants import SPLITS, by_tenants

SAME_SPEEDUP = 10  # decimals of a normalised speedup that count: scaling a tenant's rates must not change its shares
WORK = Limit(iterations=1_000_000)  # of one solve
PRICED = 1e-9  # a type that adds less than this part to the level has no price


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    shares: FloatArray  # l,j  GPUs
    level: FloatArray  # l  normalised throughput per weight
    price: FloatArray  # j  growth of the total per GPU of this type; NaN where the cluster has none
    status: str  # "optimal", or why the equal split is used instead
    warm: Warm | None = None


def cooperative(
    speedup: FloatArray,
    capacity: FloatArray,
    weight: FloatArray,
    warm: Warm | None = None,
    limit: Limit = NO_LIMIT,
) -> Split:
    """The split with the largest total that leaves no tenant envious.

        max  sum_l W_l.x_l   s.t.  W_l.x_l / w_l >= W_l.x_i / w_i    all tenants l, i
                                   sum_l x_lj <= m_j                 every type j,  x >= 0

    Summing the first rows over i gives the sharing incentive. The split is Pareto efficient only among envy-free shares
    (`fairness` measures what that costs). `warm` is from the last split; it changes the time, not the shares.
    """
    game = _reduce(speedup, capacity, weight)
    if not len(game.weight):
        return game.split(np.empty((0, len(game.capacity))), np.zeros(len(game.capacity)), "optimal", None)
    outcome = largest_total(game.speedup, game.capacity, game.weight, warm, limit)
    if isinstance(outcome, SolverFailed) and warm is not None:
        outcome = largest_total(game.speedup, game.capacity, game.weight, None, limit)
    if not isinstance(outcome, EnvyFree):
        return game.equal_split(outcome)
    return game.split(outcome.bundle, outcome.price, "optimal", outcome.warm)


def non_cooperative(speedup: FloatArray, capacity: FloatArray, weight: FloatArray, limit: Limit = NO_LIMIT) -> Split:
    """The split with equal throughput per weight, as high as possible.

        max t   s.t.  W_l.x_l / w_l >= t    every tenant l
                      sum_l x_lj <= m_j     every type j,  x >= 0

    Departs: with zero speedups, plain equality would leave GPUs idle that only some tenants can use, so the level is the
    lexicographic max-min. Tenants all of whose usable types have a price use up these types and are done; the others
    divide the remaining types by the same program. If all speedups are positive, one pass makes all levels equal.
    """
    game = _reduce(speedup, capacity, weight)
    bundle = np.zeros(game.speedup.shape)  # g,j  GPUs per unit of weight
    price = np.zeros(len(game.capacity))
    left, types = np.arange(len(game.weight)), np.arange(len(price))
    while len(left):
        W = game.speedup[np.ix_(left, types)]
        outcome = _highest_level(W, game.capacity[types], game.weight[left], limit)
        if not isinstance(outcome, _Level):
            return game.equal_split(outcome)
        priced = outcome.price > 0
        done = ~(W[:, ~priced] > 0).any(axis=1)
        bundle[np.ix_(left[done], types)] = outcome.bundle[done]
        price[types] = outcome.price * game.weight[left[done]].sum()
        left, types = left[~done], types[~priced]
    return game.split(bundle, price, "optimal", None)


@dataclass(frozen=True, slots=True, eq=False)
class _Game:
    """The instance without duplicates: distinct groups (in lexicographic order of their vectors), distinct types."""

    speedup: FloatArray  # g,t
    capacity: FloatArray  # t
    weight: FloatArray  # g
    full_speedup: FloatArray  # l,j  normalised
    full_capacity: FloatArray  # j
    full_weight: FloatArray  # l
    group: IntArray  # l  -1: it can use nothing
    type: IntArray  # j  -1: no tenant can use it, or the cluster has none

    def split(self, bundle: FloatArray, price: FloatArray, status: str, warm: Warm | None) -> Split:
        shares = np.zeros(self.full_speedup.shape)  # l,j  GPUs
        able, j = np.flatnonzero(self.group >= 0), np.flatnonzero(self.type >= 0)
        part = self.full_capacity[j] / self.capacity[self.type[j]]  # j  of its kind
        shares[np.ix_(able, j)] = self.full_weight[able, None] * bundle[self.group[able]][:, self.type[j]] * part
        full_price = np.where(self.full_capacity > 0, 0.0, np.nan)
        full_price[j] = price[self.type[j]]
        return self._settle(shares, full_price, status, warm)

    def equal_split(self, instead_of: TimeLimit | Infeasible | SolverFailed) -> Split:
        """The equal split, which is always envy-free and no worse than a private slice."""
        reason = instead_of.reason if isinstance(instead_of, SolverFailed) else type(instead_of).__name__
        part = self.full_weight / self.full_weight.sum()
        price = np.full(len(self.full_capacity), np.nan)
        return self._settle(part[:, None] * self.full_capacity, price, f"equal split ({reason})", None)

    def _settle(self, shares: FloatArray, price: FloatArray, status: str, warm: Warm | None) -> Split:
        used = shares.sum(axis=0)
        shares *= np.divide(self.full_capacity, used, out=np.ones_like(used), where=used > self.full_capacity)
        level = np.einsum("lj,lj->l", self.full_speedup, shares) / self.full_weight
        return Split(shares, level, price, status, warm)


def _reduce(speedup: FloatArray, capacity: FloatArray, weight: FloatArray) -> _Game:
    full = normalise(speedup)
    full_capacity, full_weight = np.asarray(capacity, dtype=np.float64), np.asarray(weight, dtype=np.float64)
    W = np.round(full, SAME_SPEEDUP)
    able = np.flatnonzero((W[:, full_capacity > 0] > 0).any(axis=1))
    j = np.flatnonzero((full_capacity > 0) & (W > 0).any(axis=0))
    group, kind = np.full(len(W), -1), np.full(len(full_capacity), -1)
    groups, group[able] = np.unique(W[np.ix_(able, j)], axis=0, return_inverse=True)
    _, first, kind_of = np.unique(groups, axis=1, return_index=True, return_inverse=True)
    order = np.argsort(first)  # types stay in the order of the cluster
    kind[j] = np.argsort(order)[kind_of]
    return _Game(
        speedup=np.ascontiguousarray(groups[:, np.sort(first)]),
        capacity=np.bincount(kind[j], full_capacity[j], len(first)).astype(np.float64),
        weight=np.bincount(group[able], full_weight[able], len(groups)).astype(np.float64),
        full_speedup=full,
        full_capacity=full_capacity,
        full_weight=full_weight,
        group=group,
        type=kind,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Level:
    bundle: FloatArray  # g,j  GPUs per unit of weight
    price: FloatArray  # j  growth of the level per GPU


def _highest_level(
    W: FloatArray, m: FloatArray, w: FloatArray, limit: Limit
) -> _Level | TimeLimit | Infeasible | SolverFailed:
    """max t s.t. W_g.y_g >= t, sum_g w_g y_gj <= m_j.

    If each group got the same part of every type, parts a_g in proportion to w_g / W_g.m would make all levels equal.
    The program is solved in units of that division: v_g.z_g >= t, sum_g a_g z_gj <= 1, where v_g adds up to 1. Its t is
    between 1 and k.
    """
    groups, k = W.shape
    whole = W @ m  # g  value of all GPUs
    unit = 1.0 / float((w / whole).sum())  # level of that division
    a = unit * w / whole
    z, t = np.arange(groups * k), groups * k
    of_group, of_type = np.divmod(z, k)
    start, index, value = columns_from_entries(
        row=np.concatenate([of_group, np.arange(groups), groups + of_type]),
        column=np.concatenate([z, np.full(groups, t), z]),
        value=np.concatenate([(W * m / whole[:, None]).ravel(), np.full(groups, -1.0), np.repeat(a, k)]),
        columns=t + 1,
    )
    outcome = solve(
        LinearProgram(
            cost=np.where(np.arange(t + 1) == t, -1.0, 0.0),
            low=np.zeros(t + 1),
            high=np.append(np.where(W > 0, np.inf, 0.0).ravel(), np.inf),
            row_low=np.concatenate([np.zeros(groups), np.full(k, -np.inf)]),
            row_high=np.concatenate([np.full(groups, np.inf), np.ones(k)]),
            start=start,
            index=index,
            value=value,
        ),
        limit,
        tolerance=PRICED,
    )
    if not isinstance(outcome, Optimal):
        return outcome
    price = np.where(outcome.row_dual[groups:] < -PRICED, -outcome.row_dual[groups:], 0.0)  # these add up to t
    bundle = outcome.x[:t].reshape(groups, k) * m * (a / w)[:, None]
    return _Level(bundle, price * unit / m)


def _divide_cooperative(
    speedup: FloatArray, capacity: FloatArray, weight: FloatArray, warm: Warm | None
) -> tuple[FloatArray, str, Warm | None]:
    split = cooperative(speedup, capacity, weight, warm, WORK)
    return split.shares, split.status, split.warm


def _divide_non_cooperative(
    speedup: FloatArray, capacity: FloatArray, weight: FloatArray, _: None
) -> tuple[FloatArray, str, None]:
    split = non_cooperative(speedup, capacity, weight, WORK)
    return split.shares, split.status, None


POLICIES = (
    RoundPolicy(
        name="oef-coop",
        summary="The largest total throughput that leaves no tenant envious of another.",
        paper="OEF (Middleware 2024), cooperative",
        level=Level.SHARES,
        allocate=by_tenants(_divide_cooperative),
        ranges={"split": Word(*SPLITS)},
        promises=frozenset({Promise.NO_ENVY, Promise.SHARING_INCENTIVE}),
    ),
    RoundPolicy(
        name="oef-noncoop",
        summary="Equal normalised throughput for all tenants, as high as possible; exaggerated speedups never pay.",
        paper="OEF (Middleware 2024), non-cooperative",
        level=Level.SHARES,
        allocate=by_tenants(_divide_non_cooperative),
        ranges={"split": Word(*SPLITS)},
        promises=frozenset({Promise.NO_WASTE, Promise.NO_EXAGGERATION}),
    ),
)
