"""Nodes, tenants, policy, shares, fairness, decisions: the cluster as a whole."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from fairlead import __version__
from fairlead.engines.requests import Drain, Request, Resume, SetPolicy, SetTenant
from fairlead.model.errors import InputError
from fairlead.model.quotas import Quota
from fairlead.model.words import did_you_mean
from fairlead.policies import REGISTRY
from fairlead.service.api.access import scope_of
from fairlead.service.api.audit import audit_apart
from fairlead.service.api.context import Service, What, Who
from fairlead.service.api.error_responses import ApiError, no_such
from fairlead.service.jobfile import Name
from fairlead.service.live_policies import NAMES, configured, tried
from fairlead.service.store.changes import AuditEntry, ask
from fairlead.service.store.tokens import Token

router = APIRouter(prefix="/v1", tags=["cluster"])


class Node(BaseModel):
    name: str
    type: str
    gpus: int
    free: int
    up: bool


class Nodes(BaseModel):
    nodes: list[Node]


class Asked(BaseModel):
    """`taken`: the scheduler knows of it already."""

    request: int
    taken: bool


class QuotaGiven(BaseModel):
    """GPUs of one type: its own, how many more it may borrow, how many of its own others may use. null = no limit."""

    model_config = ConfigDict(extra="forbid")

    type: str
    nominal: int = Field(ge=0, le=10**6)
    borrowing_limit: int | None = Field(default=None, ge=0, le=10**6)
    lending_limit: int | None = Field(default=None, ge=0, le=10**6)


class TenantGiven(BaseModel):
    model_config = ConfigDict(extra="forbid")

    weight: float = Field(default=1.0, gt=0, le=1e9)
    quotas: list[QuotaGiven] = Field(default=[], max_length=64)


class TenantShown(BaseModel):
    name: str
    weight: float
    quotas: list[QuotaGiven]


class Tenants(BaseModel):
    tenants: list[TenantShown]


class PolicyGiven(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(max_length=63)
    parameters: dict[str, Any] = Field(default={}, max_length=32)


class PolicyShown(BaseModel):
    name: str
    parameters: dict[str, Any]
    summary: str
    paper: str
    available: list[str]


class Share(BaseModel):
    """`entitled` is the tenant's part of every type by its weight among those who have jobs now."""

    tenant: str
    weight: float
    waiting: int
    running: int
    held: dict[str, int]
    entitled: dict[str, float]
    gpu_hours: float


class Shares(BaseModel):
    shares: list[Share]


class Decisions(BaseModel):
    """Newest first; `seq` of the last one goes into `before` of the next request."""

    decisions: list[dict[str, Any]]


class Status(BaseModel):
    version: str
    policy: str
    jobs: dict[str, int]
    gpus: dict[str, dict[str, int]]
    nodes_down: list[str]
    scheduler: dict[str, Any]


NodeName = Annotated[str, Path(max_length=200)]


@router.get("/status", response_model=Status)
def status(who: Who, service: What) -> JSONResponse:
    """The cluster at a glance; jobs are the caller's own where its token has a tenant."""
    gpus: dict[str, dict[str, int]] = {name: {"total": 0, "up": 0, "held": 0} for name in service.cluster.types}
    nodes = service.reads.nodes()
    for node in nodes:
        row = gpus[node["type"]]
        row["total"] += node["gpus"]
        row["up"] += node["gpus"] if node["up"] else 0
        row["held"] += node["gpus"] - node["free"]
    return JSONResponse(
        {
            "version": __version__,
            "policy": service.reads.policy()[0],
            "jobs": service.reads.counts(scope_of(who)),
            "gpus": gpus,
            "nodes_down": [node["name"] for node in nodes if not node["up"]],
            "scheduler": service.scheduler(),
        }
    )


@router.get("/nodes", response_model=Nodes)
def list_nodes(who: Who, service: What) -> JSONResponse:
    return JSONResponse({"nodes": service.reads.nodes()})


@router.post("/nodes/{name}/drain", status_code=202, response_model=Asked)
async def drain(name: NodeName, who: Who, service: What) -> JSONResponse:
    """Its jobs are asked to leave; nothing starts there until it is resumed."""
    return await _ask(service, who, Drain(_known_node(service, name)), "node.drain", name, {})


@router.post("/nodes/{name}/resume", status_code=202, response_model=Asked)
async def resume(name: NodeName, who: Who, service: What) -> JSONResponse:
    return await _ask(service, who, Resume(_known_node(service, name)), "node.resume", name, {})


@router.get("/tenants", response_model=Tenants)
def list_tenants(who: Who, service: What) -> JSONResponse:
    mine = scope_of(who)
    found = service.reads.tenants()
    if mine is not None:
        found = {mine: found.get(mine, {"weight": 1.0, "quotas": []})}
    return JSONResponse({"tenants": [{"name": name, **row} for name, row in found.items()]})


