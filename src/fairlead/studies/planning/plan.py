"""Which GPUs to buy or retire next: a search over simulated futures, then its result checked on other futures.

The search chooses with the futures of some seeds, and every number that is reported comes from other seeds: the best of
many plans would look better than it is on the futures that chose it. All plans share the futures of a seed, so they are
compared seed by seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fairlead.model.arrays import FloatArray
from fairlead.model.errors import FairleadError
from fairlead.numerics.paired import ALPHA, distinct_pairs, fewest_pairs, sign_flip_p
from fairlead.studies.planning.fleets import FleetPlan, Market
from fairlead.studies.planning.futures import FleetFigures, FutureTask, run_future
from fairlead.studies.planning.search import Found, search_plans
from fairlead.studies.planning.worth import mean_worth
from fairlead.studies.runs.process_pool import Outcome
from fairlead.studies.what_if.figures import Ranged

AS_IT_IS = FleetPlan()
ENOUGH_GAIN = 0.95  # of the best plan's gain: a cheaper plan with this much is as good
BETTER, WORSE, NOISE, IMPOSSIBLE = "better", "worse", "no difference beyond noise", "impossible"

Execute = Callable[
    [Callable[[FutureTask], FleetFigures], Iterable[FutureTask]], Iterator[Outcome[FutureTask, FleetFigures]]
]


@dataclass(frozen=True, slots=True)
class Goal:
    """What a plan should lower."""

    label: str
    unit: str
    read: Callable[[FleetFigures], float]


GOALS = {
    "jct": Goal("mean JCT", "s", lambda figures: figures.jct_s),
    "wait": Goal("mean wait", "s", lambda figures: figures.wait_s),
    "worst": Goal("slowdown of the worst tenant", "ratio", lambda figures: figures.worst_slowdown),
}


@dataclass(frozen=True)
class PlanRequest:
    market: Market
    goal: Goal
    seeds: int  # for the search, and as many others for the reported numbers
    retire: tuple[str, ...]  # types that may be retired
    task: Callable[[FleetPlan, int], FutureTask]
    lot: int | None = None


@dataclass(frozen=True)
class Compared:
    """A plan next to another one, seed by seed."""

    change: Ranged  # of the goal, as a part of the other plan's; negative is better
    verdict: str
    p: float


@dataclass(frozen=True)
class PlanRow:
    fleet: FleetPlan
    cost: float
    figures: Mapping[str, Ranged]  # jct_s, wait_s, utilisation, worst_slowdown
    worst_tenants: tuple[str, ...]  # over the seeds
    stranded: int  # jobs that could never run
    unfinished: float
    against_present: Compared | None  # None for the cluster as it is
    gain_per_cost: float | None  # saved job-hours of the goal, for one unit of the budget


@dataclass(frozen=True)
class PlanResult:
    """The result of planning, for the table and for programs."""

    rows: tuple[PlanRow, ...]
    best: FleetPlan  # of the search
    advised: FleetPlan  # the cheapest plan that is nearly as good, or the cluster as it is
    retiring: Mapping[FleetPlan, Compared]  # plans that retire a type, against the same plan without that
    worth: Mapping[str, tuple[float, float, float]]  # one more GPU of a type, in GPUs at full speed
    seeds: tuple[int, ...]  # of the reported numbers
    simulations: int
    jobs: float  # of a future, mean

    def row(self, fleet: FleetPlan) -> PlanRow:
        return next(row for row in self.rows if row.fleet == fleet)


def make_capacity_plan(
    request: PlanRequest, execute: Execute, tell: Callable[[int, int | None], None] | None = None
) -> PlanResult:
    """Search, check what was found on other seeds, and see what may then be retired.

    `tell` receives the number of finished simulations and of all of them, or None during the search, which decides step
    by step what to simulate next.
    """
    futures = _Futures(request, execute, tell)
    searched, reported = range(request.seeds), range(request.seeds, 2 * request.seeds)

    def evaluate(fleets: Sequence[FleetPlan]) -> dict[FleetPlan, float]:
        futures.run(fleets, searched)
        return {fleet: float(futures.goal(fleet, searched).mean()) for fleet in fleets}

    found = search_plans(request.market, evaluate, request.lot)
    bought = list(dict.fromkeys([*found.steps, found.best, *found.others]))
    futures.total = len(futures.done) + len(reported) * (1 + len(bought) + 2 * len(request.retire))  # at most
    futures.run([AS_IT_IS, *bought], reported)
    advised = _advised(request.market, futures, found, bought, reported)
    retiring = {
        FleetPlan(start.bought, (*start.retired, type_)): start
        for start in dict.fromkeys([AS_IT_IS, advised])
        for type_ in request.retire
        if type_ not in start.retired
    }
    futures.run(list(retiring), reported)
    fleets = dict.fromkeys([AS_IT_IS, *sorted(bought, key=request.market.cost), *retiring])
    base = [futures.done[AS_IT_IS, seed] for seed in reported]
    return PlanResult(
        rows=tuple(_row(request.market, futures, fleet, reported) for fleet in fleets),
        best=found.best,
        advised=advised,
        retiring={fleet: futures.compare(fleet, start, reported) for fleet, start in retiring.items()},
        worth=mean_worth([figures.worth for figures in base if figures.worth]),
        seeds=tuple(reported),
        simulations=len(futures.done),
        jobs=float(np.mean([figures.jobs for figures in base])),
    )


@dataclass
class _Futures:
    """Simulated futures, each once."""

    request: PlanRequest
    in_parallel: Execute
    tell: Callable[[int, int | None], None] | None
    done: dict[tuple[FleetPlan, int], FleetFigures] = field(default_factory=dict)
    total: int | None = None  # of all simulations, once the search has ended

    def run(self, fleets: Sequence[FleetPlan], seeds: Sequence[int]) -> None:
        wanted = dict.fromkeys((fleet, seed) for seed in seeds for fleet in fleets)
        tasks = [self.request.task(fleet, seed) for fleet, seed in wanted if (fleet, seed) not in self.done]
        for outcome in self.in_parallel(run_future, tasks):
            if outcome.result is None:
                raise FairleadError(f"a simulation ({outcome.task.fleet.name}) failed: {outcome.reason}")
            self.done[outcome.task.fleet, outcome.task.seed] = outcome.result
            if self.tell is not None:
                self.tell(len(self.done), self.total)

    def goal(self, fleet: FleetPlan, seeds: Sequence[int]) -> FloatArray:
        return np.array([self.request.goal.read(self.done[fleet, seed]) for seed in seeds])

    def compare(self, fleet: FleetPlan, other: FleetPlan, seeds: Sequence[int]) -> Compared:
        mine, theirs = self.goal(fleet, seeds), self.goal(other, seeds)
        if not np.isfinite(mine).all():
            return Compared(Ranged(np.inf, np.inf, np.inf), IMPOSSIBLE, 1.0)
        change = np.divide(mine - theirs, theirs, out=np.zeros_like(mine), where=theirs > 0)
        apart = distinct_pairs(theirs, mine)
        p = sign_flip_p((mine - theirs)[apart])
        verdict = (
            NOISE if p >= ALPHA or len(apart) < fewest_pairs() else BETTER if mine.mean() < theirs.mean() else WORSE
        )
        return Compared(Ranged(float(change.mean()), float(change.min()), float(change.max())), verdict, p)


def _advised(
    market: Market, futures: _Futures, found: Found, bought: Sequence[FleetPlan], seeds: Sequence[int]
) -> FleetPlan:
    """The cheapest plan that is better than the present beyond noise, and that has nearly the gain of the best one or is
    not worse than it beyond noise.
    """
    present, most = (float(futures.goal(fleet, seeds).mean()) for fleet in (AS_IT_IS, found.best))
    for fleet in sorted(bought, key=lambda one: (market.cost(one), one != found.best)):
        value = float(futures.goal(fleet, seeds).mean())
        enough = present - value >= ENOUGH_GAIN * (present - most)
        if futures.compare(fleet, AS_IT_IS, seeds).verdict == BETTER and (
            enough or futures.compare(fleet, found.best, seeds).verdict != WORSE
        ):
            return fleet
    return AS_IT_IS


def _row(market: Market, futures: _Futures, fleet: FleetPlan, seeds: Sequence[int]) -> PlanRow:
    own, base = ([futures.done[one, seed] for seed in seeds] for one in (fleet, AS_IT_IS))
    stranded = max(figures.stranded for figures in own)
    names = () if stranded else ("jct_s", "wait_s", "utilisation", "worst_slowdown")
    cost = market.cost(fleet)
    saved = sum(old.jobs * (old.jct_s - new.jct_s) for old, new in zip(base, own, strict=True)) / len(seeds) / 3600
    return PlanRow(
        fleet=fleet,
        cost=cost,
        figures={name: _ranged([getattr(figures, name) for figures in own]) for name in names},
        worst_tenants=tuple(dict.fromkeys(figures.worst_tenant for figures in own)),
        stranded=stranded,
        unfinished=float(np.mean([figures.unfinished for figures in own])),
        against_present=None if fleet == AS_IT_IS else futures.compare(fleet, AS_IT_IS, seeds),
        gain_per_cost=saved / cost if cost > 0 and not stranded else None,
    )


def _ranged(values: Sequence[float]) -> Ranged:
    return Ranged(float(np.mean(values)), min(values), max(values))
