"""The books of a fairness audit: integrals over time, by tenant, that are added up record by record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fairlead.model.arrays import BoolArray, FloatArray, IntArray
from fairlead.numerics.fairness import normalise
from fairlead.rates.factors import RateSource
from fairlead.rounds.speeds import group_of, measured_rates, rate_at_their_spots, rate_sources
from fairlead.rounds.state import State
from fairlead.studies.fairness.shortfall import Instant, split_shortfall

ALWAYS = 0.99  # of a round
SOURCES = list(RateSource)
AS_EXPECTED = 1e-9  # a speed this close to the expected one is that one

# Columns of `Ledger.sums`. Values are in units of the slowest type that a job can use, times seconds.
SUMS = (
    "wanted_s",  # time in which the tenant could have used more
    # While it could have used more:
    "slice",  # value of its private slice, by actual speeds
    "achieved",  # value of what it held, by actual speeds, without time that was spent on restarts
    "restarts",  # value of GPUs that restored a checkpoint
    "spread",  # value lost because gangs were on more nodes than necessary
    "wrong_speeds",  # how much less of its slice it had by actual speeds than by those that the policy saw
    "few_jobs",
    "unusable_types",
    "quotas",
    "whole_gangs",
    "turns",
    "ahead",  # value that it held beyond its slice at other times in which it wanted more
    "repaid",  # value beyond its slice that it held later, when it wanted no more, up to what it was owed by then
    "owed",  # not an integral: what it lacked and has not been repaid yet
    "slice_gpu_s",
    "widest_gpu_s",  # width of its widest active gang x time
    # While it had active jobs:
    "entitled",  # value of its private slice
    "held",  # value of what it held
    "entitled_gpu_s",
    "borrowed_gpu_s",  # more than its slice
    "lent_gpu_s",  # less than its slice, and it did not want more
    "borrowed",  # the same by value
    "lent",
    "restart_gpu_s",  # GPUs that restored a checkpoint
    "restart_count",
    "jobs",
)
_AT = {name: k for k, name in enumerate(SUMS)}


@dataclass(slots=True)
class Ledger:
    """Integrals by tenant; those of pairs cover the time in which u could have used more and v was active."""

    sums: FloatArray  # u,k  in the order of `SUMS`
    own: FloatArray  # u,v  value per weight of what u held
    others: FloatArray  # u,v  value to u, per weight, of what v held
    alone: FloatArray  # u,v  value of u's private slice, per weight
    held: FloatArray  # u,t  GPU-seconds over the whole run
    source: FloatArray  # u,s  the same by the source of their rates, in the order of `RateSource`
    cluster: FloatArray  # GPU-seconds: idle while a job that fits on them waited; of nodes that were up at that time

    @classmethod
    def empty(cls) -> Ledger:
        pair, none = np.zeros((0, 0)), np.zeros
        return cls(none((0, len(SUMS))), pair, pair, pair, none((0, 0)), none((0, len(SOURCES))), none(2))

    def grow(self, tenants: int, types: int) -> None:
        """Make room for tenants and types that have appeared."""
        u, t = tenants - len(self.sums), types - self.held.shape[1]
        if u or t:
            self.own, self.others, self.alone = (np.pad(pair, (0, u)) for pair in (self.own, self.others, self.alone))
            self.sums, self.source = (np.pad(rows, ((0, u), (0, 0))) for rows in (self.sums, self.source))
            self.held = np.pad(self.held, ((0, u), (0, t)))

    def __getitem__(self, name: str) -> FloatArray:
        """u  A column of `sums`, which can be written to."""
        return self.sums[:, _AT[name]]

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name).tolist() for name in self.__slots__}

    def restore(self, facts: dict[str, Any]) -> None:
        for name in self.__slots__:
            shape = getattr(self, name).shape
            setattr(self, name, np.array(facts[name], dtype=np.float64).reshape(shape))


class ActualSpeeds:
    """How fast jobs turned out to be, relative to what policies saw, by tenant and model (j -> t)."""

    def __init__(self) -> None:
        self._factor: dict[tuple[int, int], dict[int, float]] = {}

    def note(self, state: State, jobs: IntArray, seen: FloatArray) -> FloatArray:
        """r  Actual speed / the speed that policies see of these running jobs on their spots, which is remembered."""
        actual = state.rate[jobs]
        known = (actual > 0) & (seen > 0) & (state.held_gpus[jobs] == state.width[jobs])
        factor = np.where(known, actual / np.where(seen > 0, seen, 1.0), 1.0)
        factor[np.abs(factor - 1.0) < AS_EXPECTED] = 1.0
        news = known if self._factor else known & (factor != 1.0)
        for place in np.flatnonzero(news).tolist():
            j = int(jobs[place])
            row = self._factor.get(group_of(state, j))
            if factor[place] != 1.0 or row is not None:
                self._factor.setdefault(group_of(state, j), {})[int(state.held_type[j])] = float(factor[place])
        return factor

    def of(self, state: State, jobs: IntArray, shape: tuple[int, ...]) -> FloatArray:
        """j,t  The last factors; 1 where a tenant's model has not run."""
        factors = np.ones(shape)
        for place, j in enumerate(jobs.tolist() if self._factor else ()):
            for t, factor in self._factor.get(group_of(state, j), {}).items():
                factors[place, t] = factor
        return factors

    def to_json(self) -> list[list[float]]:
        return [[*group, t, factor] for group, row in self._factor.items() for t, factor in row.items()]

    def restore(self, facts: list[list[float]]) -> None:
        for tenant, model, t, factor in facts:
            self._factor.setdefault((int(tenant), int(model)), {})[int(t)] = factor


