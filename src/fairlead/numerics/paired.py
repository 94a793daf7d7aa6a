"""Paired tests of whether one policy is better than another, run for run, with hardly any assumptions."""

from __future__ import annotations

from itertools import product

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.numerics.metrics import SAME
from fairlead.numerics.random import stream

ALPHA = 0.05
EXACT_UP_TO = 14  # pairs: 16,384 sign patterns
DRAWS = 20_000


def sign_flip_p(difference: FloatArray) -> float:
    """Two-sided p-value of the paired permutation test on the mean difference (Fisher's randomisation test).

    If both did equally well, the sign of every difference could just as well have been the opposite. p is the fraction
    of all 2^n sign patterns whose mean is at least as far from 0 as the observed mean; with more than 14 pairs, of
    20,000 patterns drawn from a fixed seed. With n pairs p is at least 2 / 2^n, so fewer than six pairs can never yield
    p < 0.05.
    """
    d = np.asarray(difference, dtype=np.float64)
    if not len(d) or not d.any():
        return 1.0
    observed = abs(d.sum()) * (1 - SAME)
    if len(d) <= EXACT_UP_TO:
        patterns = np.array(list(product((1.0, -1.0), repeat=len(d))))
        return float((np.abs(patterns @ d) >= observed).mean())
    patterns = stream(0, "sign flips").choice((1.0, -1.0), (DRAWS, len(d)))
    return float((1 + (np.abs(patterns @ d) >= observed).sum()) / (1 + DRAWS))


def distinct_pairs(first: FloatArray, second: FloatArray) -> IntArray:
    """Positions of the pairs that do not repeat an earlier pair: the same outcome twice is one observation.

    A seed may draw something that neither policy looks at, such as the tenant of a job. Its outcomes are then copies,
    and six copies would count as six observations. Pairs whose numbers differ by rounding only are the same.
    """
    kept: list[int] = []
    for i in range(len(first)):
        same = np.abs(first[kept] - first[i]) <= SAME * abs(first[i])
        same &= np.abs(second[kept] - second[i]) <= SAME * abs(second[i])
        if not same.any():
            kept.append(i)
    return np.array(kept, dtype=np.int64)


def fewest_pairs(alpha: float = ALPHA) -> int:
    """The smallest number of pairs with which a difference, however large, can be significant."""
    pairs = 1
    while 2.0 ** (1 - pairs) >= alpha:
        pairs += 1
    return pairs
