"""Nodes, tenants, policy, shares, fairness, decisions: the cluster as a whole."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from starlette.concurrency import run_in_threadpool

from fairlead import __version__
from fairlead.engines.requests import AddNode, Drain, RemoveNode, Request, Resume, SetLimits, SetPolicy, SetTenant
from fairlead.model.cluster import NodeGroup
from fairlead.model.errors import InputError
from fairlead.model.gpus import canonical_gpu
from fairlead.model.limits import EVERY_TENANT, NO_LIMITS, TenantLimits, limits_of
from fairlead.model.quotas import Quota
from fairlead.model.words import did_you_mean, printable
from fairlead.policies import TASK_POLICIES
from fairlead.service.api.access import scope_of
from fairlead.service.api.audit import audit_apart
from fairlead.service.api.context import Caller, Service, ServiceContext
from fairlead.service.api.documents import (
    AuditReport,
    DecisionPage,
    DecisionRecord,
    GpuCounts,
    LimitSettings,
    NewNode,
    NodeList,
    PolicyChoice,
    PolicyState,
    ShareList,
    Status,
    TakenRequest,
    TenantList,
    TenantSettings,
)
from fairlead.service.api.error_responses import ApiError
from fairlead.service.api.shares import tenant_shares
from fairlead.service.jobfile import Name
from fairlead.service.live_policies import REGISTERED, PolicyCard, configured, try_apart
from fairlead.service.store.changes import AuditEntry, ask
from fairlead.service.store.rows import TenantTerms
from fairlead.service.store.tokens import Token

router = APIRouter(prefix="/v1", tags=["cluster"])


NodeName = Annotated[str, Path(max_length=200)]


@router.get("/status")
def status(caller: Caller, service: Service) -> Status:
    """A summary of the cluster; counts only the jobs of the token's tenant if it has one."""
    nodes = service.reads.nodes()
    gpus = {name: GpuCounts() for name in service.cluster.types}
    for node in nodes:
        counts = gpus[node.type]
        counts.total += node.gpus
        counts.up += node.gpus if node.up else 0
    type_of = {node.name: node.type for node in nodes}
    for _, spot in service.reads.held():
        for name, count in spot.items():
            if name in type_of:  # it may have joined between the two reads
                gpus[type_of[name]].held += count
    return Status(
        version=__version__,
        policy=service.reads.policy()[0],
        fell_back=service.reads.fell_back(),
        jobs=service.reads.counts(scope_of(caller)),
        gpus=gpus,
        nodes_down=[node.name for node in nodes if not node.up],
        scheduler=service.scheduler(),
    )


@router.get("/nodes")
def list_nodes(caller: Caller, service: Service) -> NodeList:
    return NodeList(nodes=service.reads.nodes())


@router.post("/nodes", status_code=202)
async def add_node(node: NewNode, caller: Caller, service: Service) -> TakenRequest:
    """Add a node, or bring back a removed one, perhaps with other GPUs."""
    group = NodeGroup(1, canonical_gpu(node.gpu), node.gpus, node.memory_gib)
    if node.name in {row.name for row in service.reads.nodes()}:
        hint = "remove it first to change its GPUs"
        raise ApiError(409, "node_exists", f"the cluster has a node {node.name} already", hint)
    return await _ask(service, caller, AddNode(node.name, group), "node.add", node.name, node.model_dump())


@router.delete("/nodes/{name}", status_code=202)
async def remove_node(name: NodeName, caller: Caller, service: Service, now: bool = False) -> TakenRequest:
    """Remove a node. Refused while jobs hold its GPUs, unless `now` asks them to leave, as a drain does."""
    jobs = service.reads.jobs_on(_known_node(service, name))
    if jobs and not now:
        names = ", ".join(jobs[:5]) + (f" and {len(jobs) - 5} more" if len(jobs) > 5 else "")
        hint = f"drain it first with `fairlead nodes drain {name}`, or remove it with --now"
        raise ApiError(409, "node_in_use", f"node {name} has running jobs: {names}", hint)
    return await _ask(service, caller, RemoveNode(name), "node.remove", name, {"now": now})


