"""Nodes, tenants, policy, shares, fairness, decisions: the cluster as a whole."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query

from fairlead import __version__
from fairlead.engines.requests import AddNode, Drain, RemoveNode, Request, Resume, SetPolicy, SetTenant
from fairlead.model.cluster import NodeGroup
from fairlead.model.errors import InputError
from fairlead.model.gpus import canonical_gpu
from fairlead.model.quotas import Quota
from fairlead.model.words import did_you_mean
from fairlead.policies import TASK_POLICIES
from fairlead.service.api.access import scope_of
from fairlead.service.api.audit import audit_apart
from fairlead.service.api.context import Caller, Service, ServiceContext
from fairlead.service.api.documents import (
    AuditReport,
    DecisionPage,
    DecisionRecord,
    GpuCounts,
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
from fairlead.service.api.error_responses import ApiError, no_such
from fairlead.service.api.shares import tenant_shares
from fairlead.service.jobfile import Name
from fairlead.service.live_policies import NAMES, configured, tried
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
    mine = scope_of(caller)
    tenants = service.reads.tenants()
    if mine is not None:
        tenants = {mine: tenants.get(mine, TenantTerms(mine))}
    return TenantList(tenants=list(tenants.values()))


@router.put("/tenants/{name}", status_code=202)
async def set_tenant(
    name: Annotated[Name, Path()], settings: TenantSettings, caller: Caller, service: Service
) -> TakenRequest:
    """Set a tenant's weight and replace all its quotas."""
    quotas = tuple(Quota(**quota.model_dump()) for quota in settings.quotas)
    types = [quota.type for quota in quotas]
    for type_ in types:
        if type_ not in service.cluster.types:
            raise InputError(f"quotas: a type is not in the cluster; {did_you_mean(type_, service.cluster.types)}")
    if len(set(types)) < len(types):
        raise InputError("quotas: a type appears twice; keep one of them")
    return await _ask(
        service, caller, SetTenant(name, settings.weight, quotas), "tenant.set", name, settings.model_dump()
    )


@router.get("/policy")
def show_policy(caller: Caller, service: Service) -> PolicyState:
    name, parameters = service.reads.policy()
    policy = configured(name, parameters)
    return PolicyState(
        name=name,
        parameters=dict(policy.parameters),
        summary=policy.summary,
        paper=policy.paper,
        available=NAMES,
    )


@router.put("/policy", status_code=202)
async def set_policy(choice: PolicyChoice, caller: Caller, service: Service) -> TakenRequest:
    """Switch to another registered policy."""
    if choice.name not in NAMES:
        known = choice.name in TASK_POLICIES
        problem = (
            "this policy decides single tasks, which only the simulator runs" if known else "there is no such policy"
        )
        raise ApiError(422, "no_such_policy", problem, did_you_mean(choice.name, NAMES))
    tried(choice.name, choice.parameters)
    request = SetPolicy(choice.name, choice.parameters)
    return await _ask(service, caller, request, "policy.set", choice.name, choice.parameters)


@router.get("/shares")
def shares(caller: Caller, service: Service) -> ShareList:
    """The GPUs that each tenant holds and those that its weight entitles it to, visible to all tenants."""
    reads = service.reads
    return ShareList(shares=tenant_shares(reads.nodes(), reads.tenants(), reads.by_tenant(), reads.held()))


@router.get("/audit")
async def audit(caller: Caller, service: Service) -> AuditReport:
    """Envy and sharing incentive over the whole life of the service, from its log; may take seconds."""
    async with service.auditing:
        return AuditReport.model_validate(await audit_apart(service.directory))


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
    ids = {*record["stop"], *record["start"]}
    owner = service.reads.tenants_of(sorted(ids)) if ids else {}
    return {
        **record,
        "stop": [id_ for id_ in record["stop"] if owner.get(id_) == tenant],
        "start": {id_: spot for id_, spot in record["start"].items() if owner.get(id_) == tenant},
    }


def _known_node(service: ServiceContext, name: str) -> str:
    if name not in {row.name for row in service.reads.nodes()}:
        raise no_such("node", "of this name")
    return name


async def _ask(
    service: ServiceContext, caller: Token, request: Request, action: str, target: str, detail: dict[str, Any]
) -> TakenRequest:
    number = await service.writer.write(ask(caller.actor, request, AuditEntry(action, target, detail)))
    return TakenRequest(request=number, taken=await service.until_taken(number))
