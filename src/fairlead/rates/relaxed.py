"""Relaxed synchronisation: the k tasks of a training round on GPUs of unequal speed (Hare, HPDC 2022).

Only the barrier at the end of a round counts, so a fast GPU may work through several tasks while a slow one does one, and
the gradients are those of k equal GPUs. A GPU's speed is given as the rate that the whole job would have on a gang of k
GPUs like it. Standard library only: a training script on a worker uses the same split.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heapreplace
from math import floor

_BELOW = 1.0 - 1e-9  # the quick start stays below the optimum whatever the last digits say


def split(k: int, rates: Sequence[float]) -> list[int]:
    """How many of the k tasks each GPU m runs, one after another.

        min max_m c_m / r_m     s.t.  sum_m c_m = k,   c_m >= 0 whole

    The i-th task of GPU m is done at i / r_m; the k earliest of all these times are taken, ties by the GPU with fewer
    tasks, then by the earlier one. A GPU with rate 0 gets nothing. All that are done by k / sum r belong to them, so only
    the last few are searched.
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
    """Rate under the best split of as many tasks as there are GPUs; `parts` are (rate, number) of equal GPUs.

    k equal GPUs have exactly the rate of their gang. 0 where no GPU can do anything.
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