@router.post("/nodes/{name}/drain", status_code=202)
async def drain(name: NodeName, caller: Caller, service: Service) -> TakenRequest:
    """Ask the jobs of a node to leave; nothing starts there until it is resumed."""
    return await _ask(service, caller, Drain(_known_node(service, name)), "node.drain", name, {})


@router.post("/nodes/{name}/resume", status_code=202)
async def resume(name: NodeName, caller: Caller, service: Service) -> TakenRequest:
    return await _ask(service, caller, Resume(_known_node(service, name)), "node.resume", name, {})


@router.get("/tenants")
def list_tenants(caller: Caller, service: Service) -> TenantList:
    mine, limits = scope_of(caller), service.reads.limits()
    tenants = service.reads.tenants()
    if mine is not None:
        tenants = {mine: tenants.get(mine, TenantTerms(mine, applied=limits_of(mine, limits)))}
    rows = [replace(terms, stored_bytes=_stored_bytes(service, terms)) for terms in tenants.values()]
    return TenantList(tenants=rows, every_tenant=limits.get(EVERY_TENANT, NO_LIMITS))


@router.put("/tenants/{name}", status_code=202)
async def set_tenant(
    name: Annotated[Name, Path()], settings: TenantSettings, caller: Caller, service: Service
) -> TakenRequest:
    """Set a tenant's weight and replace all its quotas."""
    quotas = tuple(Quota(**quota.model_dump()) for quota in settings.quotas)
    types = [quota.type for quota in quotas]
    for type_ in types:
        if type_ not in service.cluster.types:
            hint = did_you_mean(type_, service.cluster.types)
            raise InputError(f'quotas: type "{printable(type_)}" is not in the cluster; {hint}')
    if len(set(types)) < len(types):
        raise InputError("quotas: a type appears twice; keep one of them")
    return await _ask(
        service, caller, SetTenant(name, settings.weight, quotas), "tenant.set", name, settings.model_dump()
    )


@router.put("/tenants/{name}/limits", status_code=202)
async def set_tenant_limits(
    name: Annotated[Name, Path()], settings: LimitSettings, caller: Caller, service: Service
) -> TakenRequest:
    """Replace all limits of a tenant."""
    return await _set_limits(service, caller, name, settings)


@router.put("/limits", status_code=202)
async def set_limits(settings: LimitSettings, caller: Caller, service: Service) -> TakenRequest:
    """Replace all limits of tenants without their own."""
    return await _set_limits(service, caller, EVERY_TENANT, settings)


@router.get("/policy")
def show_policy(caller: Caller, service: Service) -> PolicyState:
    name, parameters = service.reads.policy()
    known = {**REGISTERED, **service.own_policies}
    card = known.get(name, PolicyCard(name))  # a file that this start does not have
    return PolicyState(
        name=name,
        parameters={**card.parameters, **parameters},
        summary=card.summary,
        paper=card.paper,
        available=list(known),
    )


@router.put("/policy", status_code=202)
async def set_policy(choice: PolicyChoice, caller: Caller, service: Service) -> TakenRequest:
    """Switch to another policy: a registered one, or one in a file of the operator."""
    names = [*REGISTERED, *service.own_policies]
    if choice.name not in names:
        problem = f'policy "{choice.name}" is not known'
        if choice.name in TASK_POLICIES:
            problem = "this policy decides single tasks, which only the simulator runs"
        raise ApiError(422, "no_such_policy", problem, did_you_mean(choice.name, names))
    if choice.name in service.own_policies:
        await try_apart(service.policy_files, choice.name, choice.parameters)
    else:
        configured(choice.name, choice.parameters)
    request = SetPolicy(choice.name, choice.parameters)
    return await _ask(service, caller, request, "policy.set", choice.name, choice.parameters)


