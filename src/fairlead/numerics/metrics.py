"""The metrics of a run: formulas on columns of jobs (j) and types (t). docs/metrics.md explains them in words."""

from __future__ import annotations

import heapq
import math

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray

Statistic = float | None  # None where there is no value; never NaN
SAME = 1e-9  # relative; values this close differ by rounding only


def spread_of(values: FloatArray, *names: str) -> dict[str, Statistic]:
    """The named statistics (mean, p50, p90, p99, max, total); None for all of them if there are no values."""
    return {name: _statistic(values, name) for name in names}


def _statistic(values: FloatArray, name: str) -> Statistic:
    if not len(values):
        return None
    if name in ("mean", "max"):
        return float(getattr(values, name)())
    if name == "total":
        return float(values.sum())
    return _percentile(values, float(name.removeprefix("p")))


def _percentile(values: FloatArray, percent: float) -> float:
    """The linear interpolation of np.percentile, without its import of masked arrays, which takes 0.01 s."""
    place = percent / 100 * (len(values) - 1)
    low, part = int(place), place - int(place)
    high = min(low + 1, len(values) - 1)
    ranked = np.partition(values, (low, high))
    a, b = float(ranked[low]), float(ranked[high])
    return a + (b - a) * part if part < 0.5 else b - (b - a) * (1 - part)


def share_at_most(values: FloatArray, bound: float) -> Statistic:
    """The part of the values that are at most the bound, or above it by rounding alone."""
    return float((values <= bound * (1 + SAME)).mean()) if len(values) else None


def recent(end_s: FloatArray, values: FloatArray, window_s: float) -> dict[str, Statistic]:
    """Mean over the jobs that ended within `window_s` before an end: for the last end, and the largest over all ends.

    Applied to latency ratios, this is Hops' recent average, which shows users how long jobs wait at present.
    """
    if not len(end_s):
        return {"last": None, "max": None}
    order = np.argsort(end_s, kind="stable")
    ends, total = end_s[order], np.concatenate(([0.0], np.cumsum(values[order])))
    first = np.searchsorted(ends, ends - window_s, side="right")
    until = np.arange(1, len(ends) + 1)
    means = (total[until] - total[first]) / (until - first)
    return {"last": float(means[-1]), "max": float(means.max())}


def isolated_rate(rate: FloatArray, width: IntArray, capacity: IntArray, crowd: FloatArray) -> FloatArray:
    """j  samples/s of a job on its private 1/n of every type that it can use, n = crowd.

    f_t = m_t / (n d), scaled so that sum_t f_t <= 1; rate = sum_t f_t theta_t. (Gavel's isolated share.)
    """
    usable = np.where(rate > 0, capacity, 0.0)  # j,t  GPUs
    scale = np.minimum(1.0 / (np.maximum(crowd, 1.0) * width), 1.0 / np.maximum(usable.sum(axis=1), 1.0))  # j
    return np.asarray((rate * usable).sum(axis=1) * scale)


def expected_run_s(samples: FloatArray, rate: FloatArray, capacity: IntArray) -> FloatArray:
    """j  run time without waiting, averaged over the types that a job can use by their GPU counts (Hops' "age")."""
    usable = np.where(rate > 0, capacity, 0.0)  # j,t
    seconds = np.divide(samples[:, None], rate, out=np.zeros_like(rate), where=rate > 0)
    return np.asarray((usable * seconds).sum(axis=1) / np.maximum(usable.sum(axis=1), 1.0))


def isolated_end_s(
    arrival_s: FloatArray, samples: FloatArray, rate: FloatArray, width: IntArray, capacity: IntArray
) -> FloatArray:
    """j  when each job would end if every active job ran on its isolated 1/n share; exact, computed event by event.

    A job's rate is A_j * min(1/(n d_j), 1/M_j) with A_j = sum_t theta_jt m_t and M_j the GPUs it can use, so jobs with
    the same (d, M) share one clock that runs at min(1/(n d), 1/M); a job ends when its clock has moved samples / A_j.
    """
    usable = np.where(rate > 0, capacity, 0.0)  # j,t
    strength = (rate * usable).sum(axis=1)  # j  A_j
    need = (samples / np.where(strength > 0, strength, 1.0)).tolist()  # j  in units of the clock
    kinds = list(zip(width.tolist(), usable.sum(axis=1).tolist(), strict=True))  # j  (d, M)
    clocks = {kind: c for c, kind in enumerate(sorted(set(kinds)))}
    shown = [0.0] * len(clocks)  # c  what each clock shows
    ends: list[list[tuple[float, int]]] = [[] for _ in clocks]  # c  heaps of what it shows when a job ends, and the job
    next_ends = [math.inf] * len(clocks)  # c  the first of them
    speeds = [[0.0] * len(clocks)]  # n,c
    end_s = np.full(len(need), np.nan)
    order = np.lexsort((np.arange(len(need)), arrival_s))[::-1]
    coming = list(zip(arrival_s[order].tolist(), order.tolist(), strict=True))  # the next job last
    now_s, active = 0.0, 0
    while coming or active:
        if active == len(speeds):
            speeds.append([min(1.0 / (active * d), 1.0 / max(gpus, 1.0)) for d, gpus in clocks])
        speed = speeds[active]
        waits = [(end - at) / v for end, at, v in zip(next_ends, shown, speed, strict=True)] if active else [math.inf]
        soonest_s = min(waits)
        wait_s = max(soonest_s, 0.0)
        next_s = coming[-1][0] if coming else math.inf
        is_end = active > 0 and now_s + wait_s <= next_s
        if not is_end:
            wait_s = next_s - now_s
        shown = [at + wait_s * v for at, v in zip(shown, speed, strict=True)]
        if is_end:
            now_s += wait_s
            c = waits.index(soonest_s)
            end_s[heapq.heappop(ends[c])[1]] = now_s
            active -= 1
        else:
            now_s, j = coming.pop()
            c = clocks[kinds[j]]
            heapq.heappush(ends[c], (shown[c] + need[j], j))
            active += 1
        next_ends[c] = ends[c][0][0] if ends[c] else math.inf
    return end_s


def jain(values: FloatArray) -> Statistic:
    """Jain's index: 1 if all values are equal, 1/n if one has everything."""
    squares = float((values**2).sum())
    return float(values.sum()) ** 2 / (len(values) * squares) if squares > 0 else None
