"""The Gittins index of jobs whose length is only known as a distribution: how soon some of them are likely to end."""

from __future__ import annotations

import numpy as np

from fairlead.model.arrays import FloatArray

DOUBLINGS = 4  # made-up lengths of a job that has run for a: 2a, 4a, 8a, 16a
LEAST_S = 60.0  # a job that has just started counts as having run this long, where lengths are made up


def gittins_time(attained_s: FloatArray, lengths_s: FloatArray) -> FloatArray:
    """j  1 / G(a): the least expected work per completion of a job that has run for a, over all times D to stop at.

        1 / G(a) = min_D  E[ min(S - a, D) | S > a ] / P[ S - a <= D | S > a ]

    S is drawn from `lengths_s`, the lengths of jobs that have ended, and from a few made-up lengths, which are multiples
    of a itself. Serving the smallest 1 / G first minimises the mean completion time on one machine if lengths are drawn
    from that distribution (Gittins 1979). If S is one known number, 1 / G is what remains of it, which is shortest
    remaining time; if nothing has ended yet, only the multiples are left, 1 / G is proportional to a, and the order is
    least attained service.
    """
    a = attained_s[:, None]  # j,1
    made_up = np.maximum(a, LEAST_S) * 2.0 ** np.arange(1, DOUBLINGS + 1)  # j,s
    known = np.broadcast_to(lengths_s, (len(attained_s), len(lengths_s)))
    left = np.sort(np.where(known > a, known - a, np.inf), axis=1)  # j,s  inf: it has run longer than that
    left = np.sort(np.concatenate((left, made_up - a), axis=1), axis=1)
    alive = np.isfinite(left)
    count = alive.sum(axis=1, keepdims=True)  # j,1
    ended = np.arange(1, left.shape[1] + 1)  # s  jobs that end if all stop at `left`
    stop = np.where(alive, left, 0.0)
    work = np.cumsum(stop, axis=1) + (count - ended) * stop  # j,s
    return np.asarray(np.where(alive, work / ended, np.inf).min(axis=1, initial=np.inf))