@router.get("/shares")
async def shares(
    caller: Caller,
    service: Service,
    promises: Annotated[
        bool, Query(description="Also whether each promise of the policy was kept so far; may take seconds.")
    ] = False,
) -> ShareList:
    """The GPUs that each tenant holds and those that its weight entitles it to, visible to all tenants."""
    present = await run_in_threadpool(present_shares, service)
    if not promises:
        return present
    report = await audit(caller, service)
    return present.model_copy(update={"promises": report.promises})


def present_shares(service: ServiceContext) -> ShareList:
    reads = service.reads
    rows = tenant_shares(reads.nodes(), reads.tenants(), reads.by_tenant(), reads.held())
    return ShareList(policy=reads.policy()[0], shares=rows)


@router.get("/audit")
async def audit(caller: Caller, service: Service) -> AuditReport:
    """Envy and sharing incentive over the whole life of the service, from its log; may take seconds.

    Numbers of all tenants are visible to all, the names of a tenant's models to its own members.
    """
    async with service.auditing:
        report = await audit_apart(service.directory)
    if (mine := scope_of(caller)) is not None:
        report["rates"] = [rate for rate in report["rates"] if rate["tenant"] == mine]
        report["trials"] = {tenant: cost for tenant, cost in report["trials"].items() if tenant == mine}
    return AuditReport.model_validate(report)


@router.get("/decisions")
async def decisions(
    caller: Caller,
    service: Service,
    before: Annotated[int, Query(ge=0, le=2**62)] = 2**62,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> DecisionPage:
    mine = scope_of(caller)
    page: list[DecisionRecord] = []
    for seq, record in service.reads.decisions(before, limit):
        own = record if mine is None else only_of(service, record, mine)
        page.append(DecisionRecord(seq=seq, **own))
    return DecisionPage(decisions=page)


def only_of(service: ServiceContext, record: dict[str, Any], tenant: str) -> dict[str, Any]:
    """A decision without the jobs of other tenants."""
    parts = {name: record[name] for name in _NAMES_JOBS if name in record}
    taken_by: dict[str, list[str]] = parts.get("taken_by", {})
    ids = sorted({id_ for part in (*parts.values(), *taken_by.values()) for id_ in part})
    own = {id_ for id_, owner in service.reads.tenants_of(ids).items() if owner == tenant} if ids else set()
    if taken_by:
        parts["taken_by"] = {id_: [one for one in jobs if one in own] for id_, jobs in taken_by.items()}
    return {**record, **{name: _kept(part, own) for name, part in parts.items()}}


_NAMES_JOBS = ("stop", "start", "why", "trials", "taken_by")  # parts of a decision: lists of jobs, or mappings by job


def _kept(part: Any, own: set[str]) -> Any:
    if isinstance(part, dict):
        return {id_: value for id_, value in part.items() if id_ in own}
    return [id_ for id_ in part if id_ in own]


def _known_node(service: ServiceContext, name: str) -> str:
    names = [row.name for row in service.reads.nodes()]
    if name not in names:
        raise ApiError(404, "no_such_node", "the cluster has no node of this name", did_you_mean(name, names))
    return name


async def _set_limits(service: ServiceContext, caller: Token, tenant: str, settings: LimitSettings) -> TakenRequest:
    request = SetLimits(tenant, TenantLimits(**settings.model_dump()))
    return await _ask(service, caller, request, "limits.set", tenant or "every tenant", settings.model_dump())


def _stored_bytes(service: ServiceContext, terms: TenantTerms) -> int | None:
    return None if terms.applied.checkpoint_bytes is None else service.checkpoints.of(terms.name)


async def _ask(
    service: ServiceContext, caller: Token, request: Request, action: str, target: str, detail: dict[str, Any]
) -> TakenRequest:
    number = await service.writer.write(ask(caller.actor, request, AuditEntry(action, target, detail)))
    return TakenRequest(request=number, taken=await service.until_taken(number))
