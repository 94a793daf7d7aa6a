"""Each promise of a policy, held against what happened: kept, broken, not promised or not measurable in a run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np

from fairlead.model.errors import InputError
from fairlead.policies import find_policy
from fairlead.policies.policy import Promise
from fairlead.studies.fairness.lack_causes import LackCause, causes_of_envy, causes_of_shortfall
from fairlead.studies.fairness.ledger import Ledger

TOLERANCE = 0.05  # of whole GPUs in whole rounds; docs/promises.md states it


class Standing(StrEnum):
    KEPT = "kept"
    BROKEN = "broken"
    NOT_PROMISED = "not promised"
    NOT_MEASURED = "not measured"  # a run cannot show it, or no tenant wanted more


@dataclass(frozen=True, slots=True)
class PromiseVerdict:
    promise: str
    standing: Standing
    value: float | None  # sharing incentive, envy, or the part of the GPUs that was wasted; None: unbounded or unknown
    bound: float | None  # the largest or, for the sharing incentive, the smallest value that keeps the promise
    tenants: tuple[str, ...] = ()  # the tenant that it concerns most, and for envy the one that it envies
    causes: Mapping[str, float] = field(default_factory=dict)  # parts of what is missing; they add up to 1


def verdict_from_json(value: Mapping[str, Any]) -> PromiseVerdict:
    return PromiseVerdict(**{**value, "standing": Standing(value["standing"]), "tenants": tuple(value["tenants"])})


def promises_of(policy: str) -> frozenset[Promise] | None:
    """What a policy promises; None if it is not one of ours."""
    try:
        return find_policy(policy).promises
    except InputError:
        return None


def verdicts(ledger: Ledger, names: list[str], promised: frozenset[Promise], round_s: float) -> list[PromiseVerdict]:
    """One verdict for each promise, in a fixed order."""
    judged = (_sharing_incentive(ledger, names, round_s), _envy(ledger, names, round_s), _waste(ledger), _lies())
    return [_standing(verdict, promised) for verdict in judged]


def _standing(verdict: PromiseVerdict, promised: frozenset[Promise]) -> PromiseVerdict:
    if Promise(verdict.promise) in promised:
        return verdict
    return PromiseVerdict(
        verdict.promise, Standing.NOT_PROMISED, verdict.value, None, verdict.tenants, causes=verdict.causes
    )


def _sharing_incentive(ledger: Ledger, names: list[str], round_s: float) -> PromiseVerdict:
    bound = 1.0 - TOLERANCE
    incentive = sharing_incentives(ledger)
    if not incentive:
        return PromiseVerdict(Promise.SHARING_INCENTIVE, Standing.NOT_MEASURED, None, bound)
    u = min(incentive, key=lambda one: incentive[one])
    if incentive[u] >= bound:
        return PromiseVerdict(Promise.SHARING_INCENTIVE, Standing.KEPT, incentive[u], bound, (names[u],))
    causes = _parts(causes_of_shortfall(ledger, u, round_s))
    return PromiseVerdict(Promise.SHARING_INCENTIVE, Standing.BROKEN, incentive[u], bound, (names[u],), causes)


def _envy(ledger: Ledger, names: list[str], round_s: float) -> PromiseVerdict:
    if not (ledger["wanted_s"] > 0).any():
        return PromiseVerdict(Promise.NO_ENVY, Standing.NOT_MEASURED, None, TOLERANCE)
    envy, u, v = largest_envy(ledger)
    value = envy if math.isfinite(envy) else None
    if envy <= TOLERANCE:
        return PromiseVerdict(Promise.NO_ENVY, Standing.KEPT, value, TOLERANCE)
    causes = _parts(causes_of_envy(ledger, u, v, round_s))
    return PromiseVerdict(Promise.NO_ENVY, Standing.BROKEN, value, TOLERANCE, (names[u], names[v]), causes)


def _waste(ledger: Ledger) -> PromiseVerdict:
    idle, up = ledger.cluster.tolist()
    if not up:
        return PromiseVerdict(Promise.NO_WASTE, Standing.NOT_MEASURED, None, TOLERANCE)
    standing = Standing.KEPT if idle / up <= TOLERANCE else Standing.BROKEN
    return PromiseVerdict(Promise.NO_WASTE, standing, idle / up, TOLERANCE)


def _lies() -> PromiseVerdict:
    return PromiseVerdict(Promise.NO_EXAGGERATION, Standing.NOT_MEASURED, None, None)


def sharing_incentives(ledger: Ledger) -> dict[int, float]:
    """By tenant that ever wanted more: what it achieved and was repaid later / what its private slice was worth."""
    compared = np.flatnonzero(ledger["slice"] > 0)
    values = (ledger["achieved"] + ledger["repaid"])[compared] / ledger["slice"][compared]
    return dict(zip(compared.tolist(), values.tolist(), strict=True))


def envy_table(ledger: Ledger) -> np.ndarray:
    """u,v  How much more v's GPUs were worth to u than its own, relative to these; infinity if u held nothing."""
    envy = np.divide(ledger.others, ledger.own, out=np.ones_like(ledger.own), where=ledger.own > 0) - 1.0
    envy[(ledger.own <= 0) & (ledger.others > 0)] = math.inf
    np.fill_diagonal(envy, 0.0)
    return np.maximum(envy, 0.0)


def largest_envy(ledger: Ledger) -> tuple[float, int, int]:
    """The largest envy, the tenant that has it, and the one that it envies."""
    envy = envy_table(ledger)
    if not envy.size:
        return 0.0, 0, 0
    u, v = divmod(int(envy.argmax()), len(envy))
    return float(envy[u, v]), u, v


def _parts(causes: Mapping[LackCause, float]) -> dict[str, float]:
    """The causes as parts of their sum, without those that do not matter."""
    total = sum(causes.values())
    return {str(cause): value / total for cause, value in causes.items() if value and total > 0}
