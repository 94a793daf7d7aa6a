"""A few gangs on a few GPUs: the best of all ways to divide them, by dynamic programming."""

from __future__ import annotations

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray

NO_TYPE = -1
TABLE = 400_000  # jobs x ways to divide the GPUs left for them: up to this many are enumerated, which takes 2-3 ms


def few_ways(jobs: int, free: IntArray) -> bool:
    """Whether the table of `best_division` is small enough to be cheap."""
    return jobs * int(np.prod(free + 1.0)) <= TABLE


def best_division(price: FloatArray, d: IntArray, free: IntArray) -> IntArray:
    """j  the type of each job or -1, of least total price; a price is by job and type, infinite where a job cannot run.

        best_k(r) = min{ best_k-1(r),  min_i best_k-1(r - d_k e_i) + price_ki },    best_0 = 0

    r are the GPUs of each type that the first k jobs may use. Ties go to no GPUs, then to the earlier type.
    """
    best = np.zeros((len(d) + 1, *(free + 1)))  # k,r
    for k in range(len(d)):
        best[k + 1] = best[k]
        for i, here, there in _shifts(int(d[k]), free, price[k]):
            np.minimum(best[k + 1][here], best[k][there] + price[k, i], out=best[k + 1][here])
    type_of, left = np.full(len(d), NO_TYPE), free.copy()
    for k in reversed(range(len(d))):
        if best[(k + 1, *left)] == best[(k, *left)]:
            continue
        for i, _, _ in _shifts(int(d[k]), left, price[k]):
            rest = left.copy()
            rest[i] -= d[k]
            if best[(k + 1, *left)] == best[(k, *rest)] + price[k, i]:
                type_of[k], left = i, rest
                break
    return type_of


def _shifts(d: int, free: IntArray, price: FloatArray) -> list[tuple[int, tuple[slice, ...], tuple[slice, ...]]]:
    """For each type with room and a price for d more GPUs: the entries of r that have them, and r without them."""
    shifts = []
    for i in np.flatnonzero((free >= d) & np.isfinite(price)).tolist():
        before, after = (slice(None),) * i, (slice(None),) * (len(free) - i - 1)
        shifts.append((i, (*before, slice(d, None), *after), (*before, slice(None, -d), *after)))
    return shifts
