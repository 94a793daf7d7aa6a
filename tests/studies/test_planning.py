"""Capacity planning: what a GPU is worth, the search within a budget, and what the answer claims."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from building import THREE, job, profile, setup
from fairlead.model.cluster import Cluster, parse_short_form
from fairlead.model.errors import InputError
from fairlead.studies.planning.fleets import FleetPlan, Market, Offer, changed_cluster
from fairlead.studies.planning.futures import FleetFigures, FutureTask, resampled, run_future
from fairlead.studies.planning.plan import (
    AS_IT_IS,
    BETTER,
    GOALS,
    IMPOSSIBLE,
    NOISE,
    PlanRequest,
    PlanResult,
    make_capacity_plan,
)
from fairlead.studies.planning.search import search_plans
from fairlead.studies.planning.wording import plan_to_json, recommendation
from fairlead.studies.planning.worth import largest_value, worth_of_gpus
from fairlead.studies.runs.process_pool import Outcome
from fairlead.studies.runs.simulate import Setup
from fairlead.traces.formats import Trace

V100, K80 = Offer("v100", 2, 5.0), Offer("k80", 2, 2.0)


def busy(jobs: int = 24, gap_s: float = 100.0, **more: object) -> Setup:
    """Jobs that keep a small cluster more than busy; `fast` gains four times as much on a v100 as on a k80."""
    specs = [
        job(
            f"j{i}",
            1 + i % 2,
            800.0 + 130.0 * (i * 5 % 7),
            at=gap_s * i,
            model="fast" if i % 3 else "even",
            tenant="xy"[i % 2],
        )
        for i in range(jobs)
    ]
    return setup(specs, "v100:2x2,k80:2x2", "fifo", round_s=60.0, **more)  # type: ignore[arg-type]


def in_this_process(
    run: Callable[[FutureTask], FleetFigures], tasks: Iterable[FutureTask]
) -> Iterator[Outcome[FutureTask, FleetFigures]]:
    for task in tasks:
        yield Outcome(task, run(task))


def reference(cluster: Cluster, market: Market) -> Cluster:
    return changed_cluster(
        cluster, FleetPlan(tuple((offer, max(market.affordable(AS_IT_IS, offer), 1)) for offer in market.offers))
    )


def plan_of(made: Setup, market: Market, seeds: int = 6, retire: tuple[str, ...] = ()) -> PlanResult:
    types = reference(made.cluster, market)

    @cache
    def of_seed(seed: int) -> Setup:
        return replace(made, trace=resampled(made.trace, seed))

    request = PlanRequest(market, GOALS["jct"], seeds, retire, lambda f, s: FutureTask(f, s, types, setup=of_seed(s)))
    return make_capacity_plan(request, in_this_process)


# ---- what a GPU is worth ----


def test_a_gpu_is_worth_what_the_job_that_gets_it_gains() -> None:
    speed = np.array([[1.0, 0.25], [1.0, 1.0]])  # g,t  the second group is as fast on both types
    assert worth_of_gpus(speed, np.array([4.0, 4.0]), np.array([2.0, 2.0])) == pytest.approx([1.0, 1.0])
    # Once both groups have what they ask for, a faster GPU still helps the group that is on slow ones.
    assert worth_of_gpus(speed, np.array([4.0, 2.0]), np.array([2.0, 8.0])) == pytest.approx([0.75, 0.0])
    assert worth_of_gpus(speed, np.array([1.0, 1.0]), np.array([2.0, 2.0])) == pytest.approx([0.0, 0.0])


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_a_further_gpu_never_adds_more_than_the_one_before(data: st.DataObject) -> None:
    groups, types = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 3))
    part = st.sampled_from([0.0, 0.2, 0.5, 1.0])
    speed = np.array([[data.draw(part) for _ in range(types)] for _ in range(groups)])
    asked = np.array([float(data.draw(st.integers(0, 6))) for _ in range(groups)])
    capacity = np.array([float(data.draw(st.integers(0, 4))) for _ in range(types)])
    one = np.eye(types)[data.draw(st.integers(0, types - 1))]
    values = [largest_value(speed, asked, capacity + extra * one) for extra in range(4)]
    gains = [after - before for before, after in pairwise(values)]
    assert all(0 - 1e-7 <= gain <= 1 + 1e-7 for gain in gains)
    assert all(later <= earlier + 1e-7 for earlier, later in pairwise(gains))


# ---- futures ----


def test_a_resampled_trace_has_whole_blocks_of_the_trace() -> None:
    jobs = tuple(job(f"j{i}", at=50.0 + 40.0 * i) for i in range(81))  # eight blocks of 400 s
    trace = Trace(jobs, "t", "own")
    again = resampled(trace, 3).jobs
    assert resampled(trace, 3).jobs == again != resampled(trace, 4).jobs
    assert all(a.arrival_s <= b.arrival_s for a, b in pairwise(again))
    assert len({spec.id for spec in again}) == len(again)
    at = {spec.id.partition("~")[0]: spec.arrival_s for spec in jobs}
    offsets: dict[str, set[float]] = {}  # of each block, between its jobs' old and new times
    for spec in again:
        name, _, block = spec.id.partition("~")
        offsets.setdefault(block, set()).add(round(spec.arrival_s - at[name], 6))
    assert 1 < len(offsets) <= 8
    assert all(len(one) == 1 for one in offsets.values())


def test_growth_makes_jobs_arrive_more_often() -> None:
    trace = Trace(tuple(job(f"j{i}", at=40.0 * i) for i in range(81)), "t", "own")
    once, twice = resampled(trace, 0).jobs, resampled(trace, 0, 2.0).jobs
    assert [spec.arrival_s / 2 for spec in once] == pytest.approx([spec.arrival_s for spec in twice])


def test_a_fleet_without_a_type_that_jobs_need_strands_them() -> None:
    made = setup([job("a", model="v"), job("b", at=1.0)], "v100:2x2,k80:2x2")  # model v runs on v100 only
    task = FutureTask(FleetPlan(retired=("v100",)), 0, made.cluster, setup=made)
    assert run_future(task).stranded == 1


# ---- the search ----


def market_of(budget: float) -> Market:
    return Market((V100, K80), budget)


def all_fleets(market: Market, fleet: FleetPlan, offers: Sequence[Offer]) -> Iterator[FleetPlan]:
    """Every purchase within the budget, the empty one included."""
    if not offers:
        yield fleet
        return
    for count in range(market.affordable(fleet, offers[0]) + 1):
        yield from all_fleets(market, market.with_more(fleet, offers[0], count), offers[1:])


@pytest.mark.parametrize("budget", [5.0, 9.0, 12.0])
def test_the_search_is_as_good_as_trying_every_plan_in_a_small_case(budget: float) -> None:
    made, market = busy(), market_of(budget)
    types = reference(made.cluster, market)

    @cache
    def value(fleet: FleetPlan) -> float:
        return run_future(FutureTask(fleet, 0, types, setup=made)).jct_s

    def evaluate(fleets: Sequence[FleetPlan]) -> Mapping[FleetPlan, float]:
        return {fleet: value(fleet) for fleet in fleets}

    found = search_plans(market, evaluate, lot=1)
    everything = list(all_fleets(market, FleetPlan(), market.offers))
    assert all(market.cost(fleet) <= budget for fleet in everything)
    assert len(everything) == len(set(everything)) > 3
    gain = {fleet: value(AS_IT_IS) - value(fleet) for fleet in (found.best, *everything)}
    assert gain[found.best] >= 0.99 * max(gain.values()) > 0


def test_money_for_a_retired_type_buys_more() -> None:
    """A cluster whose k80s bring in the price of a v100 node, which makes up for them."""
    market = Market((V100,), 0.5, resale={"k80": 5.0})

    def evaluate(fleets: Sequence[FleetPlan]) -> dict[FleetPlan, float]:
        return {fleet: 10.0 - 3.0 * fleet.count(V100) + len(fleet.retired) for fleet in fleets}

    found = search_plans(market, evaluate)
    assert found.best == FleetPlan(((V100, 1),), ("k80",))
    assert market.cost(found.best) == 0.0


def test_a_budget_that_buys_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="the cheapest node is 2xk80 for 2; raise --budget"):
        market_of(1.0)


# ---- the answer ----


def test_a_plan_for_a_busy_cluster_is_beyond_noise_on_seeds_that_did_not_choose_it() -> None:
    market = market_of(7.0)
    result = plan_of(made := busy(), market, retire=("k80", "v100"))
    row = result.row(result.advised)
    assert row.against_present is not None
    assert row.against_present.verdict == BETTER
    assert row.against_present.change.high < 0
    assert result.seeds == tuple(range(6, 12))
    assert row.figures["jct_s"].mean < result.row(AS_IT_IS).figures["jct_s"].mean
    assert result.worth["v100"][0] > result.worth["k80"][0] > 0

    text = " ".join(recommendation(result, market, made.cluster, GOALS["jct"]))
    assert text.startswith("Buy 1x2xv100")
    assert "beyond noise" in text
    assert "retiring k80 (frees 1 node, 2 GPUs)" in text
    document = plan_to_json(result, market, made.cluster, GOALS["jct"])
    assert [plan["name"] for plan in document["plans"]] == [row.fleet.name for row in result.rows]


def test_where_nothing_waits_the_advice_is_to_buy_nothing() -> None:
    made = busy(gap_s=4000.0, speeds=profile({"fast": {"v100": 1.0, "k80": 1.0}, "even": {"v100": 1.0, "k80": 1.0}}))
    result = plan_of(made, market_of(7.0))
    assert result.advised == AS_IT_IS
    (text,) = recommendation(result, market_of(7.0), made.cluster, GOALS["jct"])
    assert text.startswith("Buy nothing")


def test_few_seeds_never_claim_a_difference() -> None:
    result = plan_of(made := busy(), market_of(7.0), seeds=3, retire=("k80",))
    assert result.advised == AS_IT_IS
    text = recommendation(result, market_of(7.0), made.cluster, GOALS["jct"])
    assert "fewer than 6 seeds can never show one" in text[0]
    assert {one.verdict for one in result.retiring.values()} == {NOISE}


def test_a_type_that_some_jobs_need_cannot_be_retired() -> None:
    specs = [job(f"j{i}", at=300.0 * i, model="v" if i % 2 else "even") for i in range(12)]
    made = setup(specs, parse_short_form("v100:2x2,k80:2x2"), "fifo", THREE, round_s=60.0)
    market = Market((K80,), 2.0)
    result = plan_of(made, market, retire=("v100",))
    assert {one.verdict for one in result.retiring.values()} == {IMPOSSIBLE}
    assert "could never run" in " ".join(recommendation(result, market, made.cluster, GOALS["jct"]))
