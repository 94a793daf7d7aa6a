"""A few gangs on a few GPUs: the best of all ways to divide them, by dynamic programming."""

from __future__ import annotations

import math

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
    shifts = [_shifts(width, free.tolist(), row) for width, row in zip(d.tolist(), price.tolist(), strict=True)]
    able = [k for k, ways in enumerate(shifts) if ways]  # the others get no GPUs, whatever is left
    best = np.zeros((len(able) + 1, *(free + 1)))  # k,r
    for step, k in enumerate(able):
        before, after = best[step], best[step + 1]
        after[...] = before
        for _, cost, here, there in shifts[k]:
            np.minimum(after[here], before[there] + cost, out=after[here])
    type_of, left = np.full(len(d), NO_TYPE), tuple(free.tolist())
    for step, k in reversed(list(enumerate(able))):
        if best[(step + 1, *left)] == best[(step, *left)]:
            continue
        width = int(d[k])
        for i, cost, _, _ in shifts[k]:
            rest = (*left[:i], left[i] - width, *left[i + 1 :])
            if rest[i] >= 0 and best[(step + 1, *left)] == best[(step, *rest)] + cost:
                type_of[k], left = i, rest
                break
    return type_of


_Shift = tuple[int, float, tuple[slice, ...], tuple[slice, ...]]


def _shifts(d: int, free: list[int], price: list[float]) -> list[_Shift]:
    """Each type with room and a price for d more GPUs: the price, the entries of r that have them, and r without them."""
    shifts: list[_Shift] = []
    for i, (room, cost) in enumerate(zip(free, price, strict=True)):
        if room >= d and math.isfinite(cost):
            before, after = (slice(None),) * i, (slice(None),) * (len(free) - i - 1)
            shifts.append((i, cost, (*before, slice(d, None), *after), (*before, slice(None, -d), *after)))
    return shifts
