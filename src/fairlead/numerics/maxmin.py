"""Max-min over groups of equal jobs on typed GPUs: a linear program with one answer, kept open between solves."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.numerics.solve import Limit, LinearProgram, Model, Optimal

# The smallest value may fall this far (relative) short of its optimum when the total is raised: above the solver's
# own tolerance, far below what a round of whole GPUs can express.
SLACK = 1e-7
# Ties between equally good answers are broken by preferences this small, so that there is one answer.
TIE = 1e-5
GOLDEN = 0.6180339887498949  # steps of it never meet
ITERATIONS = Limit(iterations=100_000)
_Z = 0  # the column of the level


@dataclass(frozen=True, slots=True, eq=False)
class MaxMin:
    shares: FloatArray  # g,t  GPUs of one job
    level: float  # the smallest value


class MaxMinSolver:
    """First the smallest value as high as it goes, then the total.

        max z   s.t.  v_g.x_g >= z,   sum_t x_gt <= d_g,   sum_g n_g x_gt <= m_t,   x >= 0       v_gt = scale_g rate_gt

    Written in y = n x and with z's coefficient n_g / scale_g, so that jobs coming and going change one column and some
    bounds. Both steps have an open program of their own, each with its last basis as a good start. Groups stay in
    with n = 0 when their jobs are gone. The open programs are a cache: they make an answer cheaper, never different,
    because the answer is unique.
    """

    def __init__(self, types: int) -> None:
        self._types = types
        self._group: dict[bytes, int] = {}
        self._cells: list[IntArray] = []  # by group: types with a rate
        self._column: list[int] = []  # by group: its first column
        self._worth: list[FloatArray] = []  # by group: rates on its cells, the largest is 1, nudged apart
        self._columns = 1
        self._need = np.zeros(0)  # by group: what the first step's program holds
        self._level, self._total = Model(_empty(types, cost=-1.0)), Model(_empty(types, cost=0.0))

    def solve(
        self,
        rate: FloatArray,
        scale: FloatArray,
        width: IntArray,
        count: IntArray | FloatArray,
        capacity: IntArray | FloatArray,
    ) -> MaxMin | None:
        """Groups (g) in any order; None if the solver gave up. A group without any rate gets nothing."""
        top = rate.max(axis=1)  # g
        strength = top * scale  # g  value of one GPU of its best type
        alive = np.argsort(strength, kind="stable")[np.count_nonzero(top <= 0) :]
        if not alive.size:
            return MaxMin(np.zeros(rate.shape), 0.0)
        strength = strength[alive]
        groups = self._find_all(rate[alive] / top[alive, None], width[alive])
        most, need = np.zeros(self.size), np.zeros(self.size)
        most[groups] = count[alive] * width[alive]
        need[groups] = count[alive] / strength  # worth that all jobs of the group need for a level of 1
        level = self._raise_level(need, most, capacity)
        if level is None:
            return None
        worth = self._raise_total(groups, strength, need * level * (1 - SLACK), most, capacity)
        if worth is None:
            return None
        shares = np.zeros(rate.shape)
        for g, group in zip(alive.tolist(), groups, strict=True):
            cells = self._cells[group]
            shares[g, cells] = worth[self._column[group] : self._column[group] + len(cells)] / count[g]
        return MaxMin(shares, level)

    @property
    def size(self) -> int:
        """Groups that it has ever seen."""
        return len(self._cells)

    def _raise_level(self, need: FloatArray, most: FloatArray, capacity: IntArray | FloatArray) -> float | None:
        for group in np.flatnonzero(need != self._need).tolist():
            self._level.set_coefficient(self._types + 2 * group, _Z, -float(need[group]))
        self._need = need
        self._level.set_row_bounds(*self._row_bounds(np.zeros(self.size), most, capacity))
        found = self._level.solve(ITERATIONS)
        return float(found.x[_Z]) if isinstance(found, Optimal) else None

    def _raise_total(
        self,
        groups: list[int],
        strength: FloatArray,
        least: FloatArray,
        most: FloatArray,
        capacity: IntArray | FloatArray,
    ) -> FloatArray | None:
        self._total.set_row_bounds(*self._row_bounds(least, most, capacity))
        value = np.zeros(self.size)  # by group
        value[groups] = strength
        cost = -np.concatenate(self._worth) * np.repeat(value, [len(cells) for cells in self._cells])
        self._total.set_costs(np.arange(1, self._columns), cost)
        found = self._total.solve(ITERATIONS)
        return found.x if isinstance(found, Optimal) else None

    def _row_bounds(
        self, least: FloatArray, most: FloatArray, capacity: IntArray | FloatArray
    ) -> tuple[IntArray, FloatArray, FloatArray]:
        """Of all rows: capacity by type, then level and width by group."""
        rows = self._types + 2 * self.size
        low, high = np.full(rows, -np.inf), np.full(rows, np.inf)
        high[: self._types] = capacity
        low[self._types :: 2] = least
        high[self._types + 1 :: 2] = most
        return np.arange(rows), low, high

    def _find_all(self, relative: FloatArray, width: IntArray) -> list[int]:
        """Places of these groups in the programs; those with equal relative rates and width are told apart by rank."""
        groups: list[int] = []
        taken: set[bytes] = set()
        for rates, gpus in zip(relative, width.tolist(), strict=True):
            key = rates.tobytes() + gpus.to_bytes(8, "little")
            while key in taken:
                key += b"+"
            taken.add(key)
            group = self._group.get(key)
            groups.append(self._add(key, rates) if group is None else group)
        return groups

    def _add(self, key: bytes, relative: FloatArray) -> int:
        """Two rows (level, width) and a column per usable type."""
        group, types = self.size, np.flatnonzero(relative > 0)
        cells, level = len(types), self._types + 2 * self.size
        rows = np.column_stack((types, np.full(cells, level), np.full(cells, level + 1)))
        values = np.column_stack((np.ones(cells), relative[types], np.ones(cells)))
        none = np.zeros(0, dtype=np.int64)
        for model in (self._level, self._total):
            model.add_rows(np.zeros(2), np.zeros(2), np.zeros(3, dtype=np.int64), none, np.zeros(0))
            model.add_columns(
                np.zeros(cells),
                np.zeros(cells),
                np.full(cells, np.inf),
                np.arange(0, 3 * cells + 1, 3),
                rows.ravel(),
                values.ravel(),
            )
        self._group[key] = group
        self._cells.append(types)
        self._column.append(self._columns)
        self._worth.append(relative[types] * (1.0 + TIE * ((zlib.crc32(key) / 2**32 + types * GOLDEN) % 1.0)))
        self._need = np.append(self._need, 0.0)
        self._columns += cells
        return group


def _empty(types: int, cost: float) -> LinearProgram:
    """The level, which only the first step uses, and one row of capacity per type."""
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
