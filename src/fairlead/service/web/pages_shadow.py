"""For a service that only watches: what Slurm did, next to what a policy would have done with the same jobs."""

from __future__ import annotations

import time
from typing import Annotated, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from fairlead.service.api import routes_cluster
from fairlead.service.api.access import scope_of
from fairlead.service.api.context import Service, ServiceContext
from fairlead.service.api.error_responses import ApiError
from fairlead.service.web.line_charts import draw_lines
from fairlead.service.web.pages_cluster import tenant_colours
from fairlead.service.web.rendering import show
from fairlead.service.web.rights import Visitor
from fairlead.service.web.shadowing import ShadowTask, shadow_apart

router = APIRouter()
WINDOWS_S = {"1d": 86400.0, "7d": 7 * 86400.0, "30d": 30 * 86400.0, "all": None}
DRAWN = 8  # teams whose hours are drawn over time

Window = Literal["1d", "7d", "30d", "all"]
PolicyName = Annotated[str, Query(max_length=63)]


@router.get("/shadow")
def shadow(
    request: Request, visitor: Visitor, service: Service, policy: PolicyName = "", window: Window = "7d"
) -> Response:
    """What is watched, and a form for the policy and the time that are compared."""
    _refuse_without_slurm(service)
    state = routes_cluster.show_policy(visitor, service)
    chosen = {"policy": policy or state.name, "window": window}
    return show(
        request,
        "shadow.html.j2",
        title="Slurm",
        chosen=chosen,
        query=urlencode(chosen),
        windows=list(WINDOWS_S),
        policy=state,
        watching=routes_cluster.status(visitor, service).scheduler.watching or (),
    )


@router.get("/shadow/report")
async def report(
    request: Request, visitor: Visitor, service: Service, policy: PolicyName = "", window: Window = "7d"
) -> Response:
    """The comparison; takes seconds, and minutes after many jobs. Teams are shown to everyone, jobs to their tenant."""
    _refuse_without_slurm(service)
    state = routes_cluster.show_policy(visitor, service)
    if policy and policy not in state.available:
        raise ApiError(422, "no_such_policy", "this policy is not known", "choose another policy")
    length_s = WINDOWS_S[window]
    task = ShadowTask(
        str(service.directory.path),
        policy or state.name,
        None if length_s is None else time.time() - length_s,
        scope_of(visitor),
    )
    async with service.looking_back.turn(visitor.id):
        answer = await shadow_apart(task)
    charts = {
        row["team"]: {
            measure: draw_lines(
                answer["from_s"],
                answer["slice_s"],
                {name: one[measure] for name, one in zip(answer["alternatives"], row["alternatives"], strict=True)},
            )
            for measure in ("waiting", "speed")
        }
        for row in answer["teams"][:DRAWN]
    }
    return show(
        request,
        "shadow_report.html.j2",
        title="Slurm",
        answer=answer,
        charts=charts,
        colour=tenant_colours(service, *(row["team"] for row in answer["teams"])),
    )


def _refuse_without_slurm(service: ServiceContext) -> None:
    if not service.only_watches:
        raise ApiError(
            404,
            "not_watching",
            "this service runs jobs itself and watches no other scheduler",
            "fairlead serve --engine slurm --shadow watches a Slurm cluster",
        )
