"""Start estimates against what happened: how often the range holds the start, on runs whose future is hidden.

A run is simulated to its end. At several of its times the state is taken, the lengths of all jobs that have not ended
are removed from it, and the waiting jobs get estimates; then the run itself shows when they started.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any

import numpy as np

from fairlead.model.cluster import Cluster
from fairlead.model.decision import Decision
from fairlead.model.events import Event, Started
from fairlead.policies import as_round_policy, find_round_policy
from fairlead.rates.profile import Profile
from fairlead.rounds.copying import copied
from fairlead.rounds.loop import Carried, Settings, When
from fairlead.rounds.records import Record
from fairlead.rounds.replay import carry
from fairlead.rounds.state import State
from fairlead.studies.compare.workloads import Workload, at_load
from fairlead.studies.runs.origin import service_origin
from fairlead.studies.runs.simulate import Setup, simulate, without_impossible
from fairlead.studies.what_if.estimates import HORIZON_S, StartRange, start_ranges
from fairlead.studies.what_if.learning import MOST_SCORES, holds, score_of, widened, widening_of
from fairlead.traces.formats import Trace

SAME_S = 1e-6
JOBS = 4  # waiting jobs that are compared at a time: those of one queue wait for the same ends
FROM, TO = 0.5, 0.95  # parts of the time of arrivals between which states are taken, while jobs wait
ROUND_S = 120.0
CLUSTER = "v100:4,p100:4,k80:4"
GENERATED = {"durations": "gavel", "arrivals": "bursty", "tenants": 4}


@dataclass(frozen=True, slots=True)
class CheckedStarts:
    """Estimates of one group of runs that were compared with what happened."""

    workload: str
    load: float
    policy: str
    runs: int  # in which jobs waited that could be compared
    estimates: int
    held: int  # the start was in the range
    early: int  # it was before the range
    late: int
    held_before: int  # how many the ranges of the futures held, before they were widened by what earlier ones showed
    open: int  # ranges without a latest time
    width_s: float  # median of the widths of the others
    wait_s: float  # median of the times until the start

    @property
    def part(self) -> float | None:
        return self.held / self.estimates if self.estimates else None

    def to_json(self) -> dict[str, Any]:
        names = (
            "workload",
            "load",
            "policy",
            "runs",
            "estimates",
            "held",
            "early",
            "late",
            "held_before",
            "open",
            "width_s",
            "wait_s",
            "part",
        )
        values = {name: getattr(self, name) for name in names}
        return {**values, "width_s": self.width_s if math.isfinite(self.width_s) else None}


@dataclass(frozen=True)
class Scale:
    jobs: int = 160
    seeds: tuple[int, ...] = tuple(range(1000, 1024))  # of traces that nothing was tuned on
    moments: int = 2
    loads: tuple[float, ...] = (0.7, 1.5)
    policies: tuple[str, ...] = ("fifo", "las", "oef-coop")


QUICK = Scale(jobs=80, seeds=(1000, 1001, 1002), moments=2, policies=("fifo", "las"))


def calibrate(
    cluster: Cluster,
    profile: Profile,
    workloads: Mapping[str, Workload],
    scale: Scale,
    tick: Callable[[int, int], None] | None = None,
) -> list[CheckedStarts]:
    cases = [(name, load, policy) for name in workloads for load in scale.loads for policy in scale.policies]
    answers: list[CheckedStarts] = []
    for number, (name, load, policy) in enumerate(cases):
        comparisons, runs = list[_Compared](), 0
        for seed in scale.seeds:  # a service that lives through one run after the other, and learns from them
            setup = _setup(cluster, profile, workloads[name], load, policy, seed)
            widening = widening_of([one.score for one in comparisons][-MOST_SCORES:])
            new = _compare(setup, scale.moments, widening)
            comparisons, runs = [*comparisons, *new], runs + bool(new)
        answers.append(_counted(name, load, policy, runs, comparisons))
        if tick is not None:
            tick(number + 1, len(cases))
    return answers


def windows(trace: Trace, profile: Profile, cluster: Cluster, jobs: int) -> Workload:
    """Consecutive parts of a long trace, one for each seed; for a load, its arrival times are scaled."""
    parts = max(len(trace.jobs) // jobs, 1)

    def build(load: float | None, seed: int) -> Trace:
        first = seed % parts * jobs
        chosen = trace.jobs[first : first + jobs]
        moved = tuple(replace(spec, arrival_s=spec.arrival_s - chosen[0].arrival_s) for spec in chosen)
        part = replace(trace, jobs=moved)
        return part if load is None else at_load(part, profile, cluster, load)

    return build


@dataclass(frozen=True, slots=True)
class _Compared:
    low_s: float
    high_s: float
    truth_s: float
    score: float = 0.0  # of the range of the futures
    held_before: bool = False


@dataclass
class _Tape:
    records: list[Record] = field(default_factory=list)

    def event(self, event: Event) -> None:
        self.records.append(event)

    def decision(self, decision: Decision) -> None:
        self.records.append(replace(decision, why=None))


def _setup(cluster: Cluster, profile: Profile, workload: Workload, load: float, policy: str, seed: int) -> Setup:
    settings = Settings(round_s=ROUND_S, when=When.EVENTS, min_run_s=ROUND_S)
    setup = Setup(cluster, workload(load, seed), profile, find_round_policy(policy), settings)
    return replace(setup, trace=without_impossible(setup, skip=True)[0])


def _compare(setup: Setup, moments: int, widening: float) -> list[_Compared]:
    tape = _Tape()
    simulate(setup, watch=tape)
    state, place, compared = _empty(setup), 0, list[_Compared]()
    carried = None
    for moment_s in _moments(setup, tape.records, moments):
        end = bisect_right(tape.records, moment_s, place, key=attrgetter("time_s"))
        _, _, carried = carry(tape.records[place:end], state, as_round_policy(setup.policy), setup.settings, carried)
        place = end
        state.pass_time(moment_s)
        compared += _compare_at(setup, state, carried, tape.records[place:], widening)
    return compared


def _moments(setup: Setup, records: Sequence[Record], count: int) -> list[float]:
    """Times at which jobs wait, evenly chosen from all such times between `FROM` and `TO`."""
    state, last_s, spans = _empty(setup), setup.trace.jobs[-1].arrival_s, list[tuple[float, float]]()
    for record in records:
        waits = state.active > state.running
        if waits and FROM * last_s <= state.now_s < record.time_s <= TO * last_s:
            spans.append((state.now_s, record.time_s))
        state.fold(record)
    lengths = np.array([end_s - start_s for start_s, end_s in spans])
    if not spans:
        return []
    passed, moments = np.cumsum(lengths), list[float]()
    for part in (np.arange(count) + 0.5) / count:
        span = int(np.searchsorted(passed, part * passed[-1]))
        moments.append(spans[span][1] - float(passed[span] - part * passed[-1]))
    return moments


def _empty(setup: Setup) -> State:
    return State(setup.cluster, setup.estimator(), setup.tenant_weight)


def _compare_at(
    setup: Setup, state: State, carried: Carried, later: Sequence[Record], widening: float
) -> list[_Compared]:
    origin = service_origin("calibration", setup.header(), _without_lengths(state))
    origin = replace(origin, carried=carried)  # as a service stores it
    starts_s: dict[int, float] = {}
    for record in later:
        if isinstance(record, Started):
            for j in record.jobs.tolist():
                starts_s.setdefault(j, record.time_s - state.now_s)
    ranges = start_ranges(origin).ranges
    jobs = [job for job in ranges if state.position[job] in starts_s]
    some = np.unique(np.linspace(0, len(jobs) - 1, JOBS).round().astype(int)).tolist() if jobs else []
    return [_compared(ranges[jobs[i]], starts_s[state.position[jobs[i]]], widening) for i in some]


def _compared(own: StartRange, truth_s: float, widening: float) -> _Compared:
    one = widened(own, widening)
    low_s, high_s = HORIZON_S if one.low_s is None else one.low_s, math.inf if one.high_s is None else one.high_s
    return _Compared(low_s, high_s, truth_s, score_of(own, truth_s), holds(own, truth_s, SAME_S))


def _without_lengths(state: State) -> State:
    """A copy of the state in which no job that has not ended declares a length."""
    own = copied(state)
    for j in own.active_jobs.tolist():
        own.specs[j] = replace(own.specs[j], steps=None)
        own.total[j] = math.nan
    own.queue.fixed = {}
    return own


def _counted(name: str, load: float, policy: str, runs: int, compared: Sequence[_Compared]) -> CheckedStarts:
    early = sum(one.truth_s < one.low_s - SAME_S for one in compared)
    late = sum(one.truth_s > one.high_s + SAME_S for one in compared)
    widths = [one.high_s - one.low_s for one in compared if math.isfinite(one.high_s)]
    return CheckedStarts(
        workload=name,
        load=load,
        policy=policy,
        runs=runs,
        estimates=len(compared),
        held=len(compared) - early - late,
        early=early,
        late=late,
        held_before=sum(one.held_before for one in compared),
        open=len(compared) - len(widths),
        width_s=float(np.median(widths)) if widths else math.inf,
        wait_s=float(np.median([one.truth_s for one in compared])) if compared else 0.0,
    )
