"""The fairness of a run over time, read from its journal."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fairlead.model.arrays import FloatArray
from fairlead.model.decision import Decision
from fairlead.model.events import Arrived, Event, PolicySet, Served, SettingsSet
from fairlead.policies.policy import Promise
from fairlead.rounds.journal import Header, JournalReader
from fairlead.rounds.known_factors import KnownFactor, known_factors
from fairlead.rounds.loop import settings_from_json
from fairlead.rounds.model_trials import TrialCost, trial_costs
from fairlead.rounds.records import Record
from fairlead.rounds.state import State
from fairlead.studies.fairness.lack_causes import causes_of_shortfall
from fairlead.studies.fairness.ledger import SOURCES, ActualSpeeds, Ledger, add
from fairlead.studies.fairness.promise_verdicts import (
    PromiseVerdict,
    envy_table,
    largest_envy,
    promises_of,
    sharing_incentives,
    verdicts,
)
from fairlead.studies.journals.folding import consistent, open_state

HOUR_S = 3600.0
MOST_ENVIED = 20  # tenants that are listed with the envy of one


@dataclass(frozen=True, slots=True)
class AuditedTenant:
    """One tenant's account. Speeds are in units of the slowest type that a job can use."""

    wanted_more_h: float  # hours in which it could have used more
    sharing_incentive: float | None  # None if there were none
    envy: float | None  # the largest, of any other tenant; None if it is unbounded
    gpu_hours: Mapping[str, float]  # by type
    rates_by_source: Mapping[str, float]  # GPU-hours by the source of the rate by which they are valued
    entitled_gpu_hours: float  # of its private slice, while it had jobs
    borrowed_gpu_hours: float  # that it held beyond its slice
    lent_gpu_hours: float  # of its slice that it left to others, because it did not want more
    entitled_speed_hours: float  # the same in units of speed x hours
    achieved_speed_hours: float
    borrowed_speed_hours: float
    lent_speed_hours: float
    jobs: int
    restarts: int
    restart_gpu_hours: float  # spent on restoring checkpoints
    missing: Mapping[str, float]  # speed x hours that it lacked while it wanted more, by cause
    envies: Mapping[str, float | None] = field(default_factory=dict)  # the tenants that it envies most; None: unbounded


@dataclass(frozen=True, slots=True)
class RunAudit:
    """The fairness of a run, averaged over time; docs/metrics.md defines the numbers."""

    policy: str  # the last one, if it changed
    decided_by: str | None  # another scheduler that decided instead, so that the policy promised nothing
    promises: list[PromiseVerdict]
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
        """The values that a reader of the JSON gets: lists, not tuples."""
        document: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return document


