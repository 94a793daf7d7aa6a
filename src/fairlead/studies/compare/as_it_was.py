"""What another scheduler did with the jobs of a trace, as one more row of a comparison.

Nothing is simulated: the jobs start and end when and where they did, and the same code as for every run computes the
numbers. Speeds and lengths are those that the other rows assume, because the trace has none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from fairlead.model import events as ev
from fairlead.model.allocation import Spot
from fairlead.model.arrays import NO_JOBS
from fairlead.model.assumptions import Assumption
from fairlead.model.cluster import Cluster
from fairlead.model.decision import Cause, Decision
from fairlead.model.jobs import JobSpec
from fairlead.model.past import Past
from fairlead.model.words import counted
from fairlead.rounds.loop import Journal
from fairlead.rounds.state import State
from fairlead.studies.runs.simulate import BothJournals, Setup
from fairlead.studies.runs.timeline import Timeline

NAME = "as it was"
ASSUMED = Assumption(NAME, "starts, ends and nodes are those of the trace; its scheduler may have had other rules")


@dataclass(frozen=True, slots=True)
class PastRun:
    """The folded state after the last job, the same as a timeline, and what the trace does not show."""

    state: State
    line: Timeline
    notes: tuple[str, ...]


def has_past(setup: Setup) -> bool:
    return any(past.waited_s is not None and past.hosts for past in setup.trace.past.values())


def as_it_was(setup: Setup, watch: Journal | None = None) -> PastRun:
    """Fold what happened. A job without a start or known nodes, or on GPUs that others held, arrives and never runs.

    `watch` receives the same records as a journal would.
    """
    state = State(setup.cluster, setup.estimator(), setup.tenant_weight)
    line = Timeline(setup.cluster)
    journal = line if watch is None else BothJournals(line, watch)
    stays = {job.id: _stay(job, setup.trace.past.get(job.id), setup.cluster) for job in setup.trace.jobs}
    overlapping = 0
    for time_s, what, job in sorted(_moments(setup.trace.jobs, setup.trace.past, stays), key=lambda one: one[:2]):
        if what == _ARRIVES:
            _fold(state, journal, ev.Arrived(time_s, job))
            continue
        j = state.position[job.id]
        if what == _STARTS:
            spot = stays[job.id]
            if any(state.node_free[node] < gpus for node, gpus in spot):
                overlapping += 1
                continue
            decision = Decision(time_s, Cause.ROUND, NO_JOBS, np.array([j]), (spot,), math.inf, "")
            journal.decision(decision)
            state.fold(decision)
            rate = float(state.total[j]) / (setup.trace.past[job.id].ran_s or 1.0)
            started = ev.Started(time_s, np.array([j]), np.array([rate]), np.array([time_s]), measured=False)
            _fold(state, journal, started)
        elif state.held_gpus[j]:
            _fold(state, journal, ev.Finished(time_s, np.array([j]), np.array([state.total[j]])))
    return PastRun(state, line, _notes(stays, overlapping))


_ENDS, _ARRIVES, _STARTS = 0, 1, 2  # at one instant, in this order: Slurm's times are whole seconds


def _moments(
    jobs: tuple[JobSpec, ...], past: Mapping[str, Past], stays: Mapping[str, Spot]
) -> Iterator[tuple[float, int, JobSpec]]:
    for job in jobs:
        yield job.arrival_s, _ARRIVES, job
        if stays[job.id]:
            begin_s = job.arrival_s + (past[job.id].waited_s or 0.0)
            yield begin_s, _STARTS, job
            yield begin_s + (past[job.id].ran_s or 0.0), _ENDS, job


def _stay(job: JobSpec, past: Past | None, cluster: Cluster) -> Spot:
    """The job's GPUs by node, spread evenly; empty if it has no start, or nodes that the cluster does not have."""
    if past is None or past.waited_s is None or not past.ran_s or not past.hosts:
        return ()
    known = [cluster.nodes.index(host) for host in past.hosts if host in cluster.nodes]
    if len(known) < len(past.hosts) or len(known) > job.gpus:
        return ()
    each, more = divmod(job.gpus, len(known))
    return tuple(sorted((node, each + (number < more)) for number, node in enumerate(known)))


def _fold(state: State, journal: Journal, event: ev.Event) -> None:
    journal.event(event)
    state.fold(event)


def _notes(stays: Mapping[str, Spot], overlapping: int) -> tuple[str, ...]:
    unplaced = sum(not spot for spot in stays.values())
    notes = []
    if unplaced:
        notes.append(f"{NAME}: {counted(unplaced, 'job')} without a start or on nodes that the cluster does not have")
    if overlapping:
        notes.append(f"{NAME}: {counted(overlapping, 'job')} on GPUs that other jobs held at the time")
    return tuple(notes)
