"""The most GPUs that gangs can use at once (FFT's K), and programs in which gangs of one width are counted."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.numerics.solve import Limit, LinearProgram, Optimal, TimeLimit, columns_from_entries, solve

NODES = 10_000  # of the program for K, which has one whole number per width and type
WHOLE = 1e-6  # by how much a solver's whole number may be off


@dataclass(frozen=True, slots=True, eq=False)
class Packing:
    """A way to use as many GPUs as possible."""

    gpus: int  # K
    reach: IntArray  # i  the most GPUs of each type that gangs can fill, regardless of the other types
    kind: IntArray  # j  jobs of one kind have the same width and run on the same types
    count: IntArray  # kind,i  jobs of the kind on the type


def most_gpus(runs: BoolArray, d: IntArray, Y: IntArray) -> Packing:
    """K = max sum_ij d_j x_ij over all rounds x: at most one type per job, at most Y_i GPUs per type.

    Jobs of one kind are interchangeable, so they are counted. The widest gangs are packed first; if that leaves GPUs idle
    that may be of use, a whole-number program decides.
    """
    _, first, kind = np.unique(np.column_stack((d, runs)), axis=0, return_index=True, return_inverse=True)
    kind = kind.reshape(-1)  # j
    width, where = d[first], runs[first]  # kind  kind,i
    size = np.bincount(kind, minlength=len(first))  # kind
    reach = np.array([_reach(width[can], size[can], int(gpus)) for can, gpus in zip(where.T, Y, strict=True)], np.int64)
    most = min(int(reach.sum()), int((width * size)[where.any(axis=1)].sum()))
    count = _widest_first(where, width, size, reach)
    if int(width @ count.sum(axis=1)) < most:
        count = _by_program(where, width, size, reach, count)
    return Packing(int(width @ count.sum(axis=1)), reach, kind, count)


def counted_program(
    jobs: IntArray,
    types: IntArray,
    cost: FloatArray,
    d: IntArray,
    size: IntArray,
    Y: IntArray,
    K: int,
) -> LinearProgram:
    """The program of a round in which only the numbers of jobs by width and type have to be whole.

        min  sum cost x     s.t.  sum_i x_ji <= size_j,   sum_{j of width w} x_ji = n_wi,
                                  sum_w w n_wi <= Y_i,    sum_wi w n_wi >= K,      n whole

    One column x for each (job, type), then the n. For whole n, the rest is a transportation problem, whose vertices are
    whole, so that n are all the whole numbers that a solver has to look for.
    """
    widths, width_of = np.unique(d, return_inverse=True)
    cells, types_n, counts = len(cost), len(Y), len(widths) * len(Y)
    x, n = np.arange(cells), cells + np.arange(counts)
    width_n, type_n = np.repeat(widths, types_n), np.tile(np.arange(types_n), len(widths))
    linked = len(d) + width_of.reshape(-1)[jobs] * types_n + types  # x  the row that counts it
    first = len(d) + counts  # row of the first type
    start, index, value = columns_from_entries(
        row=np.concatenate(
            (jobs, linked, len(d) + np.arange(counts), first + type_n, np.full(counts, first + types_n))
        ),
        column=np.concatenate((x, x, n, n, n)),
        value=np.concatenate((np.ones(2 * cells), -np.ones(counts), width_n, width_n)).astype(np.float64),
        columns=cells + counts,
    )
    return LinearProgram(
        cost=np.concatenate((cost, np.zeros(counts))),
        low=np.zeros(cells + counts),
        high=np.concatenate((size[jobs], Y[type_n] // width_n)).astype(np.float64),
        row_low=np.concatenate((np.full(len(d), -np.inf), np.zeros(counts), np.full(types_n, -np.inf), [K])),
        row_high=np.concatenate((size, np.zeros(counts), Y, [np.inf])).astype(np.float64),
        start=start,
        index=index,
        value=value,
        whole=np.arange(cells + counts) >= cells,
    )


def _reach(width: IntArray, size: IntArray, gpus: int) -> int:
    """The largest sum of widths that is at most `gpus`, each width used up to `size` times. Bit r of `sums`: r is a sum."""
    sums, inside = 1, (1 << (gpus + 1)) - 1
    for w, many in zip(width.tolist(), size.tolist(), strict=True):
        part = 1
        while many > 0:  # 1, 2, 4, ... and a rest of the same width reach every number of them
            sums |= sums << (w * min(part, many)) & inside
            many, part = many - part, 2 * part
    return sums.bit_length() - 1


def _widest_first(where: BoolArray, width: IntArray, size: IntArray, reach: IntArray) -> IntArray:
    """kind,i  a packing: the widest jobs first, and of those the ones that run on the fewest types."""
    count = np.zeros(where.shape, dtype=np.int64)
    room = reach.tolist()
    for k in np.lexsort((where.sum(axis=1), -width)).tolist():
        left, w = int(size[k]), int(width[k])
        for i in np.flatnonzero(where[k]).tolist():
            taken = min(left, room[i] // w)
            count[k, i] = taken
            left -= taken
            room[i] -= taken * w
    return count


def _by_program(where: BoolArray, width: IntArray, size: IntArray, reach: IntArray, best: IntArray) -> IntArray:
    """kind,i  the packing of most GPUs; `best` if the solver finds none that is better."""
    kinds, types = np.nonzero(where)
    least = int(width @ best.sum(axis=1))
    program = counted_program(kinds, types, -width[kinds].astype(np.float64), width, size, reach, least)
    outcome = solve(program, Limit(nodes=NODES))
    if not isinstance(outcome, Optimal | TimeLimit) or outcome.x is None:
        return best
    count = np.zeros(where.shape, dtype=np.int64)
    count[kinds, types] = np.rint(whole_vertex(program, outcome.x)[: len(kinds)])
    return count


def whole_vertex(program: LinearProgram, x: FloatArray) -> FloatArray:
    """A whole solution with the whole numbers of x and at most its cost: x itself, or a vertex for these numbers."""
    if np.abs(x - np.rint(x)).max(initial=0.0) <= WHOLE:
        return np.asarray(np.rint(x))
    assert program.whole is not None
    low, high = np.where(program.whole, x, program.low), np.where(program.whole, x, program.high)
    outcome = solve(replace(program, low=low, high=high, whole=None))
    assert isinstance(outcome, Optimal), "x itself is a solution"
    return np.asarray(np.rint(outcome.x))
