"""The overview: the cluster with every GPU, the state of the service, and the stream of live updates."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from fairlead.model.phases import HAS_GPUS
from fairlead.model.public_job import PHASE_NAMES
from fairlead.service.api import routes_cluster, streams
from fairlead.service.api.access import scope_of
from fairlead.service.api.context import Service, ServiceContext
from fairlead.service.store.rows import GpuHolder, NodeRow
from fairlead.service.store.tokens import Token
from fairlead.service.web.cells import cells_by_type, gpus_by_tenant
from fairlead.service.web.colours import colour_classes
from fairlead.service.web.live import Pulse
from fairlead.service.web.past import past_apart
from fairlead.service.web.rendering import show, show_shared
from fairlead.service.web.rights import Visitor

router = APIRouter()
_DENSE = 400  # GPUs from which cells are small
WITH_GPUS = [PHASE_NAMES[phase] for phase in HAS_GPUS]


@router.get("/")
async def cluster(
    request: Request,
    visitor: Visitor,
    service: Service,
    at: Annotated[float | None, Query(ge=0, le=1e11, description="Seconds since 1970.")] = None,
) -> Response:
    """Every GPU, by type and node, with its job, now or at an earlier time.

    Jobs that the visitor may not see are only counted.
    """
    if at is None:
        return await show_shared(request, "cluster.html.j2", _values_now)
    async with service.looking_back.turn(visitor.id):
        nodes, jobs = await past_apart(service.directory, at, scope_of(visitor))
    return show(request, "cluster.html.j2", **_values(service, visitor, nodes, jobs, at))


def _values_now(service: ServiceContext, reader: Token) -> dict[str, Any]:
    return _values(service, reader, service.reads.nodes(), service.reads.holders(scope_of(reader)), None)


def _values(
    service: ServiceContext, reader: Token, nodes: list[NodeRow], jobs: list[GpuHolder], at: float | None
) -> dict[str, Any]:
    types = cells_by_type(nodes, jobs)
    return {
        "title": "Cluster",
        "status": routes_cluster.status(reader, service),
        "types": types,
        "dense": sum(one.total for one in types) > _DENSE,
        "tenants": gpus_by_tenant(jobs),
        "colour": tenant_colours(service),
        "at": at,
        "first_s": service.reads.first_time_s(),
    }


@router.get("/live")
async def live(request: Request, visitor: Visitor, service: Service) -> Response:
    """Ticks, as server-sent events, whenever something has changed."""
    pulse: Pulse = request.app.state.pulse
    return streams.stream(service, visitor, pulse.ticks(), "text/event-stream")


def tenant_colours(service: ServiceContext, *more: str) -> dict[str, str]:
    """Colours of all tenants, and of further ones, so that a tenant has the same one for every reader and on every page."""
    return colour_classes([*service.reads.tenants(), *more])
