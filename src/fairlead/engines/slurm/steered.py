"""What a job of a user shows about a lease of it. Steering starts one job again and again, so that a run of it is a lease.

    released, RestartCnt = r      the lease waits in Slurm's queue, or runs
    held, RestartCnt > r          the run is over and Slurm has requeued the job: after exit code 85, or because we asked
    COMPLETED, FAILED and so on   the job is over, and with it the lease

Slurm counts a restart when it requeues a job, so the number distinguishes the runs of a job. A job that is requeued by
somebody else would start again by itself: it is taken back, and its lease is over once it waits on hold.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from fairlead.engines.leases import Condition, Sight
from fairlead.engines.slurm.queue import JobStage, SlurmJob
from fairlead.model.handshake import CHECKPOINTED

_SIGNALLED = frozenset(128 + signal for signal in (9, 10, 12, 15))  # KILL, USR1, USR2, TERM: what ends a plain script
_SPECIAL_EXIT = "SPECIAL_EXIT"
_OUT_OF_MEMORY = 137


class Correction(Enum):
    """What must be done about a job before its lease can be over."""

    HOLD = auto()  # it would start again by itself
    REQUEUE = auto()  # it runs again by itself, or ended because it was asked to stop


@dataclass(frozen=True, slots=True)
class SeenRun:
    """A sight of the lease; None if nothing is known now. With a correction the lease is not over yet."""

    sight: Sight | None
    correction: Correction | None = None


def see(job: SlurmJob, restarts: int, *, asked: bool) -> SeenRun:
    """How the lease is that was released when the job had been requeued `restarts` times."""
    match job.stage:
        case JobStage.PENDING if job.restarts > restarts:
            return _requeued(job, asked)
        case JobStage.PENDING if job.held:
            return SeenRun(Sight(Condition.NEVER_CLAIMED, asked=asked, reason=job.reason))
        case JobStage.PENDING:
            reason = job.reason or "Slurm has not considered it yet"
            return SeenRun(Sight(Condition.QUEUED, asked=asked, reason=reason))
        case JobStage.ACTIVE:
            by_itself = job.restarts > restarts
            return SeenRun(Sight(Condition.RUNNING, asked=asked), Correction.REQUEUE if by_itself else None)
        case JobStage.DONE | JobStage.LOST:
            return _over(job, asked)
    return SeenRun(None)


def _requeued(job: SlurmJob, asked: bool) -> SeenRun:
    if not job.held:
        return SeenRun(None, Correction.HOLD)
    if job.state == _SPECIAL_EXIT or job.exit_code == CHECKPOINTED:
        return SeenRun(Sight(Condition.ENDED, code=CHECKPOINTED, asked=asked))
    return SeenRun(Sight(Condition.VANISHED, asked=asked, reason="Slurm has requeued it"))


def _over(job: SlurmJob, asked: bool) -> SeenRun:
    """A job that has ended. One that died of the request to stop has not failed: it is requeued."""
    if job.state == "CANCELLED":
        return SeenRun(Sight(Condition.VANISHED, asked=asked, reason="it was cancelled"))
    if job.state == "COMPLETED":
        return SeenRun(Sight(Condition.ENDED, code=0, asked=asked))
    if asked and job.state == "FAILED" and job.exit_code in _SIGNALLED:
        return SeenRun(Sight(Condition.RUNNING, asked=asked), Correction.REQUEUE)
    code = _OUT_OF_MEMORY if job.state == "OUT_OF_MEMORY" else job.exit_code or 1
    reason = "" if job.state == "FAILED" else f"Slurm: {job.state}"
    return SeenRun(Sight(Condition.ENDED, code=code, reason=reason))  # whether it was asked does not matter any more
