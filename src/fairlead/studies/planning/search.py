"""The search for purchases within a budget: greedy by gain for the money, with every step simulated again.

From each starting point (nothing retired, or one type that brings in money), the lot with the largest gain for its
money is bought, simulated gains decide, and the search starts again from the larger cluster until no lot is affordable
or none gains anything. Gangs that need several new nodes at once can mislead single steps, so the whole budget spent on
one type is simulated as well. The best of these is then improved by exchanges: a few nodes of one offer for as many of
another as their price buys, until no exchange helps. That finds what a cheap first step left no money for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fairlead.studies.planning.fleets import FleetPlan, Market

STEPS = 4  # lots of the cheapest offer that use up the budget, unless the size of a lot is given

# Fleets to the mean of the goal over futures; lower is better, infinite if jobs could never run.
Evaluate = Callable[[Sequence[FleetPlan]], Mapping[FleetPlan, float]]


@dataclass(frozen=True)
class Found:
    best: FleetPlan
    steps: tuple[FleetPlan, ...]  # the greedy purchases on the way, the smallest first; without `best`
    others: tuple[FleetPlan, ...]  # further plans that were compared with it: the whole budget on one type


def search_plans(market: Market, evaluate: Evaluate, lot: int | None = None) -> Found:
    """The best purchase that the search finds. `lot`: nodes that are bought in one step."""
    starts = [FleetPlan(), *(FleetPlan(retired=(type_,)) for type_, money in market.resale.items() if money > 0)]
    paths = [_greedy(start, market, evaluate, lot) for start in starts]
    single = [fleet for start in starts for fleet in _single_types(start, market)]
    candidates = list(dict.fromkeys([*(path[-1] for path in paths), *single]))
    value = evaluate(candidates)
    first = min(candidates, key=lambda fleet: (value[fleet], market.cost(fleet)))
    best = _exchanged(first, market, evaluate)
    path = next((path for path in paths if path[-1] == first), paths[0])
    steps = tuple(fleet for fleet in path if fleet not in (best, *starts))
    return Found(best, steps, tuple(fleet for fleet in candidates if fleet not in (best, *starts)))


def _greedy(start: FleetPlan, market: Market, evaluate: Evaluate, lot: int | None) -> list[FleetPlan]:
    """The start and the purchase after each step."""
    path = [start]
    while True:
        fleet = path[-1]
        moves = {
            market.with_more(fleet, offer, min(count, affordable)): None
            for offer in market.offers
            if (affordable := market.affordable(fleet, offer)) and (count := lot or _lot(market))
        }
        value = evaluate([fleet, *moves]) if moves else {}
        better = [move for move in moves if value[move] < value[fleet]]
        if not better:
            return path
        path.append(max(better, key=lambda move: _gain(value, market, fleet, move)))


def _exchanged(fleet: FleetPlan, market: Market, evaluate: Evaluate) -> FleetPlan:
    """The fleet after the best exchange, again and again while one helps."""
    while exchanges := _exchanges(fleet, market):
        value = evaluate([fleet, *exchanges])
        best = min(exchanges, key=lambda other: (value[other], market.cost(other)))
        if value[best] >= value[fleet]:
            break
        fleet = best
    return fleet


def _exchanges(fleet: FleetPlan, market: Market) -> list[FleetPlan]:
    """For each pair of offers: the fewest nodes of the one that pay for the other, and as many of that as is affordable."""
    found: dict[FleetPlan, None] = {}
    for given, held in fleet.bought:
        for wanted in market.offers:
            for count in range(1, held + 1) if wanted != given else ():
                rest = market.with_more(fleet, given, -count)
                if affordable := market.affordable(rest, wanted):
                    found[market.with_more(rest, wanted, affordable)] = None
                    break
    return list(found)


def _gain(value: Mapping[FleetPlan, float], market: Market, fleet: FleetPlan, move: FleetPlan) -> float:
    """Gain for the money of one step."""
    return (value[fleet] - value[move]) / (market.cost(move) - market.cost(fleet))


def _lot(market: Market) -> int:
    most = max(market.affordable(FleetPlan(), offer) for offer in market.offers)
    return max(most // STEPS, 1)


def _single_types(start: FleetPlan, market: Market) -> list[FleetPlan]:
    counts = {offer: market.affordable(start, offer) for offer in market.offers}
    return [market.with_more(start, offer, count) for offer, count in counts.items() if count]
