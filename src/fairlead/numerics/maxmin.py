"""Max-min over groups of equal jobs on typed GPUs: a linear program with one solution, kept open between solves."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.numerics import kernel
from fairlead.numerics.kernel import floats, ints
from fairlead.numerics.levels import Gangs, raise_in_step_then_total
from fairlead.numerics.solve import Limit, LinearProgram, Model, Optimal

# The smallest value may be this far (relative) below its optimum when the total is raised: more than the solver's own
# tolerance, far less than a round of whole GPUs can express.
SLACK = 1e-7
# Ties between equally good solutions are broken by preferences this small, so that the solution is unique.
TIE = 1e-5
SHARE_GRID = 9  # decimals of a share; what is smaller is noise, in which a warm and a cold start differ
NEAR = 10 * TIE  # rates this close together (relative) leave the choice to the program
GOLDEN = 0.6180339887498949  # its multiples modulo 1 never coincide
# With more distinct groups than this the programs are not kept open: opening them takes longer than a hundred separate
# solves. With fewer, a warm solve takes 1 to 14 ms and a separate one 4 to 29 ms (docs/decisions/0070).
MANY = 1000
ITERATIONS = Limit(iterations=100_000)
_Z = 0  # the column of the level


@dataclass(frozen=True, slots=True, eq=False)
class MaxMin:
    shares: FloatArray  # g,t  GPUs of one job
    level: float  # the smallest value


class MaxMinSolver:
    """Maximises first the smallest value, then the total.

        max z   s.t.  v_g.x_g >= z,   sum_t x_gt <= d_g,   sum_g n_g x_gt <= m_t,   x >= 0       v_gt = scale_g rate_gt

    The program is written in y = n x, with z's coefficient n_g / scale_g, so that jobs that come and go change one column
    and some bounds. Both steps have an open program of their own, and each starts from its last basis. Groups whose jobs
    are gone stay in the program with n = 0. The open programs are a cache: they make a solution cheaper but never
    different, because the solution is unique.
    """

    def __init__(self, types: int, many: int = MANY) -> None:
        self._types, self._many = types, many
        self._group: dict[bytes, int] = {}
        self._column_of = np.zeros((0, types), dtype=np.int64)  # group,t  _Z where the group has no rate
        self._worth = np.zeros(1)  # by column: the group's rate there, relative to its largest, perturbed to break ties
        self._group_of = np.zeros(1, dtype=np.int64)  # by column
        self._level, self._total = (
            Model(_empty(types, cost=-1.0), duals=False),
            Model(_empty(types, cost=0.0), duals=False),
        )
        # What the programs contain now: GPUs by type; coefficient of the level and GPUs by group; costs by column.
        self._capacity = np.zeros(types)
        self._need, self._most, self._cost = np.zeros(0), np.zeros(0), np.zeros(1)

    def solve(
        self,
        rate: FloatArray,
        scale: FloatArray,
        width: IntArray,
        count: IntArray | FloatArray,
        capacity: IntArray | FloatArray,
    ) -> MaxMin | None:
        """The shares of groups (g), in any order; None if the solver gave up. A group without any rate gets nothing."""
        if kernel.kernel is not None and count.dtype == capacity.dtype == np.int64:
            return self._solve_compiled(rate, scale, width, count, capacity)
        return self._solve(rate, scale, width, count, capacity)

    def _solve_compiled(
        self,
        rate: FloatArray,
        scale: FloatArray,
        width: IntArray,
        count: IntArray | FloatArray,
        capacity: IntArray | FloatArray,
    ) -> MaxMin | None:
        """The same, where the cases that need no program and the order of groups are found in one call."""
        alive, strength = np.empty(len(scale), dtype=np.int64), np.empty(len(scale))
        keys = np.empty((len(scale), self._types + 1))
        n, easy = kernel.kernel.rank_groups(
            floats(rate), floats(scale), ints(width), count, capacity, NEAR, alive, strength, keys
        )
        if easy or not n or n > self._many:
            return self._solve(rate, scale, width, count, capacity)
        return self._divide(rate.shape, alive[:n], strength[:n], keys[:n], width, count, capacity)

    def _solve(
        self,
        rate: FloatArray,
        scale: FloatArray,
        width: IntArray,
        count: IntArray | FloatArray,
        capacity: IntArray | FloatArray,
    ) -> MaxMin | None:
        top = rate.max(axis=1)  # g
        strength = top * scale  # g  value of one GPU of its best type
        alive = strength.argsort(kind="stable")[np.count_nonzero(top <= 0) :]
        if not alive.size:
            return MaxMin(np.zeros(rate.shape), 0.0)
        best = rate > (1 - NEAR) * top[:, None]  # g,t
        if np.count_nonzero(best) == len(alive) and ((count * width) @ best <= capacity).all():
            # One type is clearly best for each group and there is room for all of them, so no groups compete.
            return MaxMin(best * width[:, None].astype(np.float64), float((strength * width)[alive].min()))
        if len(alive) > self._many:
            many = _max_min_of_many(rate, strength, width, count, capacity)
            if many is not None:
                return many
        keys = np.column_stack((rate[alive] / top[alive, None], width[alive].view(np.float64)))  # bit by bit
        return self._divide(rate.shape, alive, strength[alive], keys, width, count, capacity)

    def _divide(
        self,
        shape: tuple[int, ...],
        alive: IntArray,
        strength: FloatArray,
        keys: FloatArray,
        width: IntArray,
        count: IntArray | FloatArray,
        capacity: IntArray | FloatArray,
    ) -> MaxMin | None:
        """The solution by the open programs, for groups that compete, weakest first."""
        n, groups = count[alive], self._find_all(keys)
        most, need, value = np.zeros((3, self.size))  # by group
        most[groups] = n * width[alive]
        need[groups] = n / strength  # the worth that all jobs of the group need for a level of 1
        value[groups] = strength
        self._set_gpus(np.asarray(capacity, dtype=np.float64), most)
        level = self._raise_level(need)
        if level is None:
            return None
        worth = self._raise_total(value, need * level * (1 - SLACK))
        if worth is None:
            return None
        shares = np.zeros(shape)
        shares[alive] = (worth[self._column_of[groups]] / n[:, None]).round(SHARE_GRID)
        return MaxMin(shares, level)

    @property
    def size(self) -> int:
        """The number of groups in the programs, including those whose jobs are gone."""
        return len(self._group)

    def _set_gpus(self, capacity: FloatArray, most: FloatArray) -> None:
        """Set the GPUs of types and groups in both programs; few of them change from one solve to the next."""
        types, groups = (capacity != self._capacity).nonzero()[0], (most != self._most).nonzero()[0]
        rows = [*types.tolist(), *(self._types + 2 * groups + 1).tolist()]
        for row, gpus in zip(rows, [*capacity[types].tolist(), *most[groups].tolist()], strict=True):
            self._level.set_row_bound(row, -np.inf, gpus)
            self._total.set_row_bound(row, -np.inf, gpus)
        self._capacity, self._most = capacity, most

    def _raise_level(self, need: FloatArray) -> float | None:
        for group in (need != self._need).nonzero()[0].tolist():
            self._level.set_coefficient(self._types + 2 * group, _Z, -float(need[group]))
        self._need = need
        outcome = self._level.solve(ITERATIONS)
        return float(outcome.x[_Z]) if isinstance(outcome, Optimal) else None

    def _raise_total(self, value: FloatArray, least: FloatArray) -> FloatArray | None:
        """x by column, with 0 for the level."""
        rows = np.arange(self._types, self._types + 2 * self.size, 2)
        self._total.set_row_bounds(rows, least, np.full(self.size, np.inf))
        cost = -self._worth * value[self._group_of]
        cost[_Z] = 0.0
        if not np.array_equal(cost, self._cost):
            self._total.set_costs(np.arange(len(cost)), cost)
            self._cost = cost
        outcome = self._total.solve(ITERATIONS)
        if not isinstance(outcome, Optimal):
            return None
        outcome.x[_Z] = 0.0
        return outcome.x

    def _find_all(self, keys: FloatArray) -> IntArray:
        """Positions of these groups in the programs; groups with equal relative rates and width are numbered by rank."""
        rows, size = keys.tobytes(), keys.itemsize * keys.shape[1]
        groups: dict[bytes, int] = {}
        for g in range(len(keys)):
            key = rows[g * size : (g + 1) * size]
            while key in groups:
                key += b"+"
            group = self._group.get(key)
            groups[key] = self._add(key, keys[g, :-1]) if group is None else group
        return np.array(list(groups.values()))

    def _add(self, key: bytes, relative: FloatArray) -> int:
        """Add a group: two rows (level, width) and a column per usable type. Returns its position."""
        group, types = self.size, np.flatnonzero(relative > 0)
        cells, level = len(types), self._types + 2 * self.size
        rows = np.column_stack((types, np.full(cells, level), np.full(cells, level + 1)))
        values = np.column_stack((np.ones(cells), relative[types], np.ones(cells)))
        none = np.zeros(0, dtype=np.int64)
        for model in (self._level, self._total):
            model.add_rows(
                np.array((0, -np.inf)), np.array((np.inf, 0)), np.zeros(3, dtype=np.int64), none, np.zeros(0)
            )
            model.add_columns(
                np.zeros(cells),
                np.zeros(cells),
                np.full(cells, np.inf),
                np.arange(0, 3 * cells + 1, 3),
                rows.ravel(),
                values.ravel(),
            )
        column_of = np.full(self._types, _Z)
        column_of[types] = np.arange(len(self._worth), len(self._worth) + cells)
        worth = relative[types] * (1.0 + TIE * ((zlib.crc32(key) / 2**32 + types * GOLDEN) % 1.0))
        self._group[key] = group
        self._column_of = np.vstack((self._column_of, column_of))
        self._worth = np.concatenate((self._worth, worth))
        self._group_of = np.concatenate((self._group_of, np.full(cells, group)))
        self._need, self._most = np.append(self._need, 0.0), np.append(self._most, 0.0)
        self._cost = np.append(self._cost, np.zeros(cells))
        return group


def _max_min_of_many(
    rate: FloatArray,
    strength: FloatArray,
    width: IntArray,
    count: IntArray | FloatArray,
    capacity: IntArray | FloatArray,
) -> MaxMin | None:
    """The same by the method for thousands of distinct groups; a value is strength x width x part of full speed."""
    width = np.minimum(width, np.ceil(np.sum(capacity)).astype(np.int64))  # no group can use more than the cluster
    gangs = Gangs.of(rate, width, count, capacity)
    full = (strength * width)[gangs.alive]  # g  value of full speed
    raised = raise_in_step_then_total(gangs, 1.0 / full, full)
    return None if raised is None else MaxMin(gangs.shares(raised[1]), raised[0])


def _empty(types: int, cost: float) -> LinearProgram:
    """A program without groups: the level, which only the first step uses, and one row of capacity per type."""
    return LinearProgram(
        cost=np.array([cost]),
        low=np.zeros(1),
        high=np.full(1, np.inf),
        row_low=np.full(types, -np.inf),
        row_high=np.zeros(types),
        start=np.zeros(2, dtype=np.int64),
        index=np.zeros(0, dtype=np.int64),
        value=np.zeros(0),
    )
