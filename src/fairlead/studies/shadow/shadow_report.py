"""Slurm next to policies on the same watched jobs: a comparison, and by team over time, job by job, and by fairness.

The row "as it was" has Slurm's own starts and ends. The others are simulated over the same arrivals and lengths, each
from an empty cluster at the first arrival.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from fairlead.model.arrays import NO_JOBS, FloatArray
from fairlead.model.decision import Cause, Decision
from fairlead.model.events import Arrived, Event
from fairlead.numerics.fairness import normalise
from fairlead.rounds.journal import Header
from fairlead.rounds.loop import Settings
from fairlead.rounds.records import Record
from fairlead.studies.compare.answer import ComparisonAnswer
from fairlead.studies.compare.as_it_was import NAME, as_it_was
from fairlead.studies.compare.cases import Case, run_case
from fairlead.studies.compare.compare import CaseOutcome, Comparison, Request, compare
from fairlead.studies.compare.run_records import RunRecord
from fairlead.studies.fairness.journal_audit import RunAudit, audit_records
from fairlead.studies.policy_lab.plugins import PolicyRef
from fairlead.studies.runs.process_pool import Outcome
from fairlead.studies.runs.simulate import Setup
from fairlead.studies.runs.timeline import Timeline
from fairlead.studies.shadow.window import WatchedWindow
from fairlead.traces.formats import Trace

KIND = "shadow/1"
HOUR_S = 3600.0
_MOST_SLICES = 1000
_ROUNDING_S = 1e-6  # of the times of jobs that did not wait
_FAIR = 0.99  # a sharing incentive above this is what a slice of its own would have been


@dataclass(frozen=True, slots=True)
class TeamHours:
    """One team in one slice of time under one alternative."""

    tenant: str
    from_s: float  # since 1970
    gpu_hours: float  # in units of speed: of the slowest type that the job can use
    waiting_hours: float  # of all its jobs together


@dataclass(frozen=True, slots=True)
class JobStarts:
    """When a job was submitted and when it started under each alternative, in seconds since 1970; None: it did not."""

    job: str
    tenant: str
    submitted_s: float
    starts: Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class ShadowReport:
    """The comparison, and what it does not have."""

    comparison: Comparison
    from_s: float
    until_s: float
    slice_s: float
    over_time: Mapping[str, Sequence[TeamHours]]  # by alternative
    starts: Sequence[JobStarts]
    audits: Mapping[str, RunAudit]

    @property
    def answer(self) -> ComparisonAnswer:
        return self.comparison.answer

    def to_json(self) -> dict[str, Any]:
        return {
            "fairlead": KIND,
            "from_s": self.from_s,
            "until_s": self.until_s,
            "slice_s": self.slice_s,
            "over_time": {name: [asdict(row) for row in rows] for name, rows in self.over_time.items()},
            "jobs": [asdict(row) for row in self.starts],
            "audits": {name: {**audit.to_json(), "verdicts": verdicts(audit)} for name, audit in self.audits.items()},
            "comparison": self.answer.to_json(),
        }


@dataclass(slots=True)
class _Kept:
    """A journal in memory, and the same as a timeline."""

    line: Timeline
    considers_at_once: bool = False  # the scheduler looks at a job when it arrives, and not only when it starts one
    records: list[Record] = field(default_factory=list)

    def event(self, event: Event) -> None:
        self.line.event(event)
        self.records.append(event)
        if self.considers_at_once and isinstance(event, Arrived):
            self.records.append(Decision(event.time_s, Cause.EVENT, NO_JOBS, NO_JOBS, (), math.inf, ""))

    def decision(self, decision: Decision) -> None:
        self.line.decision(decision)
        self.records.append(decision)


def report_window(
    window: WatchedWindow,
    policies: Sequence[PolicyRef],
    settings: Settings,
    restart_s: float | None = None,
    slice_s: float | None = None,
    tell: Callable[[int, int], None] | None = None,
) -> ShadowReport:
    """Simulate the policies on the jobs of the window, and put Slurm next to them."""
    no_policy: Any = None  # each run has its own
    empty = Trace((), window.trace.name, window.trace.format)
    setup = Setup(
        window.cluster,
        empty,
        window.profile,
        no_policy,
        settings,
        restart_s=restart_s,
        tenant_weight=window.tenant_weight,
    )
    request = Request(policies, [0], [None], lambda load, seed: window.trace, setup, skip_impossible=True)
    kept: dict[str, _Kept] = {}

    def run(case: Case) -> RunRecord:
        journal = _Kept(Timeline(case.setup.cluster))
        record = run_case(case, journal)
        kept[case.policy.load().name] = journal
        return record

    def execute(run: Callable[[Case], RunRecord], cases: Iterable[Case]) -> Iterator[CaseOutcome]:
        return (Outcome(case, run(case)) for case in cases)

    comparison = compare(request, execute, None, tell, run)
    past = _Kept(Timeline(window.cluster), considers_at_once=True)
    state = as_it_was(comparison.setup, past).state
    kept = {NAME: past, **kept}
    speed = normalise(state.best_rate[: state.jobs] / state.width[: state.jobs, None])  # j,t
    span_s = max(journal.line.now_s for journal in kept.values())
    step_s = slice_s or (86_400.0 if span_s > 3 * 86_400 else HOUR_S)
    step_s = max(step_s, span_s / _MOST_SLICES)
    slices = max(math.ceil(span_s / step_s), 1)
    edges_s = np.linspace(0.0, slices * step_s, slices + 1)
    header = _header(comparison.setup, policies[0])
    return ShadowReport(
        comparison=comparison,
        from_s=window.origin_s,
        until_s=window.until_s,
        slice_s=step_s,
        over_time={name: _over_time(one.line, speed, edges_s, window.origin_s) for name, one in kept.items()},
        starts=_starts(comparison.setup.trace, {name: one.line for name, one in kept.items()}, window.origin_s),
        audits={name: audit_records(header, one.records) for name, one in kept.items()},
    )


def _header(setup: Setup, policy: PolicyRef) -> Header:
    """A header with which records of any alternative can be folded."""
    return replace(setup, policy=policy.load()).header()


def verdicts(audit: RunAudit) -> dict[str, str]:
    """A sentence about each team that wanted more than it had at some time."""
    sentences = {}
    for name, tenant in audit.tenants.items():
        incentive = tenant.sharing_incentive
        if incentive is None:
            sentences[name] = "had all that it could use"
        elif incentive >= _FAIR:
            sentences[name] = (
                f"had {incentive:.2f} of its own slice while it wanted more ({tenant.wanted_more_h:.1f} h)"
            )
        else:
            envied = (
                f", and most of all envied {audit.envious[1]}" if audit.envious and audit.envious[0] == name else ""
            )
            sentences[name] = f"had only {incentive:.2f} of its slice for {tenant.wanted_more_h:.1f} h{envied}"
    return sentences


def _over_time(line: Timeline, speed: FloatArray, edges_s: FloatArray, origin_s: float) -> list[TeamHours]:
    """By team and slice: GPU-hours in units of speed, and hours that its jobs waited together."""
    stays, names = line.stays(), list(line.tenants)
    tenant_of = np.array(line.tenant_of, dtype=np.int64)  # j
    value = np.zeros((len(names), len(edges_s) - 1))  # u,k  GPU-seconds x speed
    waited = np.zeros_like(value)  # u,k  seconds
    for row in range(len(stays.job)):
        j = int(stays.job[row])
        inside_s = _inside(float(stays.start_s[row]), float(stays.end_s[row]), edges_s)
        value[tenant_of[j]] += inside_s * stays.gpus[row] * speed[j, stays.type[row]]
    for j, (arrival_s, end_s) in enumerate(zip(line.arrival_s, line.end_s, strict=True)):
        waited[tenant_of[j]] += _inside(arrival_s, min(end_s, line.now_s), edges_s)
    held = zip(stays.job.tolist(), stays.start_s.tolist(), stays.end_s.tolist(), strict=True)
    for j, start_s, end_s in set(held):  # once, on however many nodes
        waited[tenant_of[j]] -= _inside(start_s, end_s, edges_s)
    waited[waited < _ROUNDING_S] = 0.0
    return [
        TeamHours(name, origin_s + float(edges_s[k]), value[u, k] / HOUR_S, waited[u, k] / HOUR_S)
        for k in range(len(edges_s) - 1)
        for u, name in enumerate(names)
        if value[u, k] > 0 or waited[u, k] > 0
    ]


def _inside(start_s: float, end_s: float, edges_s: FloatArray) -> FloatArray:
    """k  Seconds of the interval in each slice."""
    return np.asarray(np.maximum(np.minimum(end_s, edges_s[1:]) - np.maximum(start_s, edges_s[:-1]), 0.0))


def _starts(trace: Trace, lines: Mapping[str, Timeline], origin_s: float) -> list[JobStarts]:
    first = {name: _first_starts(line) for name, line in lines.items()}
    return [
        JobStarts(
            job.id,
            job.tenant,
            origin_s + job.arrival_s,
            {name: None if j not in starts else origin_s + starts[j] for name, starts in first.items()},
        )
        for j, job in enumerate(trace.jobs)
    ]


def _first_starts(line: Timeline) -> dict[int, float]:
    starts: dict[int, float] = {}
    stays = line.stays()
    for j, start_s in zip(stays.job.tolist(), stays.start_s.tolist(), strict=True):
        starts[j] = min(start_s, starts.get(j, math.inf))
    return starts
