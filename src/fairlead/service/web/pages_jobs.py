"""The queue, and a page for every job."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Query, Request
from starlette.responses import RedirectResponse, Response

from fairlead.model.public_job import ENDED_PHASES, PUBLIC_PHASES
from fairlead.service.api import routes_cluster, routes_future, routes_jobs, streams
from fairlead.service.api.access import scope_of
from fairlead.service.api.context import Service, ServiceContext
from fairlead.service.api.documents import JobRequest
from fairlead.service.api.error_responses import ApiError
from fairlead.service.api.routes_jobs import JobId
from fairlead.service.store.job_search import JobQuery, records_about, search_jobs
from fairlead.service.store.tokens import Token
from fairlead.service.web.history import grants_of
from fairlead.service.web.pages_cluster import WITH_GPUS, tenant_colours
from fairlead.service.web.pages_session import read_form
from fairlead.service.web.rendering import show, show_shared
from fairlead.service.web.rights import Visitor
from fairlead.service.web.timeline import draw_timeline

router = APIRouter()
PAGE = 100  # jobs
LOG_TAIL = 64 << 10  # bytes of a log that a page begins with
_SHOWN: dict[str, list[str]] = {
    "active": [phase for phase in PUBLIC_PHASES if phase not in ENDED_PHASES],
    "waiting": ["submitted", "waiting"],
    "running": WITH_GPUS,
    "held": ["held"],
    "ended": list(ENDED_PHASES),
    "failed": ["failed"],
    "all": [],
}
Shown = Literal["active", "waiting", "running", "held", "ended", "failed", "all"]


@router.get("/queue")
async def queue(
    request: Request,
    visitor: Visitor,
    show_: Annotated[Shown, Query(alias="show")] = "active",
    tenant: Annotated[str, Query(max_length=63)] = "",
    q: Annotated[str, Query(max_length=200)] = "",
    order: Literal["oldest", "newest"] = "oldest",
    page: Annotated[int, Query(ge=1, le=10**6)] = 1,
) -> Response:
    """Jobs with where they run or why they do not; a page at a time, in order of submission."""
    return await show_shared(request, "queue.html.j2", _queue, show_, tenant, q, order, page)


def _queue(
    service: ServiceContext, reader: Token, shown: str, tenant: str, q: str, order: str, page: int
) -> dict[str, Any]:
    confined = scope_of(reader)
    query = JobQuery(confined or tenant or None, _SHOWN[shown], q.strip(), order == "newest")
    jobs, total = search_jobs(service.reads, query, (page - 1) * PAGE, PAGE)
    chosen = {"show": shown, "tenant": tenant if confined is None else "", "q": q, "order": order}
    tenants = [terms.name for terms in routes_cluster.list_tenants(reader, service).tenants]
    newest = routes_future.estimates(reader, service)
    return {
        "title": "Queue",
        "estimates_held": (newest.held, newest.checked),
        "jobs": jobs,
        "total": total,
        "page": page,
        "pages": max(-(-total // PAGE), 1),
        "first": (page - 1) * PAGE + 1,
        "chosen": chosen,
        "shown": list(_SHOWN),
        "link": lambda number: "/queue?" + urlencode({**{k: v for k, v in chosen.items() if v}, "page": number}),
        "tenants": tenants,
        "estimate": _estimates(reader, service),
        "colour": tenant_colours(service),
    }


@router.get("/jobs/{id}")
def job(request: Request, id: JobId, visitor: Visitor, service: Service) -> Response:  # noqa: A002
    """One job: its state, its grants so far, and its log."""
    row, now_s = routes_jobs.find(service, id, visitor), service.reads.now_s()
    type_of = {node.name: node.type for node in service.reads.nodes()}
    grants = grants_of(row.id, records_about(service.reads, row), type_of)
    return show(
        request,
        "job.html.j2",
        title=f"Job {row.id}",
        job=row,
        grants=grants,
        timeline=draw_timeline(row.submitted_s, row.end_s or now_s, grants, list(service.cluster.types)),
        estimate=_estimates(visitor, service).get(row.id),
        colour=tenant_colours(service),
    )


@router.get("/jobs/{id}/why")
async def why(request: Request, id: JobId, visitor: Visitor, service: Service) -> Response:  # noqa: A002
    """Why the job is where it is, and what would help it; may take seconds. A busy service says so, and is asked again."""
    answer, busy = None, None
    try:
        answer = await routes_jobs.explain(id, visitor, service, True)
    except ApiError as error:
        if error.status != 429:
            raise
        busy = error.message
    return show(
        request,
        "why.html.j2",
        title=f"Why is job {id} where it is?",
        id=id,
        answer=answer,
        busy=busy,
        checkpoint_bytes=await asyncio.to_thread(service.checkpoints.of_job, id),
        starts=_estimates(visitor, service).get(id),
    )


@router.get("/jobs/{id}/log")
async def log(
    id: JobId,  # noqa: A002
    visitor: Visitor,
    service: Service,
    follow: bool = False,
) -> Response:
    """The log of the job as plain text: all of it, or its end and then what is added to it."""
    return await streams.logs(id, visitor, service, follow, None, LOG_TAIL if follow else None)


@router.post("/jobs/{id}/cancel")
async def cancel(request: Request, id: JobId, visitor: Visitor, service: Service) -> Response:  # noqa: A002
    return await _back(request, await routes_jobs.cancel(id, visitor, service), service)


@router.post("/jobs/{id}/hold")
async def hold(request: Request, id: JobId, visitor: Visitor, service: Service) -> Response:  # noqa: A002
    return await _back(request, await routes_jobs.hold(id, visitor, service), service)


@router.post("/jobs/{id}/release")
async def release(request: Request, id: JobId, visitor: Visitor, service: Service) -> Response:  # noqa: A002
    return await _back(request, await routes_jobs.release(id, visitor, service), service)


async def _back(request: Request, asked: JobRequest, service: Service) -> Response:
    """To the page of the job, or of the one that the form names, once the scheduler has taken the request."""
    await service.until_taken(asked.request)
    then = (await read_form(request)).get("then") or asked.id
    return RedirectResponse(f"/jobs/{quote(then, safe='')}", 303)


def _estimates(visitor: Token, service: ServiceContext) -> dict[str, tuple[float | None, float | None]]:
    """The range of starts by waiting job, in seconds since 1970; None is later than was simulated."""
    newest = routes_future.estimates(visitor, service)
    return {one.job: (one.earliest_s, one.latest_s) for one in newest.estimates}