@router.put("/tenants/{name}", status_code=202, response_model=Asked)
async def set_tenant(name: Annotated[Name, Path()], given: TenantGiven, who: Who, service: What) -> JSONResponse:
    """Its weight, and limits in place of all that it had before."""
    quotas = tuple(Quota(**quota.model_dump()) for quota in given.quotas)
    types = [quota.type for quota in quotas]
    for type_ in types:
        if type_ not in service.cluster.types:
            raise InputError(f"quotas: a type is not in the cluster; {did_you_mean(type_, service.cluster.types)}")
    if len(set(types)) < len(types):
        raise InputError("quotas: a type stands twice; keep one of them")
    return await _ask(service, who, SetTenant(name, given.weight, quotas), "tenant.set", name, given.model_dump())


@router.get("/policy", response_model=PolicyShown)
def show_policy(who: Who, service: What) -> JSONResponse:
    name, parameters = service.reads.policy()
    policy = REGISTRY[name]
    return JSONResponse(
        {
            "name": name,
            "parameters": configured(name, parameters).parameters,
            "summary": policy.summary,
            "paper": policy.paper,
            "available": NAMES,
        }
    )


@router.put("/policy", status_code=202, response_model=Asked)
async def set_policy(given: PolicyGiven, who: Who, service: What) -> JSONResponse:
    """Registered policies only."""
    if given.name not in NAMES:
        known = given.name in REGISTRY
        what = "this policy decides single tasks, which only the simulator runs" if known else "there is no such policy"
        raise ApiError(422, "no_such_policy", what, did_you_mean(given.name, NAMES))
    tried(given.name, given.parameters)
    request = SetPolicy(given.name, given.parameters)
    return await _ask(service, who, request, "policy.set", given.name, given.parameters)


@router.get("/shares", response_model=Shares)
def shares(who: Who, service: What) -> JSONResponse:
    """Who holds how much of what, beside what weights alone would give. Open to all tenants: fairness is shown."""
    reads = service.reads
    nodes, tenants, counted, holding = reads.nodes(), reads.tenants(), reads.by_tenant(), reads.held()
    for name in (*counted, *(owner for owner, _ in holding)):
        # Whose first job was taken between one look and the next.
        tenants.setdefault(name, {"weight": 1.0, "quotas": []})
    type_of: dict[str, str] = {node["name"]: node["type"] for node in nodes}
    up = dict.fromkeys(service.cluster.types, 0)
    for node in nodes:
        up[node["type"]] += node["gpus"] if node["up"] else 0
    held: dict[str, dict[str, int]] = {name: {} for name in tenants}
    for owner, spot in holding:
        row = held[owner]
        for name, count in spot.items():
            row[type_of[name]] = row.get(type_of[name], 0) + count
    total = sum(tenants[name]["weight"] for name, jobs in counted.items() if jobs["waiting"] + jobs["running"])
    rows: list[dict[str, Any]] = []
    for name, tenant in tenants.items():
        jobs = counted.get(name, {"waiting": 0, "running": 0, "gpu_hours": 0.0})
        part = tenant["weight"] / total if jobs["waiting"] + jobs["running"] else 0.0
        entitled = {type_: part * gpus for type_, gpus in up.items()}
        rows.append({"tenant": name, "weight": tenant["weight"], "held": held[name], "entitled": entitled, **jobs})
    return JSONResponse({"shares": rows})


@router.get("/audit", response_model=dict[str, Any])
async def audit(who: Who, service: What) -> JSONResponse:
    """Envy and sharing incentive over the whole life of the service, from its log; may take seconds."""
    async with service.auditing:
        return JSONResponse(await audit_apart(service.directory))


@router.get("/decisions", response_model=Decisions)
async def decisions(
    who: Who,
    service: What,
    before: Annotated[int, Query(ge=0, le=2**62)] = 2**62,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> JSONResponse:
    mine = scope_of(who)
    found = service.reads.decisions(before, limit)
    shown = [{"seq": seq, **(record if mine is None else only_of(service, record, mine))} for seq, record in found]
    return JSONResponse({"decisions": shown})


def only_of(service: Service, record: dict[str, Any], tenant: str) -> dict[str, Any]:
    """A decision without the jobs of others."""
    ids = {*record["stop"], *record["start"]}
    owner = service.reads.tenants_of(sorted(ids)) if ids else {}
    return {
        **record,
        "stop": [id_ for id_ in record["stop"] if owner.get(id_) == tenant],
        "start": {id_: spot for id_, spot in record["start"].items() if owner.get(id_) == tenant},
    }


def _known_node(service: Service, name: str) -> str:
    if name not in service.cluster.nodes:
        raise no_such("node", "of this name")
    return name


async def _ask(
    service: Service, who: Token, request: Request, action: str, target: str, detail: dict[str, Any]
) -> JSONResponse:
    number = await service.writer.write(ask(who.actor, request, AuditEntry(action, target, detail)))
    return JSONResponse({"request": number, "taken": await service.until_taken(number)}, 202)
