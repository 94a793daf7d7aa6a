"""Routes of jobs: submit, list, show, cancel, hold, release."""

from __future__ import annotations

import asyncio
import hashlib
import os
from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Header, Path, Query, Response

from fairlead.engines.requests import Cancel, Hold, Release
from fairlead.model.errors import ImpossibleError, InputError
from fairlead.model.explanation import Explanation
from fairlead.model.limits import limits_of
from fairlead.model.public_job import ENDED_PHASES, JOB_ID, PUBLIC_PHASES, SUBMITTED, PublicJob
from fairlead.rates.estimator import allowed_rates
from fairlead.rates.impossible import why_never
from fairlead.service.api.access import scope_of
from fairlead.service.api.context import Caller, Service, ServiceContext
from fairlead.service.api.documents import JobPage, JobRequest, SubmittedJob
from fairlead.service.api.error_responses import ApiError, no_such
from fairlead.service.api.explaining import SIMULATION_S, ExplainTask, explain_apart
from fairlead.service.jobfile import JobFile
from fairlead.service.store import changes
from fairlead.service.store.admission import admit
from fairlead.service.store.changes import SubmissionKey
from fairlead.service.store.request_queue import Submission
from fairlead.service.store.rows import ArchivedJob
from fairlead.service.store.tokens import Token
from fairlead.studies.explaining.explain import explain_row

router = APIRouter(prefix="/v1", tags=["jobs"])
DEFAULT_TENANT = "default"

JobId = Annotated[str, Path(pattern=f"^{JOB_ID}$", description="The job's id.")]


@router.post("/jobs", status_code=201, responses={200: {"model": SubmittedJob}})
async def submit(
    job: JobFile,
    caller: Caller,
    service: Service,
    response: Response,
    idempotency_key: Annotated[str | None, Header(min_length=1, max_length=200)] = None,
) -> SubmittedJob:
    """Submit a job; it is on disk when this returns. The same Idempotency-Key again returns the same job."""
    _refuse_if_steering(service, "submitted with sbatch")
    key = None
    if idempotency_key is not None:
        digest = hashlib.sha256(job.model_dump_json().encode()).hexdigest()
        key = SubmissionKey(caller.id, idempotency_key, digest)
    submission = _submission(job, caller, service)
    tenant = submission.spec.tenant
    limits = limits_of(tenant, service.reads.limits())
    is_limited = limits.checkpoint_bytes is not None
    stored_bytes = await asyncio.to_thread(service.checkpoints.of, tenant) if is_limited else 0
    admitted = admit(tenant, limits, stored_bytes, service.reads)
    id_, new = await service.writer.write(changes.submit(caller.actor, submission, key, admitted))
    response.status_code = 201 if new else 200
    return SubmittedJob(id=id_)


