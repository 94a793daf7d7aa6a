"""Routes of jobs: submit, list, show, cancel, hold, release."""

from __future__ import annotations

import hashlib
import os
from typing import Annotated

import numpy as np
from fastapi import APIRouter, Header, Path, Query, Response

from fairlead.engines.requests import Cancel, Hold, Release
from fairlead.model.cluster import Cluster
from fairlead.model.errors import ImpossibleError, InputError
from fairlead.model.jobs import JobSpec
from fairlead.model.public_job import ENDED_PHASES, PUBLIC_PHASES, PublicJob
from fairlead.rates.estimator import allowed_rates, allowed_types
from fairlead.service.api.access import scope_of
from fairlead.service.api.context import Caller, Service, ServiceContext
from fairlead.service.api.documents import JobPage, JobRequest, SubmittedJob
from fairlead.service.api.error_responses import ApiError, no_such
from fairlead.service.jobfile import JobFile
from fairlead.service.store import changes
from fairlead.service.store.changes import SubmissionKey
from fairlead.service.store.request_queue import Submission
from fairlead.service.store.tokens import Token

router = APIRouter(prefix="/v1", tags=["jobs"])
DEFAULT_TENANT = "default"

JobId = Annotated[str, Path(pattern=r"^j[1-9][0-9]{0,17}$", description="The job's id.")]


@router.post("/jobs", status_code=201, responses={200: {"model": SubmittedJob}})
async def submit(
    job: JobFile,
    caller: Caller,
    service: Service,
    response: Response,
    idempotency_key: Annotated[str | None, Header(min_length=1, max_length=200)] = None,
) -> SubmittedJob:
    """Submit a job; it is on disk when this returns. The same Idempotency-Key again returns the same job."""
    key = None
    if idempotency_key is not None:
        digest = hashlib.sha256(job.model_dump_json().encode()).hexdigest()
        key = SubmissionKey(caller.id, idempotency_key, digest)
    id_, new = await service.writer.write(changes.submit(caller.actor, _submission(job, caller, service), key))
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


@router.post("/jobs/{id}/cancel", status_code=202)
async def cancel(id: JobId, caller: Caller, service: Service) -> JobRequest:  # noqa: A002
    """Cancel a job. Its phase changes once its GPUs have been returned."""
    return await _ask(service, caller, Cancel(id))


@router.post("/jobs/{id}/hold", status_code=202)
async def hold(id: JobId, caller: Caller, service: Service) -> JobRequest:  # noqa: A002
    """Take a job out of the queue, after a checkpoint if it runs."""
    return await _ask(service, caller, Hold(id))


@router.post("/jobs/{id}/release", status_code=202)
async def release(id: JobId, caller: Caller, service: Service) -> JobRequest:  # noqa: A002
    return await _ask(service, caller, Release(id))


def find(service: ServiceContext, id_: str, caller: Token) -> PublicJob:
    job = service.reads.job(id_, scope_of(caller))
    if job is None:
        raise no_such("job", id_)
    return job


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
        raise ImpossibleError(_why_never(spec, service.cluster))
    return Submission(job.name, spec, job.command())


def _check_path(name: str, path: str | None, *, must_be_absolute: bool) -> None:
    if path is None:
        return
    if must_be_absolute and not os.path.isabs(path):
        raise InputError(f"{name} is not an absolute path; the service has no current directory")
    if ".." in path.split("/"):
        raise InputError(f'{name} has a part ".."; write the path without it')


def _why_never(spec: JobSpec, cluster: Cluster) -> str:
    types = allowed_types(spec, cluster)
    have = ", ".join(f"{gpus} x {name}" for name, gpus in zip(cluster.types, cluster.capacity.tolist(), strict=True))
    if not types:
        return f"the job allows only {', '.join(spec.types)}; the cluster has {have}"
    if spec.gpus > int(np.max(cluster.capacity[types])):
        return f"the job needs {spec.gpus} GPUs of one type; the cluster has {have}"
    return f"{spec.model} needs more memory per GPU than any allowed type has, or was measured and does not run there"


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
