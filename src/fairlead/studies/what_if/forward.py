"""The future of a folded state: a simulation from it, what it says about each job, and its figures."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fairlead.model.decision import Decision
from fairlead.model.events import Event, PolicySet, Started
from fairlead.model.jobs import JobSpec
from fairlead.model.lifecycle import Phase
from fairlead.rounds.copying import copied
from fairlead.rounds.loop import Journal
from fairlead.rounds.state import State
from fairlead.sim.truth import World
from fairlead.studies.fairness.journal_audit import Auditor, RunAudit
from fairlead.studies.journals.worlds import world_of
from fairlead.studies.runs.from_state import check_rounds, simulate_from
from fairlead.studies.runs.origin import Origin
from fairlead.studies.runs.simulate import BothJournals, Result
from fairlead.studies.what_if.changes import Hypothetical, ScaleArrivals, apply_changes
from fairlead.studies.what_if.drawing import LaterJobs, drawn_lengths, later_jobs


@dataclass(frozen=True, slots=True)
class JobFuture:
    """When a job starts and ends; None: not in the time that was simulated."""

    tenant: str
    start_s: float | None  # its next start, or the present if it holds GPUs
    end_s: float | None
    waiting_s: float  # time without GPUs from the present until it ends, or until the simulation does


@dataclass(frozen=True)
class Future:
    """A simulated future. Times are those of the origin's clock."""

    now_s: float
    until_s: float  # the simulation ended here
    jobs: Mapping[str, JobFuture]  # those that are active now or arrive later
    later: LaterJobs
    before: State  # the state from which the simulation began, after the changes
    result: Result
    audit: RunAudit | None = None


def forward(
    origin: Origin,
    changes: tuple[Hypothetical, ...] = (),
    *,
    horizon_s: float | None = None,
    seed: int = 0,
    audit: bool = False,
    until_started: Collection[str] | None = None,
    world: World | None = None,
    journal: Journal | None = None,
    tick: Callable[[State], None] | None = None,
) -> Future:
    """Simulate from the origin, which does not change, after applying `changes` to a copy of it.

    Without changes this is what `simulate --from` does. A horizon limits the simulated time; without one it lasts until
    all jobs have ended, and a load (`ScaleArrivals`) then needs one. The seed draws what is not known: lengths that
    jobs do not declare, and later arrivals under a load. With `until_started` the simulation ends once all of these
    jobs hold GPUs or have held some.
    """
    check_rounds(origin.state)
    changed = apply_changes(origin, changes)
    start, state = changed.origin, changed.origin.state
    until_s = None if horizon_s is None else state.now_s + horizon_s
    later = LaterJobs(start.future)
    if changed.load is not None:
        assert until_s is not None, "arrivals at some rate never end"
        later = later_jobs(state, changed.load, until_s, seed)
    starts = _FirstStarts()
    awaited = (
        None if until_started is None else _Awaited(state, (*changed.submitted, *later.jobs), until_started, starts)
    )
    auditor = _Audited(Auditor(copied(state), start.policy.name, start.settings.round_s)) if audit else None
    result = simulate_from(
        state,
        start.policy,
        start.settings,
        world or origin.world(seed),
        future=(*changed.submitted, *later.jobs),
        lengths=drawn_lengths(state, {**start.true_steps, **later.true_steps}, seed, later.copies),
        carried=start.carried,
        news=(PolicySet(state.now_s, start.policy.name, start.policy.parameters),)
        if _change_the_present(changes)
        else (),
        faults_since_s=None if world_of(origin.header) is None else 0.0,
        until_s=until_s,
        is_enough=awaited,
        journal=journal,
        watch=starts if auditor is None else BothJournals(starts, auditor),
        tick=tick,
    )
    jobs = _jobs(state, result.state, starts.time_s)
    verdict = None if auditor is None else auditor.verdict(result.state.now_s)
    return Future(state.now_s, result.state.now_s, jobs, later, state, result, verdict)


def _change_the_present(changes: Sequence[Hypothetical]) -> bool:
    """Whether there is something to decide at once; another load changes only what arrives later."""
    return any(not isinstance(change, ScaleArrivals) for change in changes)


@dataclass
class _FirstStarts:
    """Remembers when each job first starts."""

    time_s: dict[int, float] = field(default_factory=dict)  # by position

    def event(self, event: Event) -> None:
        if isinstance(event, Started):
            for j in event.jobs.tolist():
                self.time_s.setdefault(j, event.time_s)

    def decision(self, decision: Decision) -> None:
        """A start counts when the engine confirms it."""


class _Awaited:
    """Whether all of some jobs have started."""

    def __init__(self, state: State, later: Sequence[JobSpec], jobs: Collection[str], starts: _FirstStarts) -> None:
        positions = {**state.position, **{spec.id: state.jobs + i for i, spec in enumerate(later)}}
        self._left = {positions[id_] for id_ in jobs if id_ in positions}
        self._left -= set(np.flatnonzero(state.held_gpus[: state.jobs] > 0).tolist())
        self._starts = starts

    def __call__(self) -> bool:
        self._left -= self._starts.time_s.keys()
        return not self._left


@dataclass
class _Audited:
    """Audits the records of a run."""

    auditor: Auditor

    def event(self, event: Event) -> None:
        self.auditor.fold(event)

    def decision(self, decision: Decision) -> None:
        self.auditor.fold(decision)

    def verdict(self, until_s: float) -> RunAudit:
        self.auditor.pass_time(until_s)
        return self.auditor.audit()


def _jobs(before: State, after: State, starts_s: Mapping[int, float]) -> dict[str, JobFuture]:
    """The jobs that were active, and those that arrived since. Positions are the same in both states."""
    present = before.active_jobs
    jobs = np.concatenate((present, np.arange(before.jobs, after.jobs)))
    ran_s = after.ran_at(jobs, after.now_s)
    ran_s[: len(present)] -= before.ran_at(present, before.now_s)
    end_s = np.where(after.phase[jobs] == Phase.FINISHED, after.end_s[jobs], np.nan)
    since_s = np.maximum(after.arrival_s[jobs], before.now_s)
    waiting_s = np.maximum(np.where(np.isnan(end_s), after.now_s, end_s) - since_s - ran_s, 0.0)
    held = set(present[before.held_gpus[present] > 0].tolist())
    futures: dict[str, JobFuture] = {}
    for j, ends_s, waits_s in zip(jobs.tolist(), end_s.tolist(), waiting_s.tolist(), strict=True):
        spec = after.specs[j]
        start_s = before.now_s if j in held else starts_s.get(j)
        futures[spec.id] = JobFuture(spec.tenant, start_s, None if np.isnan(ends_s) else ends_s, waits_s)
    return futures
