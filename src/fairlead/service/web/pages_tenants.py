"""Tenants: what each is entitled to, holds, borrows and lends, and whether the policy kept its promises."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

from fastapi import APIRouter, Request
from starlette.responses import Response

from fairlead.service.api import routes_cluster
from fairlead.service.api.context import Service, ServiceContext
from fairlead.service.api.shares import gpus_up
from fairlead.service.store.tokens import Token
from fairlead.service.web.line_charts import draw_lines
from fairlead.service.web.pages_cluster import tenant_colours
from fairlead.service.web.rendering import show, show_shared
from fairlead.service.web.rights import Visitor
from fairlead.service.web.tenant_history import history_apart

router = APIRouter()
MOST_IN_MATRIX = 12  # tenants
WINDOWS_S = {"1h": 3600.0, "1d": 86400.0, "7d": 7 * 86400.0, "30d": 30 * 86400.0}
Window = Literal["1h", "1d", "7d", "30d"]


@router.get("/tenants")
async def tenants(request: Request, visitor: Visitor, window: Window = "1d") -> Response:
    """The present shares of all tenants, which everyone may see, with their history over some time."""
    return await show_shared(request, "tenants.html.j2", _tenants, window)


def _tenants(service: ServiceContext, reader: Token, window: str) -> dict[str, Any]:
    shares = routes_cluster.present_shares(service).shares
    return {
        "title": "Tenants",
        "shares": shares,
        "gpus": gpus_up(service.reads.nodes()),
        "colour": tenant_colours(service, *(row.tenant for row in shares)),
        "policy": routes_cluster.show_policy(reader, service),
        "window": window,
        "windows": list(WINDOWS_S),
    }


@router.get("/tenants/history")
async def history(request: Request, visitor: Visitor, service: Service, window: Window = "1d") -> Response:
    """What tenants held, were entitled to and waited for over time; may take seconds."""
    until_s, first_s = service.reads.now_s(), service.reads.first_time_s()
    from_s = max(until_s - WINDOWS_S[window], until_s if first_s is None else first_s)
    async with service.looking_back.turn(visitor.id):
        answer = await history_apart(service.directory, from_s, until_s)
    charts = {
        name: (
            draw_lines(answer["from_s"], answer["slice_s"], {key: rows[key] for key in ("entitled", "held")}),
            draw_lines(answer["from_s"], answer["slice_s"], {"waiting": rows["waiting"]}),
        )
        for name, rows in answer["tenants"].items()
    }
    return show(
        request,
        "tenant_history.html.j2",
        title="History",
        charts=charts,
        slice_s=answer["slice_s"],
        colour=tenant_colours(service),
    )


@router.get("/tenants/audit")
async def audit(request: Request, visitor: Visitor, service: Service) -> Response:
    """The fairness of the service over its whole life; may take seconds."""
    report = await routes_cluster.audit(visitor, service)
    rows = {name: row.model_dump() for name, row in report.tenants.items()}
    return show(
        request,
        "audit.html.j2",
        title="Fairness",
        report=report,
        rows=rows,
        matrix=envy_matrix(rows),
        colour=tenant_colours(service, *rows),
    )


def envy_matrix(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """The envy of each of the tenants that envy or are envied most, of each other one; infinite if it is unbounded."""
    pairs = [
        (math.inf if envy is None else envy, name, other)
        for name, row in rows.items()
        for other, envy in row["envies"].items()
    ]
    pairs.sort(key=lambda pair: (-pair[0], pair[1:]))
    named = dict.fromkeys(name for _, *both in pairs for name in both)
    shown = sorted(list(named)[:MOST_IN_MATRIX])
    of = {(name, other): envy for envy, name, other in pairs}
    return {name: {other: of.get((name, other), 0.0) for other in shown} for name in shown}
