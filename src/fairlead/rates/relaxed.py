"""Relaxed synchronisation: the k tasks of a training round on GPUs of unequal speed (Hare, HPDC 2022).

Only the barrier at the end of a round matters, so a fast GPU may run several tasks while a slow one runs one, and the
gradients are the same as with k equal GPUs. A GPU's speed is stated as the rate that the whole job would have on a gang
of k such GPUs. Standard library only, because a training script on a worker uses the same split.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heapreplace
from math import floor

_BELOW = 1.0 - 1e-9  # keeps the initial split below the optimum despite rounding


def split(k: int, rates: Sequence[float]) -> list[int]:
    """The number of the k tasks that each GPU m runs, one after another.

        min max_m c_m / r_m     s.t.  sum_m c_m = k,   c_m >= 0 whole

    The i-th task of GPU m is done at i / r_m, and the k earliest of all these times are chosen; ties go to the GPU with
    fewer tasks, then to the earlier GPU. A GPU with rate 0 gets nothing. All tasks that are done by k / sum r are among
    the chosen ones, so only the last few are searched for.
    """
    total = sum(rates)
    if total <= 0:
        raise ValueError(f"{k} tasks have to run somewhere; wanted a GPU with a rate above 0")
    counts = [floor(k / total * rate * _BELOW) for rate in rates]
    heap = [((c + 1) / rate, c, m) for m, (c, rate) in enumerate(zip(counts, rates, strict=True)) if rate > 0]
    heapify(heap)
    for _ in range(k - sum(counts)):
        _, _, m = heap[0]
        counts[m] += 1
        heapreplace(heap, ((counts[m] + 1) / rates[m], counts[m], m))
    return counts


def mixed_rate(parts: Sequence[tuple[float, int]]) -> float:
    """The rate under the best split of one task per GPU; `parts` are (rate, number) of equal GPUs.

    k equal GPUs have exactly the rate of their gang. The rate is 0 if the job runs on none of the GPUs.
    """
    working = [(rate, gpus) for rate, gpus in parts if rate > 0 and gpus]
    k = sum(gpus for _, gpus in parts)
    total = sum(rate * gpus for rate, gpus in working)
    if total <= 0:
        return 0.0
    counts = [floor(k / total * rate * _BELOW) for rate, _ in working]
    left = k - sum(count * gpus for count, (_, gpus) in zip(counts, working, strict=True))
    heap = [((count + 1) / rate, i) for i, (count, (rate, _)) in enumerate(zip(counts, working, strict=True))]
    heapify(heap)
    last = 0
    while left > 0:
        last = heap[0][1]
        counts[last] += 1
        left -= working[last][1]
        heapreplace(heap, ((counts[last] + 1) / working[last][0], last))
    return working[last][0] / counts[last]
