"""What a journal tells: the run folded again, and how fair it was over time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from fairlead.model.allocation import Level
from fairlead.model.arrays import FloatArray
from fairlead.model.decision import Decision
from fairlead.model.errors import BrokenInvariantError, InputError
from fairlead.model.events import Arrived, Event, Finished, Served, TenantSet
from fairlead.numerics.fairness import normalise
from fairlead.policies import find_policy
from fairlead.policies.policy import Policy
from fairlead.rates.estimator import TableEstimator
from fairlead.rates.three_layer import Sensing, build_estimator
from fairlead.rounds.journal import Header, JournalReader
from fairlead.rounds.loop import Settings, When
from fairlead.rounds.records import Record
from fairlead.rounds.replay import replay, same
from fairlead.rounds.state import State
from fairlead.sim.tasks.engine import run_tasks
from fairlead.sim.truth import Truth, World

ALWAYS = 0.99  # of a round
SAME = 1e-6  # of what is held


def open_state(header: Header) -> State:
    """An empty state that knows what the run knew."""
    sensing = Sensing(header.more.get("sensing", Sensing.TABLE))
    estimator = build_estimator(
        header.profile, header.cluster, header.restart_s, sensing, unmeasured=bool(header.more.get("unmeasured"))
    )
    return State(header.cluster, estimator, header.tenant_weight)


def fold_journal(path: Path) -> State:
    reader = JournalReader(path)
    state = open_state(reader.header())
    with _believable(path):
        for record in reader.records():
            state.fold(record)
    return state


@contextmanager
def _believable(path: Path) -> Iterator[None]:
    """A journal whose records contradict each other is a bad file, not a bug."""
    try:
        yield
    except BrokenInvariantError as error:
        raise InputError(f"the journal contradicts itself: {error}", path=str(path)) from None


@dataclass(frozen=True, slots=True)
class Replayed:
    """How a journal's decisions compare with those that a policy takes now from the same events."""

    decisions: int
    same: int
    first_different_s: float | None


def replay_journal(path: Path, policy: Policy | None = None) -> Replayed:
    """Decide again; without a policy with the one of the journal, which must then say the same throughout."""
    reader = JournalReader(path)
    header = reader.header()
    chosen = policy or find_policy(header.policy).with_parameters(header.parameters)
    settings = Settings(**{**header.settings, "when": When(header.settings["when"])})
    tasks = header.more.get("level") == Level.TASKS
    if tasks != (chosen.level is Level.TASKS):
        raise InputError(
            f"the journal's policy decides {'single tasks' if tasks else 'rounds'} and {chosen.name} does not; "
            "its decisions cannot be compared",
            path=str(path),
        )
    if tasks:
        return _replay_tasks(reader, chosen, settings)
    decisions = equal = 0
    first: float | None = None
    with _believable(path):
        for recorded, again in replay(reader.records(), open_state(header), chosen, settings, follow=policy is None):
            decisions += 1
            if same(recorded, again):
                equal += 1
            elif first is None:
                first = recorded.time_s
    return Replayed(decisions, equal, first)


def _replay_tasks(reader: JournalReader, policy: Policy, settings: Settings) -> Replayed:
    """Run all tasks again; what jobs are told to hold in each round of the clock is compared one by one."""
    header, records = reader.header(), list(reader.records())
    state = open_state(header)
    specs = [record.spec for record in records if isinstance(record, Arrived)]
    for record in records:
        if isinstance(record, Finished):  # the true length shows in the end
            for j, samples in zip(record.jobs.tolist(), record.samples.tolist(), strict=True):
                steps = samples / state.estimator.samples_per_step(specs[j].model, specs[j].gpus)
                specs[j] = replace(specs[j], steps=steps)
    world = header.more["world"]
    truth = Truth(
        specs,
        header.cluster,
        TableEstimator(header.profile, header.cluster, restart_s=header.restart_s),
        World(**{**world, "server_factor": tuple(world["server_factor"])}),
    )
    told = _Served()
    run_tasks(truth, state.estimator, policy, settings, state, told, switch_s=header.restart_s)
    recorded = [record for record in records if isinstance(record, Served)]
    pairs = zip_longest(recorded, told.events[: len(recorded)])
    different = [one.time_s for one, other in pairs if not _same_service(one, other)]
    return Replayed(len(recorded), len(recorded) - len(different), different[0] if different else None)


class _Served:
    """Keeps what is told of single tasks."""

    def __init__(self) -> None:
        self.events: list[Served] = []

    def event(self, event: Event) -> None:
        if isinstance(event, Served):
            self.events.append(event)

    def decision(self, decision: Decision) -> None:
        raise BrokenInvariantError(f"a round was decided at {decision.time_s} s where there are none")


def _same_service(one: Served, other: Served | None) -> bool:
    return (
        other is not None
        and math.isclose(one.time_s, other.time_s, rel_tol=SAME)
        and np.array_equal(one.jobs, other.jobs)
        and np.allclose(one.gpus, other.gpus, rtol=SAME, atol=SAME)
    )


