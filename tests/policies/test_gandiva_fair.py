"""Gandiva_fair's trades in exact fractions: the buyer, the seller, the price, and the gains of both."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.policies.gandiva_fair import gandiva_fair


def test_two_tenants_trade_at_the_ratio_of_the_one_that_gains_less() -> None:
    """Four slow and four fast GPUs; a fast one is worth 3/2 slow ones to A and 5 to B. Each starts with two of both.

    B pays A's ratio, the second-highest of two: its 2 slow GPUs buy 4/3 fast ones. B has 10/3 fast: 50/3 instead of 12. A has
    2/3 fast and 4 slow: 5, as before.
    """
    shares = gandiva_fair(np.array([[1.0, 1.5], [1.0, 5.0]]), np.array([4.0, 4.0]), np.ones(2))

    assert shares == pytest.approx(np.array([[4.0, 2 / 3], [0.0, 10 / 3]]))


def test_the_price_of_three_is_the_second_highest_ratio() -> None:
    """Three of each type, one each; ratios 2, 3 and 6. The third tenant buys from the first at 3: its slow GPU buys 1/3.

    Then the second would buy at 3 what it values at 3, and pays its own ratio for a third of the first tenant's: 1 slow for 1/3
    fast. The first has 1/3 fast and all three slow GPUs: 11/3 instead of 3; the second 4/3 fast: 4, as before; the
    third 4/3 fast: 8 instead of 7.
    """
    W = np.array([[1.0, 2.0], [1.0, 3.0], [1.0, 6.0]])

    shares = gandiva_fair(W, np.array([3.0, 3.0]), np.ones(3))

    assert shares == pytest.approx(np.array([[3.0, 1 / 3], [0.0, 4 / 3], [0.0, 4 / 3]]))
    assert (W * shares).sum(axis=1) == pytest.approx([11 / 3, 4.0, 8.0])


def test_tickets_are_the_endowment() -> None:
    """A has three of four tickets: 3 slow and 3 fast against 1 and 1. B's slow GPU buys half a fast one at A's ratio of 2."""
    shares = gandiva_fair(np.array([[1.0, 2.0], [1.0, 4.0]]), np.array([4.0, 4.0]), np.array([3.0, 1.0]))

    assert shares == pytest.approx(np.array([[4.0, 2.5], [0.0, 1.5]]))


def traded(ratios: list[Fraction]) -> list[tuple[Fraction, Fraction]]:
    """(slow, fast) of each tenant, with one ticket and one GPU of both types per tenant, by the rule in exact fractions.

    As long as there are a buyer with slow GPUs and a seller with fast ones that values them less, the one with the highest
    ratio buys from the one with the lowest, at the second-highest ratio of all, or at the seller's own if that is more, or
    the buyer's own if that is less.
    """
    slow, fast = [Fraction(1)] * len(ratios), [Fraction(1)] * len(ratios)
    second = sorted(ratios)[-2]
    while True:
        buyers = [i for i in range(len(ratios)) if slow[i] > 0]
        sellers = [i for i in range(len(ratios)) if fast[i] > 0]
        if not buyers or not sellers:
            break
        buyer = min(buyers, key=lambda i: (-ratios[i], i))
        seller = min(sellers, key=lambda i: (ratios[i], i))
        if ratios[buyer] <= ratios[seller]:
            break
        price = min(max(second, ratios[seller]), ratios[buyer])
        bought = min(fast[seller], slow[buyer] / price)
        fast[buyer] += bought
        fast[seller] -= bought
        slow[buyer] -= bought * price
        slow[seller] += bought * price
    return list(zip(slow, fast, strict=True))


@settings(max_examples=60)
@given(st.lists(st.integers(2, 40), min_size=2, max_size=6, unique=True))
def test_trades_agree_with_the_rule_in_fractions_and_harm_no_tenant(eighths: list[int]) -> None:
    ratios = [Fraction(n, 8) + 1 for n in eighths]
    W = np.array([[1.0, float(ratio)] for ratio in ratios])

    shares = gandiva_fair(W, np.full(2, float(len(ratios))), np.ones(len(ratios)))

    assert shares == pytest.approx(np.array(traded(ratios), dtype=np.float64), abs=1e-9)
    assert ((W * shares).sum(axis=1) >= W.sum(axis=1) - 1e-9).all()
