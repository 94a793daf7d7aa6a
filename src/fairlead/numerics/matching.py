"""Least-cost matching of rows to columns, compiled (successive shortest paths with potentials)."""

from __future__ import annotations

import numpy as np

from fairlead.numerics.compiled import compiled


@compiled
def match(cost):
    """The column of each row at the least total cost, each column used at most once. Needs rows <= columns."""
    rows, columns = cost.shape
    row_price, column_price = np.zeros(rows + 1), np.zeros(columns + 1)
    row_of, way = np.zeros(columns + 1, np.int64), np.zeros(columns + 1, np.int64)
    for i in range(1, rows + 1):
        row_of[0] = i
        at = 0
        least = np.full(columns + 1, np.inf)
        used = np.zeros(columns + 1, np.bool_)
        while True:
            used[at] = True
            row, step, following = row_of[at], np.inf, 0
            for j in range(1, columns + 1):
                if used[j]:
                    continue
                reduced = cost[row - 1, j - 1] - row_price[row] - column_price[j]
                if reduced < least[j]:
                    least[j] = reduced
                    way[j] = at
                if least[j] < step:
                    step = least[j]
                    following = j
            for j in range(columns + 1):
                if used[j]:
                    row_price[row_of[j]] += step
                    column_price[j] -= step
                else:
                    least[j] -= step
            at = following
            if row_of[at] == 0:
                break
        while at != 0:
            before = way[at]
            row_of[at] = row_of[before]
            at = before
    column_of = np.empty(rows, np.int64)
    for j in range(1, columns + 1):
        if row_of[j] > 0:
            column_of[row_of[j] - 1] = j - 1
    return column_of
