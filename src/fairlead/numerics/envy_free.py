"""The largest total among envy-free divisions, for a thousand distinct tenants.

    max  sum_g p_g W_g.y_g   s.t.  W_g.y_g >= W_g.y_h    all g, h        (no tenant prefers another's bundle)
                                   sum_g p_g y_gj <= m_j  every type j,   y >= 0

y_g is what one unit of weight of group g receives. A program with all g(g-1) envy rows would be too large, but few of
them bind: the program starts with the rows between neighbours in the space of speedups, and each pass adds, for every
tenant, the bundle that it envies most and the tenant that envies it most. The solution is optimal because it solves a
relaxation with fewer rows, and envy-free because all pairs are checked in the end.

The program is solved in units of the equal split: z_gj = y_gj sum(p) / m_j, v_gj = W_gj m_j / W_g.m. Equal shares are
then z = 1, every group values them at v_g.z_g = 1, and the tolerances below are relative to that.

A tenant of weight zero takes nothing and constrains no one (whatever the others receive, it can be assigned the bundle
that it likes best), so tenants that left stay in a warm start with weight zero, and its basis still fits.
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

ENVY = 1e-9  # of the value of an equal share: the most envy that may remain
# Rows per group to begin with; 2 take up to twice as long, 6 gain nothing (300 x 3, 300 x 10, 1000 x 3).
NEIGHBOURS = 4
GRID = 10  # decimals of an equal share; what is smaller is noise, in which a warm and a cold start differ
MOST_ROWS = 16  # per group, kept for a warm start; if there are more, only the rows that bind are kept


@dataclass(frozen=True, slots=True, eq=False)
class Warm:
    """What a solve keeps for the next one."""

    vector: FloatArray  # g,j  speedups, including those of tenants that left
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

    If several divisions have the largest total, a second objective chooses among them, so that a warm start gives the
    same result as a cold one: the throughput of a tenant counts for more if its speedup is larger.
    """
    vector, at, start = _recall(speedup, warm)
    p = np.zeros(len(vector))
    p[at] = weight / weight.sum()
    equal = vector @ capacity  # g  value of the whole cluster
    v = vector * capacity / equal[:, None]  # g,j
    gain = (p * equal)[:, None] * v  # g,j  the whole capacity is worth `scale`
    scale = float(p @ equal)
    search = _Search(v, p, -gain / scale, start, limit)
    outcome = search.run()
    if not isinstance(outcome, Optimal):
        return outcome
    next_warm = search.warm(vector)
    price = -outcome.row_dual[: len(capacity)] * scale / capacity
    if search.model.keep_optima(outcome):
        chosen = search.run(second_cost=_second_cost(gain / scale, equal, at))
        outcome = chosen if isinstance(chosen, Optimal) else outcome  # beyond the limit, any optimum is good enough
    z = np.round(outcome.x.reshape(v.shape)[at], GRID)
    return EnvyFree(z * capacity / weight.sum(), price, next_warm, search.iterations)


class _Search:
    """The open program, and the envy rows that it has so far."""

    def __init__(self, v: FloatArray, p: FloatArray, cost: FloatArray, start: _WarmRows, limit: Limit) -> None:
        self.v, self.limit, self.iterations = v, limit, 0
        near = _neighbours(v, start.new)
        self.row = np.concatenate([start.row, near])
        self.have: BoolArray = np.zeros((len(v), len(v)), dtype=np.bool_)
        self.have[self.row[:, 0], self.row[:, 1]] = True
        np.fill_diagonal(self.have, True)
        self.model = Model(_program(v, p, cost, self.row), start.basis(v.shape[1], len(near)), tolerance=ENVY)

    def run(self, second_cost: FloatArray | None = None) -> Optimal | TimeLimit | Infeasible | SolverFailed:
        """Solve and add rows until there is no envy."""
        if second_cost is not None:
            self.model.set_costs(np.arange(self.v.size), second_cost)
        primal = second_cost is not None
        while True:
            outcome = self.model.solve(self._limit_left(), primal=primal)
            if not isinstance(outcome, Optimal):
                return outcome
            self.iterations += outcome.iterations
            envied = self._envied(outcome.x.reshape(self.v.shape))
            if not len(envied):
                return outcome
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
        """Pairs (g, h) that are not rows yet: for each g the h that it envies most, for each h the g that envies it most."""
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
        """The old basis with new columns at zero and new rows slack."""
        if self.old_basis is None:
            return None
        columns, rows = self.old_basis.columns, self.old_basis.rows
        return Basis(columns + bytes(k * int(self.new.sum())), rows + bytes([BASIC]) * new_rows)


def _recall(speedup: FloatArray, warm: Warm | None) -> tuple[FloatArray, IntArray, _WarmRows]:
    """The vectors of the program (those of the warm start first), the position of each group, and what to keep."""
    groups, k = speedup.shape
    if warm is not None and warm.vector.shape[1] == k:
        place = {vector.tobytes(): i for i, vector in enumerate(warm.vector)}
        position = np.array([place.get(vector.tobytes(), -1) for vector in speedup], dtype=np.int64)
        new = position < 0
        # If too many tenants have left or arrived, the basis is worth less than a fresh start.
        if len(warm.vector) - int((~new).sum()) <= 8 + groups // 4 and 2 * int(new.sum()) <= groups:
            position[new] = len(warm.vector) + np.arange(int(new.sum()))
            vector = np.concatenate([warm.vector, speedup[new]])
            return vector, position, _WarmRows(warm.row, np.arange(len(vector)) >= len(warm.vector), warm.basis)
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
        high=np.where(v > 0, np.inf, 0.0).ravel(),  # no tenant gets what it cannot use
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
    """Pairs of groups with similar speedups, in both directions, of which at least one is new.

    These are the nearest few by the logarithms of the speedups; in a fresh start also those that follow one another in
    steepness (along the first principal direction), which alone suffice if the tenants can be ordered.
    """
    groups = len(v)
    position = np.log(np.maximum(v, 1e-3 * v.max(axis=1, keepdims=True)))
    position -= position.mean(axis=1, keepdims=True)
    near: BoolArray = np.zeros((groups, groups), dtype=np.bool_)
    rows = np.flatnonzero(new)
    count = min(NEIGHBOURS, groups - 1)
    if count > 0 and len(rows):
        square = np.einsum("gj,gj->g", position, position)
        distance = square[rows, None] + square - 2 * position[rows] @ position.T
        distance[np.arange(len(rows)), rows] = np.inf
        near[rows[:, None], np.argpartition(distance, count - 1, axis=1)[:, :count]] = True
    if new.all() and groups > 1:
        centred = position - position.mean(axis=0)
        along = np.argsort(centred @ np.linalg.svd(centred, full_matrices=False)[2][0], kind="stable")
        near[along[:-1], along[1:]] = True
    return np.argwhere(near | near.T)


def _second_cost(gain: FloatArray, equal: FloatArray, at: IntArray) -> FloatArray:
    """Minus the throughput, times the tenant's speedup on the cluster as a whole.

    Remaining ties are broken by fixed weights without any pattern, in the order of the input. (Evenly spread weights,
    such as multiples of the golden ratio, add up to ties.)
    """
    pattern = np.random.Generator(np.random.PCG64(0)).random((at.size, gain.shape[1]))
    cost = np.zeros_like(gain)
    cost[at] = -gain[at] * (equal[at, None] / equal[at].max() + 0.01 * pattern)
    return cost.ravel()
