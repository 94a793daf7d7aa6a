"""The fairness of a run over time, read from its journal."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from fairlead.model.arrays import FloatArray
from fairlead.model.decision import Decision
from fairlead.model.events import Arrived, NodeAdded, Served, TenantSet
from fairlead.numerics.fairness import normalise
from fairlead.rates.factors import RateSource
from fairlead.rounds.journal import Header, JournalReader
from fairlead.rounds.known_factors import KnownFactor, known_factors
from fairlead.rounds.model_trials import TrialCost, trial_costs
from fairlead.rounds.records import Record
from fairlead.rounds.speeds import measured_rates, rate_sources
from fairlead.rounds.state import State
from fairlead.studies.journals.folding import consistent, open_state

ALWAYS = 0.99  # of a round
_SOURCES = list(RateSource)


@dataclass(frozen=True, slots=True)
class AuditedTenant:
    wanted_more_h: float  # hours in which it could have used more
    sharing_incentive: float | None  # None if there were none
    gpu_hours: Mapping[str, float]  # by type
    rates_by_source: Mapping[str, float]  # GPU-hours by the source of the rate by which they are valued


@dataclass(frozen=True, slots=True)
class RunAudit:
    """The fairness of a run, averaged over time; docs/metrics.md defines the numbers."""

    max_envy: float | None  # None if it is unbounded because the envious tenant held nothing
    envious: list[str] | None  # the most envious tenant, and the tenant that it envies
    min_sharing_incentive: float | None
    mean_sharing_incentive: float | None
    worst_off: str | None
    rates: list[KnownFactor]  # how the rates that policies see at the end of the run are known
    tenants: Mapping[str, AuditedTenant]
    # By tenant and model: what it cost to measure new models.
    trials: Mapping[str, Mapping[str, TrialCost]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(slots=True)
class _Ledger:
    """Integrals by tenant over the time in which it could have used more."""

    wanted_s: FloatArray  # u
    own: FloatArray  # u,v  value per weight of what u held while v was active too
    others: FloatArray  # u,v  value to u, per weight, of what v held
    alone: FloatArray  # u  value of u's private slice, per weight
    held: FloatArray  # u,t  GPU-seconds over the whole run
    source: FloatArray  # u,s  the same by the source of their rates, in the order of `RateSource`


def audit_journal(path: Path) -> RunAudit:
    """Envy and sharing incentive of a run, averaged over time.

    Tenant u counts while one of its jobs waits after a decision that could have started it, because only then could u use
    more. During that time, what u held per unit of weight is compared with what every other active tenant v held, and
    with its private slice of the cluster, w_u / sum(w). GPUs are valued by the jobs that hold them, in units of the
    slowest type that they can use; GPUs of others by the mean speedups of u's active jobs. Speeds are those that policies
    saw at the time, measured where jobs have reported. In runs of single tasks, a job
    waits if it is served for less than `ALWAYS` of a round.
    """
    reader = JournalReader(path)
    with consistent(path):
        return audit_records(reader.header(), reader.records)


def audit_records(header: Header, records: Callable[[], Iterable[Record]]) -> RunAudit:
    """The same for records from any source; they are read twice."""
    names = _tenants(header, records())
    u, t = len(names), len(header.cluster.types)
    ledger = _Ledger(
        np.zeros(u), np.zeros((u, u)), np.zeros((u, u)), np.zeros(u), np.zeros((u, t)), np.zeros((u, len(_SOURCES)))
    )
    state = open_state(header)
    decided_s = -math.inf
    for record in records():
        if record.time_s > state.now_s and state.active:
            _add(ledger, state, decided_s, record.time_s - state.now_s)
        state.fold(record)
        if isinstance(record, NodeAdded):  # perhaps with a type that is new
            ledger.held = np.pad(ledger.held, ((0, 0), (0, len(state.cluster.types) - ledger.held.shape[1])))
        if isinstance(record, Decision | Served):
            decided_s = record.time_s
    verdict = _verdict(ledger, names, list(state.cluster.types), known_factors(state))
    return replace(verdict, trials=trial_costs(state))


def _tenants(header: Header, records: Iterable[Record]) -> list[str]:
    """Tenants in the order of their numbers in the state."""
    names: dict[str, None] = dict.fromkeys(open_state(header).tenants)
    for record in records:
        if isinstance(record, Arrived):
            names.setdefault(record.spec.tenant)
        elif isinstance(record, TenantSet):
            names.setdefault(record.tenant)
    return list(names)


def _add(ledger: _Ledger, state: State, decided_s: float, seconds: float) -> None:
    active, _ = state.schedulable()  # a job without usable hardware could not use more
    tenant = state.tenant[active]  # j
    W = normalise(measured_rates(state, active) / state.width[active, None])  # j,t
    running = state.held_gpus[active] > 0
    served = running | (state.part[active] >= ALWAYS)
    wants = np.unique(tenant[~served & (state.arrival_s[active] <= decided_s)])
    here = np.unique(tenant)
    held, own = np.zeros(ledger.held.shape), np.zeros(len(ledger.own))  # u,t  u
    for place in np.flatnonzero(running).tolist():
        sources = rate_sources(state, int(active[place]))
        for node, count in state.spots[active[place]]:
            t = state.cluster.node_type[node]
            held[tenant[place], t] += count
            own[tenant[place]] += count * W[place, t]
            ledger.source[tenant[place], _SOURCES.index(sources[t])] += seconds * count
    for place, j in enumerate(active.tolist() if state.served else ()):
        if j in state.served:
            held[tenant[place]] += state.served[j]
            for t, source in enumerate(rate_sources(state, j)):
                ledger.source[tenant[place], _SOURCES.index(source)] += seconds * state.served[j][t]
            own[tenant[place]] += state.served[j] @ W[place]
    ledger.held += seconds * held
    if not wants.size:
        return
    weight = np.ones(len(own))  # u  the weights of tenants that have not appeared yet do not matter
    weight[: len(state.tenant_weight)] = state.tenant_weight
    jobs = np.bincount(tenant, minlength=len(weight))
    mean = np.zeros((len(weight), W.shape[1]))  # u,t  speedups
    np.add.at(mean, tenant, W)
    mean[here] /= jobs[here, None]
    pairs = np.ix_(wants, here)
    ledger.wanted_s[wants] += seconds
    ledger.own[pairs] += seconds * (own / weight)[wants, None]
    ledger.others[pairs] += seconds * mean[wants] @ (held[here] / weight[here, None]).T
    ledger.alone[wants] += seconds * (mean[wants] @ state.capacity) / weight[here].sum()


def _verdict(ledger: _Ledger, names: list[str], types: list[str], rates: tuple[KnownFactor, ...]) -> RunAudit:
    compared = np.flatnonzero(ledger.alone > 0)
    own = ledger.own.diagonal()[compared]
    incentive = own / ledger.alone[compared]
    envy = np.divide(ledger.others, ledger.own, out=np.ones_like(ledger.own), where=ledger.own > 0) - 1.0
    envy[(ledger.own <= 0) & (ledger.others > 0)] = math.inf
    np.fill_diagonal(envy, 0.0)
    u, v = divmod(int(envy.argmax()), len(names)) if names else (0, 0)
    most = max(float(envy[u, v]), 0.0) if names else 0.0
    return RunAudit(
        max_envy=most if math.isfinite(most) else None,
        envious=[names[u], names[v]] if most > 0 else None,
        min_sharing_incentive=float(incentive.min()) if len(compared) else None,
        mean_sharing_incentive=float(incentive.mean()) if len(compared) else None,
        worst_off=names[int(compared[incentive.argmin()])] if len(compared) else None,
        rates=list(rates),
        tenants={
            name: AuditedTenant(
                wanted_more_h=float(ledger.wanted_s[u] / 3600),
                sharing_incentive=float(ledger.own[u, u] / ledger.alone[u]) if ledger.alone[u] > 0 else None,
                gpu_hours=dict(zip(types, (ledger.held[u] / 3600).tolist(), strict=True)),
                rates_by_source={
                    source.value: hours
                    for source, hours in zip(_SOURCES, (ledger.source[u] / 3600).tolist(), strict=True)
                    if hours > 0
                },
            )
            for u, name in enumerate(names)
        },
    )