@dataclass(slots=True)
class _Ledger:
    """Integrals over time by tenant, of the time in which it wanted more."""

    wanted_s: FloatArray  # u
    own: FloatArray  # u,v  value per weight of what u held while v was there too
    others: FloatArray  # u,v  value to u, per weight, of what v held
    alone: FloatArray  # u  value of u's private slice, per weight
    held: FloatArray  # u,t  GPU-seconds over the whole run


def audit_journal(path: Path) -> dict[str, Any]:
    """Envy and sharing incentive of a run, averaged over time.

    A tenant u is looked at while one of its jobs waits although a decision has seen it: only then could u use more. In
    that time, per unit of weight, what u held is compared with what every other active tenant v held, and with its
    private slice of the cluster, w_u / sum(w). GPUs are valued by the jobs that hold them, in units of the slowest type
    that they can use; GPUs of others by the mean speedups of u's active jobs. Where single tasks are decided, a job waits
    that is not served at least `ALWAYS` of a round.
    """
    reader = JournalReader(path)
    with _believable(path):
        return audit_records(reader.header(), reader.records)


def audit_records(header: Header, records: Callable[[], Iterable[Record]]) -> dict[str, Any]:
    """The same of records from anywhere; they are read twice."""
    names = _tenants(records())
    u, t = len(names), len(header.cluster.types)
    ledger = _Ledger(np.zeros(u), np.zeros((u, u)), np.zeros((u, u)), np.zeros(u), np.zeros((u, t)))
    state = open_state(header)
    decided_s = -math.inf
    for record in records():
        if record.time_s > state.now_s and state.active:
            _add(ledger, state, decided_s, record.time_s - state.now_s)
        state.fold(record)
        if isinstance(record, Decision | Served):
            decided_s = record.time_s
    return _verdict(ledger, names, list(header.cluster.types))


def _tenants(records: Iterable[Record]) -> list[str]:
    """In the order in which the state numbers them."""
    names: dict[str, None] = {}
    for record in records:
        if isinstance(record, Arrived):
            names.setdefault(record.spec.tenant)
        elif isinstance(record, TenantSet):
            names.setdefault(record.tenant)
    return list(names)


def _add(ledger: _Ledger, state: State, decided_s: float, seconds: float) -> None:
    active = state.active_jobs
    tenant = state.tenant[active]  # j
    W = normalise(state.best_rate[active] / state.width[active, None])  # j,t
    running = state.held_gpus[active] > 0
    served = running | (state.part[active] >= ALWAYS)
    wants = np.unique(tenant[~served & (state.arrival_s[active] <= decided_s)])
    here = np.unique(tenant)
    held, own = np.zeros(ledger.held.shape), np.zeros(len(ledger.own))  # u,t  u
    for place in np.flatnonzero(running).tolist():
        for node, count in state.spots[active[place]]:
            t = state.cluster.node_type[node]
            held[tenant[place], t] += count
            own[tenant[place]] += count * W[place, t]
    for place, j in enumerate(active.tolist() if state.served else ()):
        if j in state.served:
            held[tenant[place]] += state.served[j]
            own[tenant[place]] += state.served[j] @ W[place]
    ledger.held += seconds * held
    if not wants.size:
        return
    weight = np.ones(len(own))  # u  of tenants that have not been seen yet it does not matter
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


def _verdict(ledger: _Ledger, names: list[str], types: list[str]) -> dict[str, Any]:
    wanted = np.flatnonzero(ledger.alone > 0)
    own = ledger.own.diagonal()[wanted]
    incentive = own / ledger.alone[wanted]
    envy = np.divide(ledger.others, ledger.own, out=np.ones_like(ledger.own), where=ledger.own > 0) - 1.0
    envy[(ledger.own <= 0) & (ledger.others > 0)] = math.inf
    np.fill_diagonal(envy, 0.0)
    u, v = divmod(int(envy.argmax()), len(names)) if names else (0, 0)
    most = max(float(envy[u, v]), 0.0) if names else 0.0
    return {
        "max_envy": most if math.isfinite(most) else None,
        "envious": [names[u], names[v]] if most > 0 else None,
        "min_sharing_incentive": float(incentive.min()) if len(wanted) else None,
        "mean_sharing_incentive": float(incentive.mean()) if len(wanted) else None,
        "worst_off": names[int(wanted[incentive.argmin()])] if len(wanted) else None,
        "tenants": {
            name: {
                "wanted_more_h": float(ledger.wanted_s[u] / 3600),
                "sharing_incentive": float(ledger.own[u, u] / ledger.alone[u]) if ledger.alone[u] > 0 else None,
                "gpu_hours": dict(zip(types, (ledger.held[u] / 3600).tolist(), strict=True)),
            }
            for u, name in enumerate(names)
        },
    }