def add(ledger: Ledger, state: State, actual: ActualSpeeds, decided_s: float, seconds: float) -> None:
    """Add the time from the state's last record to the next one."""
    active, _ = state.schedulable()  # a job without usable hardware could not use more
    tenant = state.tenant[active]  # j
    ideal = measured_rates(state, active)  # j,t
    W = normalise(ideal / state.width[active, None])
    running = state.held_gpus[active] > 0
    served = running | (state.part[active] >= ALWAYS)
    waits = ~served & (state.arrival_s[active] <= decided_s)  # j
    here = np.unique(tenant)
    users = len(ledger.sums)
    now = _Holdings(ledger, state, actual, active, ideal, W, np.flatnonzero(running), seconds)
    weight = np.ones(users)  # u  the weights of tenants that have not appeared yet do not matter
    weight[: len(state.tenant_weight)] = state.tenant_weight
    slice_ = np.zeros(users)  # u  part of the cluster
    slice_[here] = weight[here] / weight[here].sum()
    worth = _means(W, tenant, users)  # u,t
    private = worth @ state.capacity * slice_  # u  value
    wants = np.unique(tenant[waits])
    ledger.held += seconds * now.gpus
    _add_loans(ledger, state, now, slice_, private, wants, seconds)
    content = np.setdiff1d(here, wants)
    _repay(ledger, (now.value - private) * seconds, weight, content, here)
    if not wants.size:
        return
    pairs = np.ix_(wants, here)
    ledger.own[pairs] += seconds * (now.value / weight)[wants, None]
    ledger.others[pairs] += seconds * worth[wants] @ (now.gpus[here] / weight[here, None]).T
    ledger.alone[pairs] += seconds * (private / weight)[wants, None]
    known = actual.of(state, active, W.shape)
    actual_private = private if (known == 1.0).all() else _means(W * known, tenant, users) @ state.capacity * slice_
    gap = private - now.value  # u
    actual_gap = actual_private - now.actual
    widest = np.zeros(users)
    np.maximum.at(widest, tenant, state.width[active])
    more = {
        "wanted_s": np.ones(users),
        "slice": actual_private,
        "achieved": now.actual - now.restarting,
        "restarts": now.restarting,
        "spread": now.value - now.on_spots,
        "wrong_speeds": actual_gap - (private - now.on_spots),
        "ahead": np.maximum(-gap, 0.0),
        "slice_gpu_s": slice_ * state.capacity.sum(),
        "widest_gpu_s": widest,
    }
    ledger["owed"][wants] = np.maximum(ledger["owed"][wants] + seconds * gap[wants], 0.0)
    rows = np.flatnonzero(waits)
    parts = split_shortfall(
        Instant(
            slice_gpus=slice_[wants, None] * state.capacity,
            held=now.gpus[wants],
            may_hold=np.full((len(wants), W.shape[1]), np.inf) if state.quotas is None else state.quotas.most[wants],
            worth=worth[wants],
            missing=gap[wants],
            tenant=np.searchsorted(wants, tenant[rows]),
            width=state.width[active[rows]],
            usable=(W[rows] > 0).astype(np.float64),
        )
    )
    for name, values in more.items():
        ledger[name][wants] += seconds * values[wants]
    for name in parts.__slots__:
        ledger[name][wants] += seconds * getattr(parts, name)
    _add_idle(ledger, state, runs=W[rows] > 0, width=state.width[active[rows]], seconds=seconds)


