"""Runs of policies that decide single tasks: the same journal, events and state as runs in rounds.

A GPU may switch between jobs every few seconds, so the journal does not record each task. At every round boundary it
records what each job holds on average until the next boundary and how much work it does; arrivals, first starts and ends
are recorded at their exact times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.assumptions import Assumption
from fairlead.model.errors import BrokenInvariantError, InputError
from fairlead.model.events import Arrived, Event, Finished, Served
from fairlead.model.jobs import JobSpec
from fairlead.model.tasks import Instance, Rule, Schedule, completions_s, round_nodes, row_parts, row_sync_s
from fairlead.policies.policy import Knows, TaskPolicy
from fairlead.rates.estimator import Estimator
from fairlead.rounds.loop import Journal, Run, Settings, Switching, boundaries
from fairlead.rounds.state import State
from fairlead.sim.tasks.jobs import TaskJobs, as_tasks
from fairlead.sim.tasks.planning import plan_for
from fairlead.sim.tasks.schedules import best_of
from fairlead.sim.truth import Truth, World

_FINISHED, _ARRIVED, _SERVED = range(3)  # the order of events at the same instant


def run_tasks(
    truth: Truth,
    believed: Estimator,
    policy: TaskPolicy,
    settings: Settings,
    state: State,
    journal: Journal,
    tick: Callable[[State], None] | None = None,
) -> Run:
    """Run until all jobs are done. Decisions are part of the simulation here, so they are not timed."""
    check_world(policy, truth.world)
    result = Run()
    if not truth.jobs:
        return result
    jobs = as_tasks(truth, believed, settings)
    schedule = dispatch(jobs, policy)
    result.notes.append(_note(jobs, schedule))
    result.assumed = assumptions(truth.jobs, settings)
    for event in events_of(jobs, schedule, truth.declared(), truth.total, settings.round_s):
        if state.active:
            result.rounds += boundaries(state.now_s, event.time_s, settings.round_s)
        journal.event(event)
        state.fold(event)
        if tick is not None and isinstance(event, Served):
            tick(state)
    return result


def check_world(policy: TaskPolicy, world: World) -> None:
    """Refuse a world that this simulator does not have."""
    if world.mtbf_s:
        raise InputError(
            f"policy {policy.name} decides single tasks, and that simulator has no failing nodes; leave out --mtbf"
        )
    if world.declared_speeds:
        raise InputError(
            f"policy {policy.name} decides single tasks, and that simulator measures no speeds; leave out --declared-speeds"
        )
    if world.job_server_factor != (1.0, 1.0):
        raise InputError(
            f"policy {policy.name} decides single tasks, and in that simulator servers are equally fast for all jobs; "
            "leave out --job-server-factors"
        )
    if world.start_s or world.notice_s:
        raise InputError(
            f"policy {policy.name} decides single tasks, and that simulator has no latencies; "
            "leave out --start-cost and --notice"
        )


def assumptions(jobs: Sequence[JobSpec], settings: Settings) -> tuple[Assumption, ...]:
    """The rules of single tasks that runs in rounds do not have."""
    wide = [spec for spec in jobs if spec.gpus > 1]
    assumed = [
        Assumption("single tasks", "GPUs are handed out whenever a task ends, not at rounds"),
        *([Assumption("overlap", "a GPU works for another job while gradients are exchanged")] if wide else []),
    ]
    if any(not spec.relaxed for spec in wide):
        assumed.append(Assumption("all relaxed", "every job may use GPUs of several types at once, declared or not"))
    if any(spec.nodes for spec in wide):
        assumed.append(
            Assumption("any nodes", "tasks run on whatever nodes are free, also where their number is fixed")
        )
    if settings.switching is Switching.FAST:
        cost = f"{settings.task_switch:.0%} of a task"
        assumed.append(Assumption("fast switching", f"a GPU that changes to another job pays {cost}, not a restart"))
    if settings.pre_emption.are_set:
        assumed.append(Assumption("no limit on pre-emption", "GPUs change hands with every task, whatever that costs"))
    return tuple(assumed)


def _note(jobs: TaskJobs, schedule: Schedule) -> str:
    """The duration of tasks, which lengths of rounds and restart costs determine, and how much switching costs."""
    low_s, high_s = float(jobs.task_s.min()), float(jobs.task_s.max())
    long = f"{low_s:.0f} s" if high_s - low_s < 1.0 else f"{low_s:.0f} to {high_s:.0f} s"
    apart = float((round_nodes(jobs.true, schedule) > 1).mean())
    return (
        f"single tasks of about {long} on a job's fastest type, {len(schedule):,} in all; "
        f"{apart:.0%} of them in rounds that ran on several nodes"
    )


def dispatch(jobs: TaskJobs, policy: TaskPolicy) -> Schedule:
    """Ask the policy, which sees what it declares to know, and run its plan in the true world."""
    believed = jobs.believed
    plan = plan_for(policy, believed)
    candidates = [(name, _with_costs(candidate, believed)) for name, candidate in plan.candidates]
    if len(candidates) > 1:
        if not {Knows.LENGTHS, Knows.ARRIVALS} <= policy.knows:
            raise BrokenInvariantError(f"policy {policy.name} tries several plans and does not know all jobs")
        best, _ = best_of(believed, candidates)
        candidates = [(name, candidate) for name, candidate in candidates if name == best]
    fitted = [(name, _fitted(candidate, believed.rounds, jobs.true.rounds)) for name, candidate in candidates]
    return best_of(jobs.true, fitted, jobs.pace)[1]


def events_of(
    jobs: TaskJobs, schedule: Schedule, specs: list[JobSpec], total: list[float], round_s: float
) -> Iterator[Event]:
    """The events of a schedule, in order of time."""
    segments = _segments(jobs, schedule, round_s)
    N = len(specs)
    times_s = np.concatenate((segments.end_s, jobs.true.arrival_s, segments.start_s))
    kind = np.repeat((_FINISHED, _ARRIVED, _SERVED), (N, N, len(segments.start_s)))
    which = np.concatenate((np.arange(N), np.arange(N), np.arange(len(segments.start_s))))
    order = np.lexsort((which, kind, times_s))
    new = np.flatnonzero((np.diff(times_s[order]) > 0) | (np.diff(kind[order]) != 0)) + 1
    samples = np.array(total)
    for rows in np.split(order, new):
        now_s, these = float(times_s[rows[0]]), which[rows]
        if kind[rows[0]] == _FINISHED:
            yield Finished(now_s, these, samples[these])
        elif kind[rows[0]] == _ARRIVED:
            for n in these.tolist():
                yield Arrived(now_s, specs[n])
        else:
            yield segments.served(now_s, these)


@dataclass(frozen=True, slots=True, eq=False)
class _Segments:
    """One row for every job and scheduling round in which it is served."""

    job: IntArray
    start_s: FloatArray
    samples: FloatArray  # done before
    rate: FloatArray
    part: FloatArray
    gpus: FloatArray  # rows,t
    end_s: FloatArray  # n  when jobs end

    def served(self, now_s: float, rows: IntArray) -> Served:
        return Served(now_s, self.job[rows], self.samples[rows], self.rate[rows], self.part[rows], self.gpus[rows])


def _segments(jobs: TaskJobs, schedule: Schedule, round_s: float) -> _Segments:
    from fairlead.sim.tasks import kernel  # numba is slow to import; only this simulator needs it

    instance = jobs.true
    order = np.argsort(schedule.start_s, kind="stable")
    n, type_of_row, start_s = schedule.job[order], instance.type_of[schedule.gpu[order]], schedule.start_s[order]
    parts = row_parts(instance, schedule)[order]
    first_s = np.full(instance.jobs, np.inf)
    np.minimum.at(first_s, n, start_s)
    # A job can be so short that its start and end round to the same time.
    end_s = np.maximum(completions_s(instance, schedule), np.nextafter(first_s, np.inf))
    first, last = np.floor(first_s / round_s).astype(np.int64), np.floor(end_s / round_s).astype(np.int64)
    count = last - first + 1
    begin = np.cumsum(count) - count
    job = np.repeat(np.arange(instance.jobs), count)
    slice_ = np.arange(len(job)) - begin[job] + first[job]
    from_s, until_s = np.maximum(first_s[job], slice_ * round_s), np.minimum(end_s[job], (slice_ + 1) * round_s)
    gpu_s, served_s, done, before = kernel.spread(
        n,
        type_of_row,
        start_s,
        np.maximum(schedule.end_s[order], np.nextafter(start_s, np.inf)),
        schedule.end_s[order] + row_sync_s(instance, schedule)[order],
        jobs.samples[n] * parts,
        begin,
        first,
        len(job),
        len(instance.known.gpus),
        round_s,
    )
    real = np.flatnonzero(until_s > from_s)  # a job that ends at a boundary has an empty segment after it
    long_s = (until_s - from_s)[real]
    return _Segments(
        job=job[real],
        start_s=from_s[real],
        samples=before[real],
        rate=done[real] / long_s,
        part=np.minimum(served_s[real] / long_s, 1.0),
        gpus=gpu_s[real] / long_s[:, None],
        end_s=end_s,
    )


def _with_costs(candidate: Rule | IntArray, believed: Instance) -> Rule | IntArray:
    """A rule without costs of its own uses the task times that can be known."""
    if isinstance(candidate, Rule) and candidate.cost_s is None:
        return replace(candidate, cost_s=believed.known.task_s)
    return candidate


def _fitted(candidate: Rule | IntArray, planned: IntArray, true: IntArray) -> Rule | IntArray:
    """A plan for the `planned` rounds (n) of each job, adapted to the `true` ones: rounds that were not planned go last."""
    if np.array_equal(planned, true):
        return candidate
    begin = np.cumsum(planned) - planned
    if isinstance(candidate, Rule):
        if not len(candidate.by_round):
            return candidate
        job = np.repeat(np.arange(len(true)), true)
        place = np.arange(len(job)) - np.repeat(np.cumsum(true) - true, true)
        return replace(candidate, by_round=candidate.by_round[begin[job] + np.minimum(place, planned[job] - 1)])
    by_job = np.argsort(candidate, kind="stable")
    mention = np.empty(len(candidate), dtype=np.int64)
    mention[by_job] = np.arange(len(candidate)) - np.repeat(begin, planned)
    more = np.repeat(np.arange(len(true)), np.maximum(true - planned, 0))
    return np.concatenate((candidate[mention < true[candidate]], more))
