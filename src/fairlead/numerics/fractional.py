"""Fractional completion time: when the parts of a job are done on average, and a lower bound on it."""

from __future__ import annotations

import heapq
import math

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray


def fractional_bound(arrival_s: FloatArray, samples: FloatArray, rate: FloatArray, width: IntArray, gpus: int) -> float:
    """A lower bound on the sum over jobs of fractional completion times, the integral of (t - a_j) d(part done).

    It is the larger of two bounds. First, the fractional completion time of a job that is alone on its fastest type is
    half its run time. Second, a part p of a job takes at least p V_j GPU-seconds, V_j = min_t d_j W_j / theta_jt, so a
    single machine that does `gpus` GPU-seconds per second, without gangs or types, is at least as good as the cluster;
    on that machine it is optimal to run the job with the least V_j first.
    """
    with np.errstate(divide="ignore"):
        least_s = (samples[:, None] / rate).min(axis=1)  # j  alone on the fastest type
    return max(float(least_s.sum()) / 2, _pooled(arrival_s, least_s * width, gpus))


def _pooled(arrival_s: FloatArray, volume: FloatArray, gpus: int) -> float:
    """The second bound: highest density first on one machine, computed exactly, event by event."""
    order = np.argsort(arrival_s, kind="stable").tolist()
    left = volume.tolist()  # j  GPU-seconds
    waiting: list[tuple[float, int]] = []
    total, now_s = 0.0, 0.0
    for position, j in enumerate(order):
        now_s = max(now_s, float(arrival_s[j]))
        heapq.heappush(waiting, (float(volume[j]), j))
        until_s = float(arrival_s[order[position + 1]]) if position + 1 < len(order) else math.inf
        while waiting and now_s < until_s:
            first = waiting[0][1]
            run_s = min(left[first] / gpus, until_s - now_s)
            total += (now_s + run_s / 2 - float(arrival_s[first])) * run_s * gpus / float(volume[first])
            left[first] -= run_s * gpus
            now_s += run_s
            if now_s < until_s:
                heapq.heappop(waiting)
    return total