class _Holdings:
    """What tenants hold in an interval: GPUs, and their value as seen, on their spots, and as measured."""

    def __init__(
        self,
        ledger: Ledger,
        state: State,
        actual: ActualSpeeds,
        active: IntArray,
        ideal: FloatArray,
        W: FloatArray,
        running: IntArray,
        seconds: float,
    ) -> None:
        users = len(ledger.sums)
        tenant, jobs = state.tenant[active], active[running]
        type_ = state.held_type[jobs]
        cells = running, np.maximum(type_, 0)
        best, spot = ideal[cells], rate_at_their_spots(state, active, state.now_s)[cells]  # r
        slower = np.where((type_ >= 0) & (best > 0), spot / np.where(best > 0, best, 1.0), 1.0)  # r
        factor = actual.note(state, jobs, np.where(type_ >= 0, spot, 0.0))  # r
        restoring = np.clip(state.resume_s[jobs] - state.now_s, 0.0, seconds) / seconds * (state.restarts[jobs] > 0)
        # One entry (p) for each node of each running job, in the order of jobs.
        parts = [(r, node, count) for r, j in enumerate(jobs.tolist()) for node, count in state.spots[j]]
        r, node, count = np.array(parts, dtype=np.int64).reshape(-1, 3).T
        u, t = tenant[running][r], state.cluster.node_type[node]
        value = count * W[running[r], t]
        on_spots = value * slower[r]
        speed = on_spots * factor[r]
        self.gpus = np.zeros(ledger.held.shape)  # u,t
        np.add.at(self.gpus, (u, t), count)
        self.value, self.on_spots, self.actual, self.restarting, self.restart_gpus = (
            np.bincount(u, values, users)
            for values in (value, on_spots, speed, speed * restoring[r], count * restoring[r])
        )
        np.add.at(ledger.source, (u, _source_numbers(state, jobs)[r, t]), seconds * count)
        if state.served:
            self._add_served(ledger, state, active, W, seconds)

    def _add_served(self, ledger: Ledger, state: State, active: IntArray, W: FloatArray, seconds: float) -> None:
        """What jobs of single tasks hold, which have no nodes."""
        for place, j in enumerate(active.tolist()):
            if j in state.served:
                u, value = int(state.tenant[j]), float(state.served[j] @ W[place])
                self.gpus[u] += state.served[j]
                for values in (self.value, self.on_spots, self.actual):
                    values[u] += value
                for t, source in enumerate(rate_sources(state, j)):
                    ledger.source[u, SOURCES.index(source)] += seconds * state.served[j][t]


def _source_numbers(state: State, jobs: IntArray) -> IntArray:
    """r,t  Positions in `SOURCES` of where the rates of these jobs come from."""
    known: dict[tuple[RateSource, ...], list[int]] = {}  # few jobs differ
    rows = []
    for j in jobs.tolist():
        sources = rate_sources(state, j)
        row = known.get(sources)
        if row is None:
            row = known[sources] = [SOURCES.index(source) for source in sources]
        rows.append(row)
    return np.array(rows, dtype=np.int64).reshape(len(jobs), len(state.cluster.types))


def _add_loans(
    ledger: Ledger,
    state: State,
    now: _Holdings,
    slice_: FloatArray,
    private: FloatArray,
    wants: IntArray,
    seconds: float,
) -> None:
    """What tenants hold beyond their slices, and what they leave to others without wanting it."""
    entitled, held = slice_ * state.capacity.sum(), now.gpus.sum(axis=1)  # u  GPUs
    content = np.ones(len(slice_))
    content[wants] = 0.0
    for name, values in {
        "entitled": private,
        "held": now.actual - now.restarting,
        "entitled_gpu_s": entitled,
        "borrowed_gpu_s": np.maximum(held - entitled, 0.0),
        "lent_gpu_s": np.maximum(entitled - held, 0.0) * content,
        "borrowed": np.maximum(now.value - private, 0.0),
        "lent": np.maximum(private - now.value, 0.0) * content,
        "restart_gpu_s": now.restart_gpus,
    }.items():
        ledger[name][:] += seconds * values


def _repay(ledger: Ledger, ahead: FloatArray, weight: FloatArray, content: IntArray, here: IntArray) -> None:
    """Tenants that want no more and hold more than their slices are repaid what they were owed from earlier.

    A tenant with one wide gang would otherwise be judged by the time in which the gang waits for its turn, and never by
    the turn itself.
    """
    repaid = np.clip(ahead[content], 0.0, ledger["owed"][content])
    ledger["owed"][content] -= repaid
    ledger["repaid"][content] += repaid
    ledger.own[np.ix_(content, here)] += (repaid / weight[content])[:, None]


def _add_idle(ledger: Ledger, state: State, runs: BoolArray, width: IntArray, seconds: float) -> None:
    """GPUs of types on which a waiting gang runs and has room."""
    free = np.bincount(state.cluster.node_type, state.node_free * state.node_up, len(state.capacity))  # t
    fits = (runs & (free >= width[:, None])).any(axis=0)
    ledger.cluster += seconds * np.array([free[fits].sum(), state.capacity.sum()])


def _means(W: FloatArray, tenant: IntArray, users: int) -> FloatArray:
    """u,t  The mean over each tenant's jobs."""
    total = np.zeros((users, W.shape[1]))
    np.add.at(total, tenant, W)
    return total / np.maximum(np.bincount(tenant, minlength=users), 1)[:, None]
