"""Gandiva_fair: equal shares, then trades between tenants with different speedups (Chaudhary et al., EuroSys 2020).

Tenant l holds x_lj GPUs of type j, at first its weight's part of every type. For a pair of types (slow s, fast f) its
ratio is r_l = W_lf / W_ls. The tenant with the highest ratio that still holds slow GPUs buys fast ones from the tenant
with the lowest ratio that still holds any, and pays with slow ones at the second-highest ratio of all tenants.
"""

from __future__ import annotations

import numpy as np

from fairlead.model.allocation import Level
from fairlead.model.arrays import FloatArray
from fairlead.numerics.fairness import normalise
from fairlead.policies.policy import Promise, RoundPolicy
from fairlead.policies.ranges import Word
from fairlead.policies.tenants import SPLITS, by_tenants


def gandiva_fair(speedup: FloatArray, capacity: FloatArray, weight: FloatArray) -> FloatArray:
    """Shares l,j after all trades. No tenant does worse than with its equal share.

    Fast types are traded from the fastest down, each for slow ones from the slowest up; the speed of a type is its mean
    speedup over the tenants that can use it.

    Departs: the paper does not specify the order of trades, nor the second price after the first buyer. Here the price
    is the second-highest ratio over all tenants, limited to the range between the seller's and the buyer's own; ties are
    broken by position. A tenant that can use nothing does not take part.
    """
    W = normalise(speedup)
    m, w = np.asarray(capacity, dtype=np.float64), np.where(W.any(axis=1), weight, 0.0)
    x = np.outer(w / max(float(w.sum()), np.finfo(np.float64).tiny), m)  # l,j  GPUs
    users = np.count_nonzero(W, axis=0)
    slow_to_fast = np.argsort(W.sum(axis=0) / np.maximum(users, 1), kind="stable")
    for place in range(len(m) - 1, 0, -1):
        for slow in slow_to_fast[:place]:
            _trade(W, x, int(slow), int(slow_to_fast[place]))
    return x


def _trade(W: FloatArray, x: FloatArray, slow: int, fast: int) -> None:
    """Carry out all trades of one pair in place: buyers from the highest ratio down, sellers from the lowest up."""
    able = np.flatnonzero((W[:, slow] > 0) | (W[:, fast] > 0))
    if len(able) < 2:
        return
    ratio = np.divide(W[:, fast], W[:, slow], out=np.full(len(W), np.inf), where=W[:, slow] > 0)
    rising = able[np.argsort(ratio[able], kind="stable")]
    second = ratio[rising[-2]]
    if not np.isfinite(second):  # tenants that cannot use the slow type would pay any price, so others set it
        second = ratio[able][np.isfinite(ratio[able])].max(initial=0.0)
    buyers, sellers = able[np.argsort(-ratio[able], kind="stable")].tolist(), rising.tolist()
    ratios, slow_gpus, fast_gpus = ratio.tolist(), x[:, slow].tolist(), x[:, fast].tolist()  # l  as Python's own floats
    waiting, offering = iter(buyers), iter(sellers)
    buyer, seller = next(waiting), next(offering)
    usual, own, least = float(second), ratios[buyer], ratios[seller]
    while own > least:
        price = max(usual, least) if own > usual else own
        wanted, offered = slow_gpus[buyer] / price if price > 0 else np.inf, fast_gpus[seller]
        sold_out = offered < wanted
        bought, paid = (offered, offered * price) if sold_out else (wanted, slow_gpus[buyer])
        fast_gpus[buyer] += bought
        fast_gpus[seller] = offered - bought
        slow_gpus[buyer] -= paid
        slow_gpus[seller] += paid
        if sold_out:
            seller = next(offering, None)
            if seller is None:
                break
            least = ratios[seller]
        else:
            buyer = next(waiting, None)
            if buyer is None:
                break
            own = ratios[buyer]
    x[:, slow], x[:, fast] = slow_gpus, fast_gpus


def _divide(speedup: FloatArray, capacity: FloatArray, weight: FloatArray, _: None) -> tuple[FloatArray, str, None]:
    return gandiva_fair(speedup, capacity, weight), "", None


POLICY = RoundPolicy(
    name="gandiva-fair",
    summary="Every tenant gets its equal share of every type, then tenants with different speedups trade.",
    paper="Gandiva_fair (EuroSys 2020)",
    level=Level.SHARES,
    allocate=by_tenants(_divide),
    ranges={"split": Word(*SPLITS)},
    promises=frozenset({Promise.SHARING_INCENTIVE}),
)
