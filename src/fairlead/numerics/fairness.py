"""The fairness of a division: envy, sharing incentive, Pareto gap, and the gain from a lie.

Tenants l with weights w_l hold x_lj GPUs of type j, of which there are m_j; W_l is l's speedup vector, in units of the
slowest type that it can use, and E_l = W_l.x_l its normalised throughput. If a tenant has several job types, each is a
virtual user with its part of the tenant's weight, and the audit covers the virtual users.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.numerics.solve import LinearProgram, Optimal, columns_from_entries, solve

Allocate = Callable[[FloatArray, FloatArray, FloatArray], FloatArray]  # (speedup, capacity, weight) -> shares l,j
Direction = Literal["exaggerate", "under-report"]

NOISE = 1e-12  # envy below this is rounding
SLACK = 1e-9  # how much less a tenant may have in the search for a better division, because shares are rounded


@dataclass(frozen=True, slots=True)
class Audit:
    """Fairness measures, with tenants by position. None is a ratio over zero, or a Pareto gap that was not requested."""

    max_envy: float | None  # the largest (W_l.x_i / w_i) / (W_l.x_l / w_l) - 1, or 0
    envious: tuple[int, int] | None  # (l, i): l envies i most; None if there is no envy
    min_sharing_incentive: float | None  # the smallest W_l.x_l / (w_l / sum(w) W_l.m); None without tenants to compare
    worst_off: int | None  # that l
    pareto_gap: float | None  # the largest gain of the total that harms no tenant, relative to the total


@dataclass(frozen=True, slots=True, eq=False)
class Lie:
    gain: (
        float | None
    )  # of true throughput, relative to an honest report; 0: no lie helps; None: honesty yields nothing
    report: FloatArray  # j  the most profitable report


def normalise(speedup: FloatArray) -> FloatArray:
    """Each vector divided by its smallest positive entry; a vector of zeros stays unchanged."""
    W = np.asarray(speedup, dtype=np.float64)
    slowest = np.where(W > 0, W, np.inf).min(axis=-1, initial=np.inf, keepdims=True)
    return W / np.where(np.isfinite(slowest), slowest, 1.0)


def audit(
    speedup: FloatArray, shares: FloatArray, capacity: FloatArray, weight: FloatArray, *, pareto: bool = True
) -> Audit:
    """The audit of a division. `pareto=False` skips the one measure that solves a program."""
    W = normalise(speedup)
    max_envy, envious = _largest_envy(W, shares, weight)
    incentive, worst_off = _smallest_incentive(W, shares, capacity, weight)
    gap = pareto_gap(W, shares, capacity) if pareto else None
    return Audit(max_envy, envious, incentive, worst_off, gap)


def pareto_gap(speedup: FloatArray, shares: FloatArray, capacity: FloatArray) -> float | None:
    """max{ sum E' - sum E : E' >= E, x' feasible } / sum E.

    Tenants with equal vectors can exchange GPUs one for one, so they share one row.
    """
    W = normalise(speedup)
    values = np.einsum("lj,lj->l", W, shares)
    groups, group = np.unique(W, axis=0, return_inverse=True)
    level = np.bincount(group, values, len(groups)).astype(np.float64)  # g
    j = np.flatnonzero((np.asarray(capacity) > 0) & (groups > 0).any(axis=0))
    best = _largest_total(groups[:, j], np.asarray(capacity, dtype=np.float64)[j], level)
    total = float(values.sum())
    return _ratio(best - total if best - total > SLACK * 10 * total else 0.0, total)


def gain_by_lying(
    allocate: Allocate,
    speedup: FloatArray,
    capacity: FloatArray,
    weight: FloatArray,
    tenant: int,
    direction: Direction,
    rng: np.random.Generator,
    tries: int = 40,
) -> Lie:
    """The most profitable lie of one tenant that a search discovers: a lower bound on the gain from lying.

    The slowest usable type stays the unit. "exaggerate" raises other entries, "under-report" lowers them (not below the
    unit). The search tries all entries at once, each alone, random ones, and then ever smaller steps around the best.
    """
    truth = normalise(speedup)
    honest = float(truth[tenant] @ allocate(truth, capacity, weight)[tenant])
    best, report = honest, truth[tenant]
    for lie in _first_lies(truth[tenant], direction, rng, tries):
        value = _value_of(lie, allocate, truth, capacity, weight, tenant)
        if value > best:
            best, report = value, lie
    for step in (0.5, 0.2, 0.1, 0.05, 0.02, 0.01):
        for lie in _nearby(report, truth[tenant], direction, step):
            value = _value_of(lie, allocate, truth, capacity, weight, tenant)
            if value > best:
                best, report = value, lie
    return Lie(_ratio(best - honest, honest), report)


def _largest_envy(W: FloatArray, x: FloatArray, w: FloatArray) -> tuple[float | None, tuple[int, int] | None]:
    if len(W) < 2:
        return 0.0, None
    per_weight = x / np.asarray(w, dtype=np.float64)[:, None]  # i,j
    value = W @ per_weight.T  # l,i  throughput of l with i's GPUs
    own = value.diagonal().copy()
    np.fill_diagonal(value, -1.0)
    envied = value.argmax(axis=1)
    most = value[np.arange(len(W)), envied]
    from_nothing = np.flatnonzero((own <= 0) & (most > 0))
    if len(from_nothing):
        envious = int(from_nothing[most[from_nothing].argmax()])
        return None, (envious, int(envied[envious]))
    envy = np.divide(most, own, out=np.ones_like(own), where=own > 0) - 1.0
    envious = int(envy.argmax())
    return (float(envy[envious]), (envious, int(envied[envious]))) if envy[envious] > NOISE else (0.0, None)


def _smallest_incentive(W: FloatArray, x: FloatArray, m: FloatArray, w: FloatArray) -> tuple[float | None, int | None]:
    alone = W @ np.asarray(m, dtype=np.float64) * w / np.sum(w) if len(W) else np.empty(0)  # l
    can = np.flatnonzero(alone > 0)
    if not len(can):
        return None, None
    incentive = np.einsum("lj,lj->l", W[can], x[can]) / alone[can]
    worst = int(incentive.argmin())
    return float(incentive[worst]), int(can[worst])


def _largest_total(W: FloatArray, m: FloatArray, level: FloatArray) -> float:
    """max sum_g W_g.x_g  s.t.  W_g.x_g >= level_g, sum_g x_gj <= m_j; in units of m_j, with rows relative to W_g.m."""
    groups, k = W.shape
    whole = np.maximum(W @ m, np.finfo(np.float64).tiny)
    v = W * m / whole[:, None]
    columns = np.arange(groups * k)
    start, index, value = columns_from_entries(
        row=np.concatenate([np.repeat(np.arange(groups), k), groups + np.tile(np.arange(k), groups)]),
        column=np.concatenate([columns, columns]),
        value=np.concatenate([v.ravel(), np.ones(groups * k)]),
        columns=groups * k,
    )
    unit = float(whole.max(initial=1.0))
    outcome = solve(
        LinearProgram(
            cost=-(W * m).ravel() / unit,
            low=np.zeros(groups * k),
            high=np.where(v > 0, 1.0, 0.0).ravel(),
            row_low=np.concatenate([level / whole * (1 - SLACK) - NOISE, np.full(k, -np.inf)]),
            row_high=np.concatenate([np.full(groups, np.inf), np.ones(k)]),
            start=start,
            index=index,
            value=value,
        ),
        tolerance=SLACK,
    )
    return -outcome.objective * unit if isinstance(outcome, Optimal) else float(level.sum())


def _value_of(
    lie: FloatArray, allocate: Allocate, truth: FloatArray, capacity: FloatArray, weight: FloatArray, tenant: int
) -> float:
    reports = truth.copy()
    reports[tenant] = lie
    return float(truth[tenant] @ allocate(reports, capacity, weight)[tenant])


def _first_lies(truth: FloatArray, direction: Direction, rng: np.random.Generator, tries: int) -> Iterator[FloatArray]:
    others = _others(truth)
    for factor in (1.05, 1.2, 1.5, 2.0, 4.0):
        yield _bend(truth, truth, others, factor, direction)
        for j in others:
            yield _bend(truth, truth, np.array([j]), factor, direction)
    for _ in range(tries):
        yield _bend(truth, truth, others, np.exp(rng.exponential(0.5, len(others))), direction)


def _nearby(report: FloatArray, truth: FloatArray, direction: Direction, step: float) -> Iterator[FloatArray]:
    for j in _others(truth):
        for factor in (1 + step, 1 / (1 + step)):
            yield _bend(report, truth, np.array([j]), factor, direction)


def _others(truth: FloatArray) -> IntArray:
    """Every usable type except the unit."""
    usable = np.flatnonzero(truth > 0)
    return usable[usable != usable[truth[usable].argmin()]] if len(usable) else usable


def _bend(
    report: FloatArray, truth: FloatArray, entries: IntArray, factor: float | FloatArray, direction: Direction
) -> FloatArray:
    """Entries of a report times (or, for under-reporting, divided by) a factor, kept on their side of the truth."""
    lie = report.copy()
    if direction == "exaggerate":
        lie[entries] = np.maximum(lie[entries] * factor, truth[entries])
    else:
        lie[entries] = np.clip(lie[entries] / factor, 1.0, truth[entries])
    return lie


def _ratio(part: float, whole: float) -> float | None:
    if part == 0:
        return 0.0
    return part / whole if whole > 0 else None
