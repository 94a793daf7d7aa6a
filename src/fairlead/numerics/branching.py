"""Programs with few whole numbers, solved exactly by branching over one open linear program.

A linear program of a few hundred columns is solved again in a tenth of a millisecond after one of its bounds has
changed, so a program that needs a dozen of them is far below what HiGHS's search for whole numbers spends before it
branches at all.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from fairlead.model.arrays import FloatArray
from fairlead.numerics.solve import Infeasible, LinearProgram, Model, Optimal, solve

WHOLE = 1e-6  # by how much a solver's whole number may be off
EQUAL = 1e-9  # of the objective: a branch must be better than the best solution by more


def branch(program: LinearProgram, nodes: int) -> Optimal | Infeasible | None:
    """The optimum of a program with whole numbers, or None if that takes more than `nodes` linear programs.

    Depth first, always into the nearer half first. Of the whole numbers that are not whole yet, the last column is
    branched on, so columns that settle others belong at the end.
    """
    assert program.whole is not None, "there is nothing to branch on"
    if not len(program.cost):  # which HiGHS does not take
        outcome = solve(program)
        return outcome if isinstance(outcome, Optimal | Infeasible) else None
    columns = np.flatnonzero(program.whole)
    model = Model(replace(program, whole=None))
    best: Optimal | Infeasible = Infeasible()
    most = math.inf
    low, high = program.low[columns], program.high[columns]
    open_: list[tuple[FloatArray, FloatArray]] = [(low, high)]
    for _ in range(nodes):
        if not open_:
            return best
        low, high = open_.pop()
        model.set_bounds(columns, low, high)
        outcome = model.solve()
        if not isinstance(outcome, Optimal | Infeasible):
            return None
        if isinstance(outcome, Infeasible) or outcome.objective >= most - EQUAL * max(abs(most), 1.0):
            continue
        x = outcome.x[columns]
        off = np.flatnonzero(np.abs(x - np.rint(x)) > WHOLE)
        if off.size:
            open_ += _halves(low, high, int(off[-1]), float(x[off[-1]]))
        else:
            best, most = outcome, outcome.objective
    return None if open_ else best


def _halves(low: FloatArray, high: FloatArray, place: int, x: float) -> list[tuple[FloatArray, FloatArray]]:
    """Both sides of x, the nearer one last."""
    below, above = high.copy(), low.copy()
    below[place], above[place] = math.floor(x), math.ceil(x)
    sides = [(above, high), (low, below)]
    return sides if x - math.floor(x) <= 0.5 else sides[::-1]
