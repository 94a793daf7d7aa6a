"""What Slurm did with its jobs, drawn from one look at its queue after another.

A row is everything that is known about one job: what it asked for, and each of its runs with true times and nodes. Slurm
forgets ended jobs after minutes and changes the time of submission when a job is requeued, so that rows are kept here.
The functions are pure: known rows and a queue in, changed rows out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any

from fairlead.engines.slurm.job_requests import NotARequest, Site, read_request
from fairlead.engines.slurm.queue import JobStage, SlurmJob
from fairlead.model.errors import InputError
from fairlead.model.jobs import JobSpec
from fairlead.model.slurm_text import expand_hosts
from fairlead.rounds.records import spec_from_json

COMPLETED, CANCELLED = "COMPLETED", "CANCELLED"
REQUEUED, _COMPLETING = "REQUEUED", "COMPLETING"
FORGOTTEN = "FORGOTTEN"  # our word: it left Slurm's memory between two looks, so that nobody knows how it ended
# Reasons for which Slurm does not consider a job, in addition to a hold.
_NOT_ELIGIBLE = ("Dependency", "DependencyNeverSatisfied", "BeginTime", "JobArrayTaskLimit", "AssocMaxJobsLimit")


@dataclass(frozen=True, slots=True)
class WatchedRun:
    """One run of a job: from its start to its end, on these nodes. Times are seconds since 1970."""

    start_s: float
    hosts: tuple[str, ...]
    end_s: float | None = None  # None: it still runs
    ended: str = ""  # how, in Slurm's words


@dataclass(frozen=True, slots=True)
class WatchedJob:
    """One job as Slurm has treated it so far."""

    spec: JobSpec  # with the time of its first submission that was seen
    limit_s: float | None
    model_from: str
    name: str = ""
    user: str = ""
    partition: str = ""
    notes: tuple[str, ...] = ()
    runs: tuple[WatchedRun, ...] = ()
    held: str = ""  # why Slurm does not consider it, while it does not
    ended: str = ""  # the state in which it ended; empty: it has not
    end_s: float | None = None
    exit_code: int | None = None

    @property
    def running(self) -> WatchedRun | None:
        return self.runs[-1] if self.runs and self.runs[-1].end_s is None else None


def row_to_json(row: WatchedJob) -> dict[str, Any]:
    return asdict(row)


def row_from_json(record: Mapping[str, Any]) -> WatchedJob:
    runs = tuple(WatchedRun(**{**run, "hosts": tuple(run["hosts"])}) for run in record["runs"])
    values = {**record, "spec": spec_from_json(record["spec"]), "notes": tuple(record["notes"]), "runs": runs}
    return WatchedJob(**values)


@dataclass(frozen=True, slots=True)
class News:
    """What one look at the queue shows: rows that are new or have changed, and jobs that cannot be scheduled, with why."""

    changed: tuple[WatchedJob, ...]
    aside: Mapping[str, str]


def watch(known: Mapping[str, WatchedJob], queue: Iterable[SlurmJob], site: Site, last_s: float, now_s: float) -> News:
    """The news of a queue that was read at `now_s`, after one that was read at `last_s`."""
    changed: list[WatchedJob] = []
    aside: dict[str, str] = {}
    seen = set[str]()
    for job in queue:
        seen.add(job.id)
        before = known.get(job.id) or _first_sight(job, site, now_s)
        if isinstance(before, NotARequest):
            aside[job.id] = before.reason
            continue
        after = _followed(before, job, now_s)
        if after != known.get(job.id):
            changed.append(after)
    gone = (row for id_, row in known.items() if id_ not in seen and not row.ended)
    changed += [_forgotten(row, last_s) for row in gone]
    return News(tuple(changed), aside)


def _first_sight(job: SlurmJob, site: Site, now_s: float) -> WatchedJob | NotARequest:
    submit_s = min(time_s(job.submit) or now_s, now_s)
    reading = read_request(job, site, submit_s)
    if isinstance(reading, NotARequest):
        return reading
    again = ("it had been requeued before it was first seen",) if job.restarts else ()
    return WatchedJob(
        reading.spec,
        reading.limit_s,
        reading.model_from,
        job.name,
        job.user,
        job.partition,
        (*reading.notes, *again),
    )


def _followed(row: WatchedJob, job: SlurmJob, now_s: float) -> WatchedJob:
    """The row after one more look at its job. A state that is not known changes nothing.

    Neither does COMPLETING: a job that is being requeued shows it with the start of no run, and what follows is clear.
    """
    stage = job.stage
    passing = stage is JobStage.UNKNOWN or job.state == _COMPLETING
    if passing or (row.ended and stage in (JobStage.DONE, JobStage.LOST)):
        return row
    row = replace(row, limit_s=job.time_limit_s, held=_held(job) if stage is JobStage.PENDING else "")
    if stage is JobStage.PENDING:
        requeued_s = time_s(job.submit) or now_s
        return replace(row, runs=_closed(row.runs, requeued_s, REQUEUED), ended="", end_s=None, exit_code=None)
    hosts, start_s = hosts_of(job.node_list), time_s(job.start)
    if start_s is not None and hosts and not _has_run(row, start_s):
        # A run of which the end was not seen ended at the latest when the job was submitted again.
        runs = _closed(row.runs, min(time_s(job.submit) or start_s, start_s), REQUEUED)
        row = replace(row, runs=(*runs, WatchedRun(start_s, hosts)), ended="", end_s=None, exit_code=None)
    if stage is JobStage.ACTIVE:
        return row
    end_s = min(time_s(job.end) or now_s, now_s)
    runs = _closed(row.runs, end_s, job.state)
    return replace(row, runs=runs, ended=job.state, end_s=end_s, exit_code=job.exit_code)


def _has_run(row: WatchedJob, start_s: float) -> bool:
    return any(run.start_s == start_s for run in row.runs)


def _closed(runs: tuple[WatchedRun, ...], end_s: float, ended: str) -> tuple[WatchedRun, ...]:
    if not runs or runs[-1].end_s is not None:
        return runs
    return (*runs[:-1], replace(runs[-1], end_s=max(end_s, runs[-1].start_s), ended=ended))


def _forgotten(row: WatchedJob, last_s: float) -> WatchedJob:
    """The row of a job that the queue no longer shows; it existed at `last_s`."""
    end_s = max(last_s, row.spec.arrival_s)
    return replace(row, runs=_closed(row.runs, end_s, FORGOTTEN), held="", ended=FORGOTTEN, end_s=end_s)


def _held(job: SlurmJob) -> str:
    return job.reason or "JobHeldUser" if job.held or job.reason in _NOT_ELIGIBLE else ""


def time_s(text: str) -> float | None:
    """`2026-11-16T07:28:04`, in UTC, as seconds since 1970; None for anything else, such as N/A."""
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


def hosts_of(text: str) -> tuple[str, ...]:
    """The nodes of a list in Slurm's notation; empty if it is not understood."""
    try:
        return tuple(expand_hosts(text)) if text else ()
    except InputError:
        return ()
