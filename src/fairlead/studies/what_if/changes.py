"""The changes that a what-if question makes to the present, and a present that has been changed.

A change is folded into a copy of the state as the event that the live service would record for it, at the state's time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from fairlead.model.cluster import NodeGroup
from fairlead.model.errors import ImpossibleError, InputError, NotFoundError
from fairlead.model.events import (
    Cancelled,
    Event,
    Held,
    Lost,
    NodeAdded,
    NodeDown,
    NodeRemoved,
    NodeUp,
    Released,
    TenantSet,
)
from fairlead.model.jobs import JobSpec
from fairlead.model.lifecycle import ENDED, Phase
from fairlead.model.quotas import Quota
from fairlead.model.words import did_you_mean
from fairlead.policies.policy import Policy
from fairlead.rates.estimator import allowed_rates, mixable_types, runs_somewhere
from fairlead.rounds.copying import copied
from fairlead.rounds.describing import describe_again
from fairlead.rounds.journal import Header
from fairlead.rounds.state import State
from fairlead.studies.runs.origin import Origin


@dataclass(frozen=True, slots=True)
class UsePolicy:
    """Another policy, or the same one with other parameters, decides from now on."""

    policy: Policy


@dataclass(frozen=True, slots=True)
class SetTerms:
    """A tenant has another weight or other quotas; None keeps what it has."""

    tenant: str
    weight: float | None = None
    quotas: tuple[Quota, ...] | None = None


@dataclass(frozen=True, slots=True)
class LimitPreemption:
    """Pre-emption may cost this much in an hour, in all or for each tenant; None keeps the limit as it is."""

    gpu_s: float | None = None
    tenant_gpu_s: float | None = None


@dataclass(frozen=True, slots=True)
class AddNodes:
    """New nodes join, named after their GPU type."""

    group: NodeGroup


@dataclass(frozen=True, slots=True)
class TakeNode:
    """A node leaves after its jobs have saved their state."""

    node: str


@dataclass(frozen=True, slots=True)
class ReturnNode:
    """A node that is down comes up again."""

    node: str


@dataclass(frozen=True, slots=True)
class SubmitJobs:
    """These jobs arrive now, whatever their `arrival_s`."""

    jobs: tuple[JobSpec, ...]


@dataclass(frozen=True, slots=True)
class CancelJob:
    job: str


@dataclass(frozen=True, slots=True)
class HoldJob:
    """A job leaves the queue, after a checkpoint if it runs."""

    job: str


@dataclass(frozen=True, slots=True)
class ReleaseJob:
    """A job that is on hold returns to the queue."""

    job: str


@dataclass(frozen=True, slots=True)
class ReshapeJob:
    """A job that holds no GPUs has another width or other types; None keeps what it has.

    Its length in samples stays the same. If `gpus` changes and `widths` is None, the job has this one width.
    """

    job: str
    gpus: int | None = None
    widths: tuple[int, ...] | None = None
    types: tuple[str, ...] | None = None  # empty: any


@dataclass(frozen=True, slots=True)
class ScaleArrivals:
    """Jobs keep arriving at `factor` times the recent rate, in place of recorded arrivals. 0: no job arrives."""

    factor: float

    def __post_init__(self) -> None:
        if not 0 <= self.factor <= 100:
            raise InputError(f"load {self.factor:g}: wanted a factor from 0 to 100, such as 1.3")


_Event = SetTerms | AddNodes | TakeNode | ReturnNode | CancelJob | HoldJob | ReleaseJob
Hypothetical = _Event | UsePolicy | LimitPreemption | SubmitJobs | ReshapeJob | ScaleArrivals


@dataclass(frozen=True)
class Changed:
    """An origin with changes, whose state is its own copy, and what the changes demand of the simulation."""

    origin: Origin
    submitted: tuple[JobSpec, ...] = ()  # they arrive at the time of the state
    load: float | None = None  # None: the arrivals that the origin has recorded


def apply_changes(origin: Origin, changes: Iterable[Hypothetical]) -> Changed:
    """The origin after all changes, in this order. The given origin stays as it is."""
    changed = Changed(replace(origin, state=copied(origin.state)))
    for change in changes:
        changed = _apply(changed, change)
    return changed


def _apply(changed: Changed, change: Hypothetical) -> Changed:
    origin = changed.origin
    match change:
        case UsePolicy(policy):
            same = (policy.name, policy.parameters) == (origin.policy.name, origin.policy.parameters)
            carried = origin.carried if same else None
            return replace(changed, origin=replace(origin, policy=policy, carried=carried))
        case LimitPreemption(gpu_s, tenant_gpu_s):
            settings = origin.settings
            settings = replace(
                settings,
                preemption_gpu_s=settings.preemption_gpu_s if gpu_s is None else gpu_s,
                tenant_preemption_gpu_s=settings.tenant_preemption_gpu_s if tenant_gpu_s is None else tenant_gpu_s,
            )
            return replace(changed, origin=_due_now(replace(origin, settings=settings)))
        case ScaleArrivals(factor):
            return replace(changed, load=factor)
        case SubmitJobs(jobs):
            arriving = tuple(replace(spec, arrival_s=origin.state.now_s) for spec in jobs)
            _check_submitted(origin.state, (*changed.submitted, *arriving), arriving)
            return replace(changed, submitted=(*changed.submitted, *arriving))
        case ReshapeJob():
            describe_again(origin.state, *_reshaped(origin.state, change))
        case _:
            for event in _events(origin.header, origin.state, change):
                origin.state.fold(event)
    return replace(changed, origin=_due_now(origin))


def _due_now(origin: Origin) -> Origin:
    """A change of the state makes a decision due, as an event would."""
    carried = origin.carried
    if carried is None:
        return origin
    return replace(origin, carried=replace(carried, due_s=min(carried.due_s, origin.state.now_s)))


def _events(header: Header, state: State, change: _Event) -> list[Event]:
    now_s = state.now_s
    match change:
        case SetTerms(tenant, weight, quotas):
            return [_terms(state, tenant, weight, quotas)]
        case AddNodes(group):
            _check_type(header, group)
            names = _new_names(state, group)
            return [NodeAdded(now_s, name, group.gpu, group.gpus, group.memory) for name in names]
        case TakeNode(node):
            return _leaving(state, node)
        case ReturnNode(node):
            return [NodeUp(now_s, _node(state, node))]
        case CancelJob(id_):
            return [Cancelled(now_s, np.array([_unfinished(state, id_)]))]
        case HoldJob(id_):
            jobs = np.array([_unfinished(state, id_)])
            return [Held(now_s, jobs, state.done_at(jobs, now_s))]
        case ReleaseJob(id_):
            j = _unfinished(state, id_)
            if state.phase[j] != Phase.HELD and j not in state.pauses:
                raise InputError(f"job {id_} is not on hold, so it cannot be released")
            return [Released(now_s, np.array([j]))]


def _terms(state: State, tenant: str, weight: float | None, quotas: tuple[Quota, ...] | None) -> TenantSet:
    if tenant not in state.tenants:
        raise NotFoundError(f'there is no tenant "{tenant}"; {did_you_mean(tenant, state.tenants)}')
    if weight is not None and not (math.isfinite(weight) and weight > 0):
        raise InputError(f"the weight of {tenant} is {weight:g}; wanted a number above 0")
    for quota in quotas or ():
        if quota.type not in state.cluster.types:
            raise NotFoundError(f'there is no type "{quota.type}"; {did_you_mean(quota.type, state.cluster.types)}')
    u = state.tenants[tenant]
    own = state.quotas_of(u)
    return TenantSet(
        state.now_s,
        tenant,
        state.tenant_weight[u] if weight is None else weight,
        own if quotas is None else (*(quota for quota in own if quota.type not in {q.type for q in quotas}), *quotas),
    )


def _check_type(header: Header, group: NodeGroup) -> None:
    """Refuse GPUs on which no job could run, because no speed is known."""
    known = header.profile.gpus
    if group.gpu not in known and not header.more.get("unmeasured"):
        raise InputError(f"no speed on {group.gpu} is known here (known: {', '.join(known)}); choose one of these")


def _new_names(state: State, group: NodeGroup) -> list[str]:
    label, taken, names = group.name or f"new-{group.gpu}", set(state.cluster.nodes), list[str]()
    number = 1
    while len(names) < group.count:
        if f"{label}-{number}" not in taken:
            names.append(f"{label}-{number}")
        number += 1
    return names


def _leaving(state: State, name: str) -> list[Event]:
    node, now_s = _node(state, name), state.now_s
    events: list[Event] = [NodeDown(now_s, node)] if state.node_up[node] else []
    on_it = [j for j in state.active_jobs.tolist() if any(part == node for part, _ in state.spots[j])]
    if on_it:
        jobs = np.array(on_it, dtype=np.int64)
        events.append(Lost(now_s, jobs, state.done_at(jobs, now_s)))
    return [*events, NodeRemoved(now_s, node)]


def _node(state: State, name: str) -> int:
    sizes = zip(state.cluster.nodes, state.cluster.node_gpus.tolist(), strict=True)
    present = [node for node, gpus in sizes if gpus]
    if name not in present:
        raise NotFoundError(f'there is no node "{name}"; {did_you_mean(name, present)}')
    return state.cluster.nodes.index(name)


def _unfinished(state: State, id_: str) -> int:
    j = state.position.get(id_)
    if j is None:
        raise NotFoundError(f'there is no job "{id_}"; {did_you_mean(id_, state.position)}')
    if int(state.phase[j]) in ENDED:
        raise InputError(f"job {id_} has ended; only a job that has not can be changed")
    return j


def _check_submitted(state: State, all_jobs: tuple[JobSpec, ...], arriving: tuple[JobSpec, ...]) -> None:
    ids = [spec.id for spec in all_jobs]
    for spec in arriving:
        if spec.id in state.position or ids.count(spec.id) > 1:
            raise InputError(f"there is a job {spec.id} already; give the new one another name")
        _check_fits(state, spec)


def _check_fits(state: State, spec: JobSpec) -> None:
    rates = allowed_rates(spec, state.cluster, state.estimator)
    if not runs_somewhere(rates, mixable_types(spec, state.cluster, state.estimator)):
        types = ", ".join(spec.types) or "any type"
        raise ImpossibleError(
            f"job {spec.id} can never run on this cluster: {spec.gpus} GPUs of {types}; change its GPUs or types"
        )


def _reshaped(state: State, change: ReshapeJob) -> tuple[int, JobSpec]:
    j = _unfinished(state, change.job)
    if state.held_gpus[j]:
        raise InputError(f"job {change.job} holds GPUs; only a job that waits can have another width or other types")
    spec, steps_of = state.specs[j], state.estimator.samples_per_step
    gpus = spec.gpus if change.gpus is None else change.gpus
    kept = spec.widths if gpus == spec.gpus else (gpus,)
    steps = spec.steps
    if steps is not None and gpus != spec.gpus:
        steps *= steps_of(spec.model, spec.gpus) / steps_of(spec.model, gpus)
    types = spec.types if change.types is None else change.types
    other = replace(spec, gpus=gpus, widths=change.widths or kept, types=types, steps=steps)
    _check_fits(state, other)
    return j, other
