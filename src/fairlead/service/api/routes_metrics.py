"""Metrics for Prometheus, and probes that need no token."""

from __future__ import annotations

from fastapi import APIRouter, Response
from fastapi.responses import PlainTextResponse

from fairlead.service.api.context import Caller, Service
from fairlead.service.api.documents import Health
from fairlead.service.telemetry.exposition import CONTENT_TYPE

router = APIRouter(tags=["metrics"])
probes = APIRouter(tags=["metrics"])


@router.get(
    "/metrics",
    response_class=PlainTextResponse,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
def metrics(caller: Caller, service: Service) -> Response:
    """All metrics in the text format of Prometheus, for tokens of role metrics or admin."""
    return Response(service.metrics(), media_type=CONTENT_TYPE)


@probes.get("/healthz")
async def healthz(service: Service) -> Health:
    """Whether the API process answers, whatever the scheduler does; says how old the last decision is."""
    return health_of(service)


@probes.get("/readyz", responses={503: {"model": Health}})
@probes.get("/v1/health", responses={503: {"model": Health}})
async def readyz(service: Service, response: Response) -> Health:
    """Whether both processes are up, and decisions and looks at a steered Slurm are in time."""
    health = health_of(service)
    response.status_code = 200 if health.status == "ok" else 503
    return health


def health_of(service: Service) -> Health:
    scheduler = service.scheduler()
    up = scheduler.ready and not scheduler.decision_overdue and not scheduler.intake_overdue
    return Health(
        status="ok" if up else "degraded",
        decision_age_s=scheduler.decision_age_s,
        decision_overdue=scheduler.decision_overdue,
        policy_failed=scheduler.policy_failed,
        intake_overdue=scheduler.intake_overdue,
    )
