"""For operators: policy, nodes, weights, tokens and the log of changes; and what a change would do before it is made."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Path, Query, Request
from pydantic import ValidationError
from starlette.responses import RedirectResponse, Response

from fairlead.model.errors import InputError
from fairlead.model.quota_text import parse_quotas, quotas_text
from fairlead.model.quotas import Quota
from fairlead.service.api import routes_cluster, routes_tokens
from fairlead.service.api.context import Service
from fairlead.service.api.documents import NewToken, PolicyChoice, QuotaSettings, TenantSettings
from fairlead.service.api.routes_cluster import NodeName
from fairlead.service.jobfile import Name
from fairlead.service.store.rows import TenantTerms
from fairlead.service.store.tokens import Role
from fairlead.service.web.pages_session import read_form
from fairlead.service.web.previewing import PreviewTask, preview_apart
from fairlead.service.web.rendering import show
from fairlead.service.web.rights import Visitor

router = APIRouter()
HORIZONS_S = {"1h": 3600.0, "6h": 6 * 3600.0, "24h": 86400.0}
CHANGES = 50  # of the log of changes
MOST_QUOTAS = 64  # of a tenant

Horizon = Literal["1h", "6h", "24h"]
Word = Annotated[str, Query(max_length=200)]
Weight = Annotated[str, Query(max_length=20)]
QuotaText = Annotated[str, Query(max_length=2000)]


@router.get("/admin")
async def admin(request: Request, visitor: Visitor, service: Service) -> Response:
    return show(
        request,
        "admin.html.j2",
        title="Admin",
        policy=routes_cluster.show_policy(visitor, service),
        nodes=service.reads.nodes(),
        tenants=list(service.reads.tenants().values()),
        roles=[role.value for role in (Role.MEMBER, Role.VIEWER, Role.METRICS, Role.ADMIN)],
        tokens=(await routes_tokens.list_tokens(visitor, service)).tokens,
        changes=[
            replace(row, detail=_shown_detail(row.detail))
            for row in (await routes_tokens.changes(visitor, service, 2**62, CHANGES)).changes
        ],
    )


@router.get("/what-if")
def what_if(
    request: Request,
    visitor: Visitor,
    service: Service,
    policy: Word = "",
    node: Word = "",
    tenant: Word = "",
    weight: Weight = "",
    quotas: QuotaText = "",
    horizon: Horizon = "1h",
) -> Response:
    """A form for a change; with one, also its consequences and the button that makes it."""
    chosen = {
        "policy": policy,
        "node": node,
        "tenant": tenant if weight or quotas else "",
        "weight": weight,
        "quotas": quotas,
        "horizon": horizon,
    }
    return show(
        request,
        "what_if.html.j2",
        title="What if",
        chosen=chosen,
        asked=bool(policy or node or chosen["tenant"]),
        query=urlencode(chosen),
        horizons=list(HORIZONS_S),
        policy=routes_cluster.show_policy(visitor, service),
        nodes=service.reads.nodes(),
        tenants=list(service.reads.tenants()),
    )


@router.get("/what-if/answer")
async def answer(
    request: Request,
    visitor: Visitor,
    service: Service,
    policy: Word = "",
    node: Word = "",
    tenant: Word = "",
    weight: Weight = "",
    quotas: QuotaText = "",
    horizon: Horizon = "1h",
) -> Response:
    """The simulated consequences of a change; takes seconds."""
    task = PreviewTask(
        str(service.directory.path),
        tuple(service.policy_files),
        HORIZONS_S[horizon],
        policy=policy,
        node=node,
        tenant=tenant,
        weight=_weight(weight) if weight else None,
        quotas=parse_quotas(quotas) if quotas else None,
    )
    async with service.auditing:
        result = await preview_apart(task)
    chosen = {"policy": policy, "node": node, "tenant": tenant, "weight": weight, "quotas": quotas}
    return show(request, "what_if_answer.html.j2", title="What if", result=result, horizon=horizon, chosen=chosen)


@router.post("/admin/policy")
async def set_policy(request: Request, visitor: Visitor, service: Service) -> Response:
    choice = PolicyChoice(name=(await read_form(request)).get("policy", "")[:63])
    await routes_cluster.set_policy(choice, visitor, service)
    return _back()


@router.post("/admin/nodes/{name}/drain")
async def drain(name: NodeName, visitor: Visitor, service: Service) -> Response:
    await routes_cluster.drain(name, visitor, service)
    return _back()


@router.post("/admin/nodes/{name}/resume")
async def resume(name: NodeName, visitor: Visitor, service: Service) -> Response:
    await routes_cluster.resume(name, visitor, service)
    return _back()


@router.post("/admin/tenants/{name}")
async def set_terms(request: Request, name: Annotated[Name, Path()], visitor: Visitor, service: Service) -> Response:
    """Another weight, other quotas or both; the tenant keeps what the form leaves empty."""
    fields = await read_form(request)
    weight, quotas = fields.get("weight", ""), fields.get("quotas", "")
    if not weight and not quotas:
        raise InputError("there is nothing to change; write another weight or other quotas")
    terms = service.reads.tenants().get(name) or TenantTerms(name)
    new = [asdict(quota) for quota in terms.quotas] if not quotas else parse_quotas(quotas)
    if len(new) > MOST_QUOTAS:
        raise InputError(f"there are more than {MOST_QUOTAS} quotas")
    settings = TenantSettings(
        weight=_weight(weight) if weight else terms.weight, quotas=[_checked_quota(quota) for quota in new]
    )
    await routes_cluster.set_tenant(name, settings, visitor, service)
    return _back()


@router.post("/admin/tokens")
async def create_token(request: Request, visitor: Visitor, service: Service) -> Response:
    """A page with the secret of the new token, which nobody can read again."""
    fields = await read_form(request)
    wanted = {name: fields.get(name, "").strip() or None for name in ("name", "role", "tenant", "lifetime")}
    try:
        new = NewToken.model_validate({name: value for name, value in wanted.items() if value is not None})
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise InputError(f"{where or 'the token'}: {first['msg']}") from None
    created = await routes_tokens.create_token(new, visitor, service)
    return show(request, "token.html.j2", title="New token", created=created)


@router.post("/admin/tokens/{id}/revoke")
async def revoke(
    id: Annotated[str, Path(pattern="^[0-9a-f]{12}$")],  # noqa: A002
    visitor: Visitor,
    service: Service,
) -> Response:
    await routes_tokens.revoke_token(id, visitor, service)
    return _back()


def _weight(text: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        weight = math.nan
    if not 0 < weight <= 1e9:
        raise InputError("the weight is not a number above 0")
    return weight


def _shown_detail(detail: dict[str, Any]) -> dict[str, Any]:
    """The detail of a change as people write it: quotas as text, no point in whole numbers, nothing that is unset."""
    shown = {name: f"{value:g}" if isinstance(value, float) else value for name, value in detail.items()}
    if "quotas" in detail:
        shown["quotas"] = quotas_text(Quota(**quota) for quota in detail["quotas"])
    return {name: value for name, value in shown.items() if value is not None}


def _checked_quota(quota: dict[str, Any]) -> QuotaSettings:
    try:
        return QuotaSettings(**quota)
    except ValidationError:
        raise InputError("a quota has a type that is too long, or too many GPUs") from None


def _back() -> Response:
    return RedirectResponse("/admin", 303)
