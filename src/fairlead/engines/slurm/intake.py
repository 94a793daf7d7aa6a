"""Which jobs of a steered partition Fairlead takes over, and what their owners did to them since.

The jobs of the partition wait on hold. Each becomes a job of ours once nothing but Fairlead keeps it waiting. What Fairlead
cannot schedule (a job without GPUs, a heterogeneous one) is handed back to Slurm's own order. A job of ours that somebody
else releases, such as an administrator whose own hold is over, is taken back: it waits for its turn.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from fairlead.engines.requests import Command
from fairlead.engines.slurm.holds import HeldBy, holder
from fairlead.engines.slurm.job_requests import UNKNOWN_MODEL, NotARequest, Site, read_comment, read_request
from fairlead.engines.slurm.queue import JobStage, SlurmJob
from fairlead.model.jobs import JobSpec

_MISSED_POLLS = 3  # after which a job that Slurm does not show has left


@dataclass(frozen=True, slots=True)
class SteeredPartition:
    """The partition, and how the requests of its jobs are read."""

    name: str
    aliases: Mapping[str, str] = field(default_factory=dict)  # other spellings of GPU types
    models: Sequence[tuple[str, str]] = ()  # (pattern of job names, model)
    default_model: str = UNKNOWN_MODEL


@dataclass(frozen=True, slots=True)
class TakenOver:
    """One of our jobs that is a job of Slurm and not over."""

    job: str  # our id
    held: bool = False  # because of its owner or an administrator
    leaves: bool = False  # that it has left was noticed before
    has_lease: bool = False  # so that a look at the lease will show how it ended, however late


@dataclass(frozen=True, slots=True)
class Take:
    """Slurm's job becomes one of ours."""

    slurm_job: SlurmJob
    spec: JobSpec
    command: Command


@dataclass(frozen=True, slots=True)
class HoldBack:
    """The job waits, but nobody holds it: Slurm would start it."""

    slurm_job: SlurmJob


@dataclass(frozen=True, slots=True)
class TakeBack:
    """The job runs, but nobody here has started it."""

    slurm_job: SlurmJob


@dataclass(frozen=True, slots=True)
class HandBack:
    """Slurm schedules the job by itself, because we cannot."""

    slurm_job: SlurmJob
    reason: str


@dataclass(frozen=True, slots=True)
class Leave:
    """The job has left Slurm: it was cancelled, moved to another partition, or ended without our knowledge."""

    job: str
    ended: str = ""  # how it really ended if it ran without us, by Slurm


@dataclass(frozen=True, slots=True)
class PauseJob:
    """Its owner or an administrator wants the job to wait."""

    job: str


@dataclass(frozen=True, slots=True)
class ContinueJob:
    job: str


Step = Take | HoldBack | TakeBack | HandBack | Leave | PauseJob | ContinueJob


class Intake:
    """Compares looks at the partition with what is known. It remembers little: a new one is as good after some looks."""

    def __init__(self) -> None:
        self._missed: dict[str, int] = {}  # how often a job was missing
        self._waited: set[str] = set()  # jobs that were seen to wait
        self._loose: dict[str, int] = {}  # jobs without a lease that nothing holds or that run, with their restarts

    def steps(self, queue: Mapping[str, SlurmJob], known: Mapping[str, TakenOver], site: Site) -> Iterator[Step]:
        """What to do after a look. `queue` and `known` are by Slurm's id."""
        for job in sorted(queue.values(), key=_submission):
            if job.stage is JobStage.PENDING:
                ours = known.get(job.id)
                yield from _new(job, site) if ours is None else _waiting(job, ours)
        yield from self._take_back(queue, known)
        self._missed = {id_: looks for id_, looks in self._missed.items() if id_ in known}
        for id_, ours in known.items():
            if not ours.leaves and self._has_left(id_, ours, queue.get(id_)):
                yield Leave(ours.job, _end_without_us(queue.get(id_)))

    def _take_back(
        self, queue: Mapping[str, SlurmJob], known: Mapping[str, TakenOver]
    ) -> Iterator[HoldBack | TakeBack]:
        """Steps for jobs that somebody else has released, if two looks in a row show the same run of them.

        What is known is older than the queue, so that one look may show a start of ours. A job that ran before it was ever
        seen to wait, such as one that was released while no service ran, keeps running.
        """
        without = {
            id_: queue[id_] for id_, ours in known.items() if id_ in queue and not (ours.has_lease or ours.leaves)
        }
        loose = {id_: job for id_, job in without.items() if job.state == "RUNNING" or _would_start(job)}
        for id_, job in loose.items():
            if self._loose.get(id_) == job.restarts:
                if _would_start(job):
                    yield HoldBack(job)
                elif id_ in self._waited:
                    yield TakeBack(job)
        self._loose = {id_: job.restarts for id_, job in loose.items()}
        waiting = {id_ for id_, job in without.items() if job.stage is JobStage.PENDING}
        self._waited = waiting | (self._waited & known.keys())

    def _has_left(self, id_: str, ours: TakenOver, job: SlurmJob | None) -> bool:
        """Whether it was cancelled, or has been missing or over for some looks without a lease that explains it."""
        cancelled = job is not None and job.state == "CANCELLED"
        there = job is not None and job.stage in (JobStage.PENDING, JobStage.ACTIVE, JobStage.UNKNOWN)
        if there or (ours.has_lease and not cancelled):
            self._missed.pop(id_, None)
            return False
        self._missed[id_] = self._missed.get(id_, 0) + 1
        if not cancelled and self._missed[id_] < _MISSED_POLLS:
            return False
        del self._missed[id_]
        return True


def _submission(job: SlurmJob) -> tuple[str, list[int]]:
    """Orders jobs as they were submitted: `squeue` prints those of the same priority in an order of its own."""
    return job.submit, [int(number) for number in re.findall(r"\d+", job.id)]


def _end_without_us(job: SlurmJob | None) -> str:
    if job is None or job.state == "CANCELLED":
        return ""
    code = f" with exit code {job.exit_code}" if job.exit_code else ""
    return f"job {job.id} {job.state}{code}"


def _would_start(job: SlurmJob) -> bool:
    return job.stage is JobStage.PENDING and not job.held


def _new(job: SlurmJob, site: Site) -> Iterator[Step]:
    if holder(job) in (HeldBy.OWNER, HeldBy.ADMINISTRATOR) or job.waits_for_others:
        return
    request = read_request(job, site, 0.0)
    problem = request.reason if isinstance(request, NotARequest) else _uneven(job, request.spec)
    if isinstance(request, NotARequest) or problem:
        if job.held:
            yield HandBack(job, problem)
        return
    if not job.held:
        yield HoldBack(job)
    spec = replace(request.spec, nodes=request.spec.nodes or job.nodes)
    yield Take(job, spec, Command("", grace_s=read_comment(job.comment).grace_s, foreign=job.id))


def _uneven(job: SlurmJob, spec: JobSpec) -> str:
    return f"its {spec.gpus} GPUs are not equally many on {job.nodes} nodes" if spec.gpus % job.nodes else ""


def _waiting(job: SlurmJob, ours: TakenOver) -> Iterator[Step]:
    kept = holder(job) in (HeldBy.OWNER, HeldBy.ADMINISTRATOR)
    if kept and not ours.held:
        yield PauseJob(ours.job)
    elif not kept and ours.held:
        yield ContinueJob(ours.job)
