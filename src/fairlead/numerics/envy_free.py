"""The largest total among envy-free divisions, for a thousand tenants that are all different.

    max  sum_g p_g W_g.y_g   s.t.  W_g.y_g >= W_g.y_h    all g, h        (nobody prefers another's bundle)
                                   sum_g p_g y_gj <= m_j  every type j,   y >= 0

y_g is what one unit of weight of group g receives. All g(g-1) envy rows at once are the wall, yet few of them bind: the
program starts with the rows between neighbours in the space of speedups, and each pass adds, for every tenant, the
bundle that it envies most and the tenant that envies its own most. The answer is optimal because it solves a program
with fewer rows than asked for, and envy-free because in the end all pairs are checked.

Solved in units of the equal split: z_gj = y_gj sum(p) / m_j, v_gj = W_gj m_j / W_g.m. Then equal shares are z = 1, every
group values them at v_g.z_g = 1, and the tolerances below are relative to that.

A tenant of weight zero takes nothing and binds nobody (whatever the others receive, it may name the bundle it likes
best): so tenants who left stay in a warm start with weight zero, and its basis still fits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.numerics.solve import (
    BASIC,
    NO_LIMIT,
    Basis,
    Infeasible,
    Limit,
    LinearProgram,
    Model,
    Optimal,
    SolverFailed,
    TimeLimit,
    columns_from_entries,
)

ENVY = 1e-9  # of the value of an equal share: the most envy that is left
NEIGHBOURS = (
    4  # rows to begin with, per group; 2 take up to twice as long, 6 gain nothing (300 x 3, 300 x 10, 1000 x 3)
)
GRID = 10  # decimals of an equal share; below is noise, in which a warm and a cold start differ
MOST_ROWS = 16  # per group, kept for a warm start; beyond that only the rows that bind


@dataclass(frozen=True, slots=True, eq=False)
class Warm:
    """What a solve leaves for the next one."""

    vector: FloatArray  # g,j  speedups, of tenants who left too
    row: IntArray  # r,2  (g, h): g must not envy h
    basis: Basis


@dataclass(frozen=True, slots=True, eq=False)
class EnvyFree:
    bundle: FloatArray  # g,j  GPUs per unit of weight
    price: FloatArray  # j  growth of the total per GPU; prices times capacities add up to the total
    warm: Warm
    iterations: int


def largest_total(
    speedup: FloatArray,
    capacity: FloatArray,
    weight: FloatArray,
    warm: Warm | None = None,
    limit: Limit = NO_LIMIT,
) -> EnvyFree | TimeLimit | Infeasible | SolverFailed:
    """Bundles for groups with different vectors, each with a positive entry; capacities and weights are positive.

    Where several divisions have the largest total, a second objective chooses, so that a warm start ends where a cold
    one does: throughput counts for more the more a tenant speeds up.
    """
    vector, at, start = _recall(speedup, warm)
    p = np.zeros(len(vector))
    p[at] = weight / weight.sum()
    equal = vector @ capacity  # g  value of the whole cluster
    v = vector * capacity / equal[:, None]  # g,j
    gain = (p * equal)[:, None] * v  # g,j  all capacity at once is worth `scale`
    scale = float(p @ equal)
    search = _Search(v, p, -gain / scale, start, limit)
    found = search.run()
    if not isinstance(found, Optimal):
        return found
    next_warm = search.warm(vector)
    price = -found.row_dual[: len(capacity)] * scale / capacity
    if search.model.keep_optima(found):
        chosen = search.run(second_cost=_second_cost(gain / scale, equal, at))
        found = chosen if isinstance(chosen, Optimal) else found  # out of budget: an optimum is an optimum
    z = np.round(found.x.reshape(v.shape)[at], GRID)
    return EnvyFree(z * capacity / weight.sum(), price, next_warm, search.iterations)


class _Search:
    """The open program and the envy rows that it has so far."""

    def __init__(self, v: FloatArray, p: FloatArray, cost: FloatArray, start: _WarmRows, limit: Limit) -> None:
        self.v, self.limit, self.iterations = v, limit, 0
        near = _neighbours(v, start.new)
        self.row = np.concatenate([start.row, near])
        self.have: BoolArray = np.zeros((len(v), len(v)), dtype=np.bool_)
        self.have[self.row[:, 0], self.row[:, 1]] = True
        np.fill_diagonal(self.have, True)
        self.model = Model(_program(v, p, cost, self.row), start.basis(v.shape[1], len(near)), tolerance=ENVY)

    def run(self, second_cost: FloatArray | None = None) -> Optimal | TimeLimit | Infeasible | SolverFailed:
        """Solve and add rows until nobody envies anybody."""
        if second_cost is not None:
            self.model.set_costs(np.arange(self.v.size), second_cost)
        primal = second_cost is not None
        while True:
            found = self.model.solve(self._limit_left(), primal=primal)
            if not isinstance(found, Optimal):
                return found
            self.iterations += found.iterations
            envied = self._envied(found.x.reshape(self.v.shape))
            if not len(envied):
                return found
            self._add(envied)
            primal = False

    def warm(self, vector: FloatArray) -> Warm:
        basis, k = self.model.basis(), self.v.shape[1]
        if len(self.row) <= MOST_ROWS * len(vector):
            return Warm(vector, self.row, basis)
        status = np.frombuffer(basis.rows, dtype=np.uint8)
        binds = status[k:] != BASIC
        rows = np.concatenate([status[:k], status[k:][binds]])
        return Warm(vector, self.row[binds], Basis(basis.columns, rows.tobytes()))

    def _envied(self, z: FloatArray) -> IntArray:
        """Pairs (g, h) that are not rows yet: per g the h that it envies most, per h the g that envies it most."""
        envy = self.v @ z.T  # g,h
        envy -= np.einsum("gj,gj->g", self.v, z)[:, None]
        envy[self.have] = -np.inf
        everyone = np.arange(len(self.v))
        worst = np.zeros_like(self.have)
        worst[everyone, envy.argmax(axis=1)] = True
        worst[envy.argmax(axis=0), everyone] = True
        return np.argwhere(worst & (envy > ENVY))

    def _add(self, pairs: IntArray) -> None:
        self.row = np.concatenate([self.row, pairs])
        self.have[pairs[:, 0], pairs[:, 1]] = True
        column, value = _envy_rows(self.v, pairs)
        count, width = column.shape
        none = np.zeros(count)
        self.model.add_rows(none, none + np.inf, np.arange(0, count * width + 1, width), column.ravel(), value.ravel())

    def _limit_left(self) -> Limit:
        iterations, seconds = self.limit.iterations, self.limit.seconds
        return replace(
            self.limit,
            iterations=None if iterations is None else max(iterations - self.iterations, 0),
            seconds=None if seconds is None else max(seconds - self.model.spent_s, 0.0),
        )


@dataclass(frozen=True, slots=True, eq=False)
class _WarmRows:
    row: IntArray  # r,2
    new: BoolArray  # g  has no row yet
    old_basis: Basis | None

    def basis(self, k: int, new_rows: int) -> Basis | None:
        """The old basis, new columns at zero and new rows slack."""
        if self.old_basis is None:
            return None
        columns, rows = self.old_basis.columns, self.old_basis.rows
        return Basis(columns + bytes(k * int(self.new.sum())), rows + bytes([BASIC]) * new_rows)


def _recall(speedup: FloatArray, warm: Warm | None) -> tuple[FloatArray, IntArray, _WarmRows]:
    """The vectors of the program (those of the warm start first), where each group is among them, and what to keep."""
    groups, k = speedup.shape
    if warm is not None and warm.vector.shape[1] == k:
        place = {vector.tobytes(): i for i, vector in enumerate(warm.vector)}
        found = np.array([place.get(vector.tobytes(), -1) for vector in speedup], dtype=np.int64)
        new = found < 0
        # With too many who left, or too many who came, the basis is worth less than a fresh start.
        if len(warm.vector) - int((~new).sum()) <= 8 + groups // 4 and 2 * int(new.sum()) <= groups:
            found[new] = len(warm.vector) + np.arange(int(new.sum()))
            vector = np.concatenate([warm.vector, speedup[new]])
            return vector, found, _WarmRows(warm.row, np.arange(len(vector)) >= len(warm.vector), warm.basis)
    nothing = np.empty((0, 2), dtype=np.int64)
    return speedup, np.arange(groups), _WarmRows(nothing, np.ones(groups, dtype=np.bool_), None)


def _program(v: FloatArray, p: FloatArray, cost: FloatArray, pairs: IntArray) -> LinearProgram:
    groups, k = v.shape
    column, value = _envy_rows(v, pairs)
    start, index, entries = columns_from_entries(
        row=np.concatenate([np.tile(np.arange(k), groups), np.repeat(k + np.arange(len(pairs)), 2 * k)]),
        column=np.concatenate([np.arange(groups * k), column.ravel()]),
        value=np.concatenate([np.repeat(p, k), value.ravel()]),
        columns=groups * k,
    )
    return LinearProgram(
        cost=cost.ravel(),
        low=np.zeros(v.size),
        high=np.where(v > 0, np.inf, 0.0).ravel(),  # nobody is given what it cannot use
        row_low=np.concatenate([np.full(k, -np.inf), np.zeros(len(pairs))]),
        row_high=np.concatenate([np.ones(k), np.full(len(pairs), np.inf)]),
        start=start,
        index=index,
        value=entries,
    )


def _envy_rows(v: FloatArray, pairs: IntArray) -> tuple[IntArray, FloatArray]:
    """Columns and values of v_g.z_g - v_g.z_h >= 0, one row per pair."""
    k = v.shape[1]
    g, h = pairs[:, 0], pairs[:, 1]
    types = np.arange(k)
    return (
        np.concatenate([g[:, None] * k + types, h[:, None] * k + types], axis=1),
        np.concatenate([v[g], -v[g]], axis=1),
    )


def _neighbours(v: FloatArray, new: BoolArray) -> IntArray:
    """Pairs of groups with similar speedups, in both directions, of which one at least is new.

    The nearest few by the logarithms of the speedups; in a fresh start also those who follow one another in steepness
    (along the first principal direction), which alone suffice where tenants can be ordered.
    """
    groups = len(v)
    position = np.log(np.maximum(v, 1e-3 * v.max(axis=1, keepdims=True)))
    position -= position.mean(axis=1, keepdims=True)
    near: BoolArray = np.zeros((groups, groups), dtype=np.bool_)
    who = np.flatnonzero(new)
    count = min(NEIGHBOURS, groups - 1)
    if count > 0 and len(who):
        square = np.einsum("gj,gj->g", position, position)
        distance = square[who, None] + square - 2 * position[who] @ position.T
        distance[np.arange(len(who)), who] = np.inf
        near[who[:, None], np.argpartition(distance, count - 1, axis=1)[:, :count]] = True
    if new.all() and groups > 1:
        centred = position - position.mean(axis=0)
        along = np.argsort(centred @ np.linalg.svd(centred, full_matrices=False)[2][0], kind="stable")
        near[along[:-1], along[1:]] = True
    return np.argwhere(near | near.T)


def _second_cost(gain: FloatArray, equal: FloatArray, at: IntArray) -> FloatArray:
    """Minus throughput, times the tenant's speedup on the cluster as a whole.

    What is still equal is told apart by fixed weights without any pattern, in the order of the input. (Evenly spread
    ones, such as multiples of the golden ratio, add up to ties.)
    """
    pattern = np.random.Generator(np.random.PCG64(0)).random((at.size, gain.shape[1]))
    cost = np.zeros_like(gain)
    cost[at] = -gain[at] * (equal[at, None] / equal[at].max() + 0.01 * pattern)
    return cost.ravel()