class Auditor:
    """The audit of a run so far; it folds the records into `state` and can be stored between two of them."""

    def __init__(
        self,
        state: State,
        policy: str,
        round_s: float,
        decided_by: str | None = None,
        promised: frozenset[Promise] | None = None,
    ) -> None:
        self.state, self._decided_by, self._promised = state, decided_by, promised
        self._policy, self._round_s = policy, round_s
        self._decided_s = -math.inf
        self._ledger, self._actual = Ledger.empty(), ActualSpeeds()
        self._ledger.grow(len(state.tenants), len(state.cluster.types))

    @classmethod
    def of(cls, header: Header, state: State | None = None, promised: frozenset[Promise] | None = None) -> Auditor:
        """The audit of a run that begins with this header, or continues from a state.

        `promised` is what its policy promises; by default what the registered policy of this name does.
        """
        round_s = settings_from_json(header.settings).round_s
        decided_by = "Slurm" if header.more.get("shadow") else None
        return cls(open_state(header) if state is None else state, header.policy, round_s, decided_by, promised)

    def fold(self, record: Record) -> None:
        state = self.state
        self.pass_time(record.time_s)
        state.fold(record)
        self._ledger.grow(len(state.tenants), len(state.cluster.types))
        match record:
            case Decision():
                self._decided_s = record.time_s
                again = record.start[state.restarts[record.start] > 0]
                np.add.at(self._ledger["restart_count"], state.tenant[again], 1.0)
            case Served():
                self._decided_s = record.time_s
            case Arrived():
                self._ledger["jobs"][state.tenants[record.spec.tenant]] += 1.0
            case PolicySet():
                self._policy = record.policy
            case SettingsSet():
                self._round_s = settings_from_json(record.settings).round_s

    def pass_time(self, time_s: float) -> None:
        """Count the time up to `time_s`, in which nothing is recorded."""
        state = self.state
        if time_s > state.now_s and state.active:
            add(self._ledger, state, self._actual, self._decided_s, time_s - state.now_s)
            state.pass_time(time_s)

    def audit(self) -> RunAudit:
        ledger, names = self._ledger, list(self.state.tenants)
        incentive, (envy, u, v) = sharing_incentives(ledger), largest_envy(ledger)
        worst = min(incentive, key=lambda one: incentive[one]) if incentive else None
        own = promises_of(self._policy) if self._promised is None else self._promised
        promised = frozenset() if self._decided_by else own or frozenset()
        return RunAudit(
            policy=self._policy,
            decided_by=self._decided_by,
            promises=verdicts(ledger, names, promised, self._round_s),
            max_envy=envy if math.isfinite(envy) else None,
            envious=[names[u], names[v]] if envy > 0 else None,
            min_sharing_incentive=None if worst is None else incentive[worst],
            mean_sharing_incentive=sum(incentive.values()) / len(incentive) if incentive else None,
            worst_off=None if worst is None else names[worst],
            rates=list(known_factors(self.state)),
            tenants=self._tenants(names, incentive),
            trials=trial_costs(self.state),
        )

    def _tenants(self, names: list[str], incentive: dict[int, float]) -> dict[str, AuditedTenant]:
        types, envy = list(self.state.cluster.types), envy_table(self._ledger)
        return {name: self._tenant(u, types, incentive.get(u), envied(envy[u], names)) for u, name in enumerate(names)}

    def _tenant(
        self, u: int, types: list[str], incentive: float | None, envies: Mapping[str, float | None]
    ) -> AuditedTenant:
        ledger = self._ledger

        def hours(name: str) -> float:
            return float(ledger[name][u]) / HOUR_S

        sources = zip(SOURCES, (ledger.source[u] / HOUR_S).tolist(), strict=True)
        missing = causes_of_shortfall(ledger, u, self._round_s)
        return AuditedTenant(
            wanted_more_h=hours("wanted_s"),
            sharing_incentive=incentive,
            envy=next(iter(envies.values()), 0.0),
            gpu_hours=dict(zip(types, (ledger.held[u] / HOUR_S).tolist(), strict=True)),
            rates_by_source={source.value: spent for source, spent in sources if spent > 0},
            entitled_gpu_hours=hours("entitled_gpu_s"),
            borrowed_gpu_hours=hours("borrowed_gpu_s"),
            lent_gpu_hours=hours("lent_gpu_s"),
            entitled_speed_hours=hours("entitled"),
            achieved_speed_hours=hours("held"),
            borrowed_speed_hours=hours("borrowed"),
            lent_speed_hours=hours("lent"),
            jobs=round(float(ledger["jobs"][u])),
            restarts=round(float(ledger["restart_count"][u])),
            restart_gpu_hours=hours("restart_gpu_s"),
            missing={str(cause): value / HOUR_S for cause, value in missing.items() if value},
            envies=envies,
        )

    def to_json(self) -> dict[str, Any]:
        """Everything but the state."""
        decided_s = None if math.isinf(self._decided_s) else self._decided_s
        facts = {"decided_s": decided_s, "policy": self._policy, "round_s": self._round_s}
        return {**facts, "actual": self._actual.to_json(), "ledger": self._ledger.to_json()}

    def restore(self, facts: dict[str, Any]) -> None:
        self._decided_s = -math.inf if facts["decided_s"] is None else facts["decided_s"]
        self._policy, self._round_s = facts["policy"], facts["round_s"]
        self._actual.restore(facts["actual"])
        self._ledger.restore(facts["ledger"])


def envied(envy: FloatArray, names: list[str]) -> dict[str, float | None]:
    """The tenants with the largest values of this row of the envy table, largest first; None if it is unbounded."""
    most = sorted(np.flatnonzero(envy > 0).tolist(), key=lambda v: (-envy[v], v))[:MOST_ENVIED]
    return {names[v]: float(envy[v]) if math.isfinite(envy[v]) else None for v in most}


@dataclass(frozen=True, slots=True)
class AuditingJournal:
    """Folds every record of a run into an audit while it is made, like a journal."""

    auditor: Auditor

    def event(self, event: Event) -> None:
        self.auditor.fold(event)

    def decision(self, decision: Decision) -> None:
        self.auditor.fold(decision)


def audit_journal(path: Path) -> RunAudit:
    """Envy and sharing incentive of a run, averaged over time.

    Tenant u counts while one of its jobs waits after a decision that could have started it, because only then could u use
    more. During that time, what u held per unit of weight is compared with what every other active tenant v held, and
    with its private slice of the cluster, w_u / sum(w). GPUs are valued by the jobs that hold them, in units of the
    slowest type that they can use; GPUs of others by the mean speedups of u's active jobs. Envy goes by the speeds that
    policies saw at the time, measured where jobs have reported. The sharing incentive goes by the speeds that jobs had,
    and GPUs that restore a checkpoint count for nothing. In runs of single tasks, a job waits if it is served for less
    than `ALWAYS` of a round.
    """
    reader = JournalReader(path)
    with consistent(path):
        return audit_records(reader.header(), reader.records())


def audit_records(header: Header, records: Iterable[Record]) -> RunAudit:
    """The same for records from any source."""
    auditor = Auditor.of(header)
    for record in records:
        auditor.fold(record)
    return auditor.audit()