@router.get("/jobs")
async def list_jobs(
    caller: Caller,
    service: Service,
    tenant: Annotated[str | None, Query(max_length=63)] = None,
    phase: Annotated[list[str] | None, Query(description=f"Any of {', '.join(PUBLIC_PHASES)}, or active.")] = None,
    after: Annotated[int, Query(ge=0, le=2**62)] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> JobPage:
    """List jobs in order of submission."""
    confined = scope_of(caller)
    if confined is not None and tenant not in (None, confined):
        raise ApiError(403, "not_allowed", "this token sees the jobs of its own tenant only", "leave tenant out")
    jobs, next_after = service.reads.jobs(confined or tenant, _phases(phase or []), after, limit)
    return JobPage(jobs=jobs, next=next_after)


@router.get("/jobs/{id}")
async def show(id: JobId, caller: Caller, service: Service) -> PublicJob:  # noqa: A002
    return find(service, id, caller)


@router.get("/jobs/{id}/explain")
async def explain(
    id: JobId,  # noqa: A002
    caller: Caller,
    service: Service,
    remedies: Annotated[bool, Query(description="Simulate what would make a waiting job start earlier.")] = True,
) -> Explanation:
    """Why the job waits, runs where it does, was stopped or ended, and what would help it; may take seconds."""
    job, now_s = find(service, id, caller), service.reads.now_s()
    if job.phase == SUBMITTED:
        return explain_row(job, now_s)
    simulate_s = SIMULATION_S if remedies else 0.0
    task = ExplainTask(
        str(service.directory.path), id, scope_of(caller), now_s, tuple(service.policy_files), simulate_s
    )
    async with service.explaining.turn(caller.id):
        try:
            answer = await explain_apart(task)
        except TimeoutError:
            raise ApiError(
                429,
                "too_busy",
                "the explanation took too long",
                "try again later, or without remedies: `fairlead explain --no-remedies`, or remedies=false in the API",
            ) from None
    return explain_row(job, now_s) if answer is None else answer


@router.post("/jobs/{id}/cancel", status_code=202)
async def cancel(id: JobId, caller: Caller, service: Service) -> JobRequest:  # noqa: A002
    """Cancel a job. Its phase changes once its GPUs have been returned."""
    _refuse_if_steering(service, "cancelled with scancel")
    return await _ask(service, caller, Cancel(id))


@router.post("/jobs/{id}/hold", status_code=202)
async def hold(id: JobId, caller: Caller, service: Service) -> JobRequest:  # noqa: A002
    """Take a job out of the queue, after a checkpoint if it runs."""
    return await _ask(service, caller, Hold(id))


@router.post("/jobs/{id}/release", status_code=202)
async def release(id: JobId, caller: Caller, service: Service) -> JobRequest:  # noqa: A002
    return await _ask(service, caller, Release(id))


def _refuse_if_steering(service: ServiceContext, how: str) -> None:
    if service.steers:
        raise ApiError(409, "steers_slurm", "this service steers jobs of Slurm", f"they are {how}")


def find(service: ServiceContext, id_: str, caller: Token) -> PublicJob:
    job = service.reads.job(id_, scope_of(caller))
    if job is None:
        archived = service.reads.archived(id_, scope_of(caller))
        raise no_such("job", id_) if archived is None else _is_archived(archived)
    return job


def _is_archived(job: ArchivedJob) -> ApiError:
    when = "" if job.end_s is None else datetime.fromtimestamp(job.end_s, UTC).strftime(" on %Y-%m-%d")
    return ApiError(
        410,
        "job_archived",
        f"job {job.id} is archived: it was {job.phase}{when}",
        f"see the files archive/{job.segment:06d}.* of the state directory, or `fairlead archive {job.id}` there",
    )


async def _ask(service: ServiceContext, caller: Token, request: Cancel | Hold | Release) -> JobRequest:
    job = find(service, request.job, caller)
    if job.phase in ENDED_PHASES:
        raise ApiError(409, "job_ended", f"job {job.id} is {job.phase} already", "submit it again to run it again")
    number = await service.writer.write(changes.ask(caller.actor, request))
    return JobRequest(id=job.id, request=number)


def _submission(job: JobFile, caller: Token, service: ServiceContext) -> Submission:
    confined = scope_of(caller)
    if confined is not None and job.tenant not in (None, confined):
        raise ApiError(403, "not_allowed", f"this token submits for tenant {confined} only", "leave tenant out")
    tenant = confined or job.tenant or DEFAULT_TENANT
    for name in ("workdir", "checkpoint_dir"):
        _check_path(name, getattr(job, name), must_be_absolute=name == "workdir")
    capacity = dict(zip(service.cluster.gpu, service.cluster.capacity.tolist(), strict=True))
    spec = job.spec("new", tenant, 0.0, capacity)
    if not allowed_rates(spec, service.cluster, service.estimator).any():
        raise ImpossibleError(why_never(spec, service.cluster))
    return Submission(job.name, spec, job.command())


def _check_path(name: str, path: str | None, *, must_be_absolute: bool) -> None:
    if path is None:
        return
    if must_be_absolute and not os.path.isabs(path):
        raise InputError(f"{name} is not an absolute path; the service has no current directory")
    if ".." in path.split("/"):
        raise InputError(f'{name} has a part ".."; write the path without it')


def _phases(requested: list[str]) -> list[str]:
    phases: list[str] = []
    for phase in requested:
        if phase == "active":
            phases += [name for name in PUBLIC_PHASES if name not in ENDED_PHASES]
        elif phase in PUBLIC_PHASES:
            phases.append(phase)
        else:
            raise ApiError(
                422, "invalid_request", "phase: no such phase", f"use one of {', '.join(PUBLIC_PHASES)}, or active"
            )
    return phases
