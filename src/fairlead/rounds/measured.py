"""Measured rates: factors on the table's rates, learnt from the reports of running jobs, as every policy sees them.

A group is the jobs of one tenant with one model. Its jobs inform each other and the next job of the group, but no other
tenant, so that nobody is moved by the reports of somebody else's scripts. All numbers are logarithms of factors. For
every type t,

    goal_t  = c_t mean_t + (1 - c_t) base_t          c_t = 1 - prod_j (1 - c_jt);  1 from `SURE` on
    mean_t  = sum_j c_jt f_jt / sum_j c_jt           over the group's jobs j that are not over

f_jt and c_jt are the factor and the confidence that the estimator reports for job j. base_t is what earlier jobs of the
group left behind, or else 0: the table. If nobody stated speeds of the model, the scale of its rates is made up, and
base_t is then the scale of the types that were observed, so that a first report does not change the ratios of types.
From `SURE` on the base has no weight, because jobs may leave a type and never return: what is left of a wrong declaration
would stay believed.

The published level follows the goal: a difference of less than `BAND` changes nothing, so that shares do not flap and
solvers are not woken, and from one round to the next the level moves by at most `STEP`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fairlead.model.arrays import BoolArray, FloatArray, IntArray

STEP = math.log(1.25)  # largest change of a factor between two rounds
BAND = math.log(1.05)  # smaller differences are noise
SURE = 0.7  # confidence from which a type counts as measured: two reports
MOST = math.log(100.0)  # a factor beyond this is not credible where the table was profiled
MOST_GROUPS = 10_000  # beyond this, groups without jobs are forgotten, the least recently reported first
_SURE = 1.0 - 1e-9  # a confidence of 1 would have no logarithm of its doubt

Group = tuple[int, int]  # tenant, model


class MeasuredRates:
    """The factors of all groups; part of the folded state. Groups that were never reported have the table's rates."""

    def __init__(self, types: int) -> None:
        self._types = types
        self._groups: dict[Group, _Evidence] = {}
        self._moving: dict[Group, None] = {}  # groups whose level has changed in this round, or is not at its goal
        self.version = 0  # counts changes of levels

    @property
    def moves(self) -> bool:
        """Whether a level has changed since the last round, or will change with the next one."""
        return bool(self._moving)

    def report(self, group: Group, job: int, factor: FloatArray, confidence: FloatArray, *, scaled: bool) -> None:
        """Replace what is known from the job by its factors (t) and confidences (t).

        `scaled` is whether the table's rates have a scale, or only ratios.
        """
        evidence = self._groups.pop(group, None) or _Evidence(self._types)
        self._groups[group] = evidence  # the last to be reported is the last in order
        evidence.replace(job, np.log(factor), np.minimum(confidence, _SURE), scaled=scaled)
        self._publish(group, evidence)
        if len(self._groups) > MOST_GROUPS:
            self._forget_one()

    def end(self, group: Group, job: int) -> None:
        """The job is over. What was known from it becomes the base for the group's next jobs."""
        if group in self._groups and self._groups[group].end(job):
            self._publish(group, self._groups[group])

    def trust(self, group: Group, type_: int) -> None:
        """Publish at once what is known about the group, which was measured on the type on purpose.

        What was measured there replaces the base, so that none of what was declared remains in the mean.
        """
        if group in self._groups and self._groups[group].settle(type_):
            self.version += 1

    def next_round(self) -> None:
        """A round was decided; until the next one, levels may move by another step."""
        moving, self._moving = self._moving, {}
        for group in moving:
            if group in self._groups:
                evidence = self._groups[group]
                evidence.anchor = evidence.level.copy()
                self._publish(group, evidence)

    def of_pairs(self, tenant: IntArray, model: IntArray) -> tuple[FloatArray, IntArray] | None:
        """j,t  factors of jobs with these tenants (j) and models (j), and j, the same number for the same factors.

        None if no group has other rates than the table's.
        """
        if not self.version:
            return None
        pairs, of = np.unique(np.column_stack((tenant, model)), axis=0, return_inverse=True)
        rows = np.zeros((len(pairs), self._types))
        for row, (u, m) in zip(rows, pairs.tolist(), strict=True):
            if (u, m) in self._groups:
                row[:] = self._groups[u, m].level
        number = np.where(rows.any(axis=1), np.arange(1, len(pairs) + 1), 0)
        of = of.reshape(-1)
        return np.exp(rows)[of], number[of]

    def factor(self, group: Group) -> FloatArray | None:
        """t  published factors; None: those of the table."""
        evidence = self._groups.get(group)
        return None if evidence is None or not evidence.level.any() else np.exp(evidence.level)

    def has(self, group: Group) -> bool:
        return group in self._groups

    def confidence(self, group: Group) -> FloatArray:
        """t  how certain the group's factors are; 0 where nothing was ever observed."""
        evidence = self._groups.get(group)
        return np.zeros(self._types) if evidence is None else np.maximum(evidence.confidence, evidence.past)

    def widen(self, types: int) -> None:
        """Make room for new types, on which nothing has been observed."""
        for evidence in self._groups.values():
            evidence.widen(types)
        self._types = types

    def renumber(self, position: Mapping[int, int]) -> None:
        """Jobs have new positions; those without one are over."""
        for evidence in self._groups.values():
            evidence.jobs = {position[job]: known for job, known in evidence.jobs.items()}

    def models(self) -> set[int]:
        return {model for _, model in self._groups}

    def copy(self) -> MeasuredRates:
        other = MeasuredRates(self._types)
        other.restore(self.to_json())
        return other

    def to_json(self) -> dict[str, Any]:
        return {
            "groups": [[*group, evidence.to_json()] for group, evidence in self._groups.items()],
            "moving": [list(group) for group in self._moving],
            "version": self.version,
        }

    def restore(self, facts: dict[str, Any]) -> None:
        self._groups = {(u, m): _evidence_from_json(self._types, row) for u, m, row in facts["groups"]}
        self._moving = dict.fromkeys((u, m) for u, m in facts["moving"])
        changed = any(evidence.level.any() for evidence in self._groups.values())
        self.version = facts.get("version", int(changed))  # older snapshots lack it

    def _publish(self, group: Group, evidence: _Evidence) -> None:
        if evidence.publish():
            self.version += 1
            self._moving[group] = None

    def _forget_one(self) -> None:
        oldest = next((group for group, evidence in self._groups.items() if not evidence.jobs), None)
        if oldest is not None:
            changed = self._groups.pop(oldest).level.any()
            self.version += int(changed)


_ROWS = ("weight", "total", "doubt", "base", "past", "level", "anchor")


@dataclass(slots=True)
class _Evidence:
    """What is known about one group. Sums over its jobs are kept, so that a report costs the same for any number of jobs."""

    types: int
    jobs: dict[int, tuple[FloatArray, FloatArray]] = field(default_factory=dict)  # job -> t  f_jt;  t  c_jt
    weight: FloatArray = field(init=False)  # t  sum of c_jt
    total: FloatArray = field(init=False)  # t  sum of c_jt f_jt
    doubt: FloatArray = field(init=False)  # t  sum of log(1 - c_jt)
    base: FloatArray = field(init=False)  # t  left behind by jobs that are over
    past: FloatArray = field(init=False)  # t  their confidence
    level: FloatArray = field(init=False)  # t  published
    anchor: FloatArray = field(init=False)  # t  level at the last round
    limited: BoolArray = field(init=False)  # t  the last step was not enough to reach the goal
    scaled: bool = True  # the table's rates have a scale

    def __post_init__(self) -> None:
        for name in _ROWS:
            setattr(self, name, np.zeros(self.types))
        self.limited = np.zeros(self.types, dtype=np.bool_)

    @property
    def confidence(self) -> FloatArray:
        """t  c_t"""
        return np.asarray(-np.expm1(self.doubt))

    def replace(self, job: int, f: FloatArray, c: FloatArray, *, scaled: bool) -> None:
        self._remove(job)
        self.jobs[job] = (f, c)
        self.weight += c
        self.total += c * f
        self.doubt += np.log1p(-c)
        self.scaled = scaled

    def end(self, job: int) -> bool:
        """Whether anything was known from the job."""
        if job not in self.jobs:
            return False
        scale = self._scale()
        f, c = self._remove(job)
        before = np.where(self.past > 0, self.base, scale)
        self.base = np.where(c > 0, c * f + (1.0 - c) * before, self.base)
        self.past = 1.0 - (1.0 - self.past) * (1.0 - c)
        return True

    def _remove(self, job: int) -> tuple[FloatArray, FloatArray]:
        f, c = self.jobs.pop(job, (np.zeros(self.types), np.zeros(self.types)))
        self.weight -= c
        self.total -= c * f
        self.doubt -= np.log1p(-c)
        if not self.jobs:  # what is left is the rounding error of the sums
            self.weight, self.total, self.doubt = (np.zeros(self.types) for _ in range(3))
        return f, c

    def goal(self) -> FloatArray:
        """t"""
        c = np.clip(self.confidence, 0.0, 1.0)
        mean = self.total / np.maximum(self.weight, 1e-300)
        base = np.where(self.past > 0, self.base, self._scale())
        weight = np.where(c >= SURE, 1.0, c)
        goal = np.where(c > 1e-12, weight * mean + (1.0 - weight) * base, base)
        return np.clip(goal, -MOST, MOST) if self.scaled else goal

    def _scale(self) -> float:
        """The factor of types that were never observed: 0, or without a scale the mean of those that were."""
        if self.scaled:
            return 0.0
        now = float(self.weight.sum())
        if now > 1e-12:
            return float(self.total.sum()) / now
        past = float(self.past.sum())
        return float(self.past @ self.base) / past if past > 0 else 0.0

    def publish(self) -> bool:
        """Move the level towards the goal; whether it changed."""
        goal, before = self.goal(), self.level
        shift = 0.0 if self.scaled else float((goal - self.level).mean())
        if abs(shift) > BAND:  # a change of the scale alone does not change the ratios between types
            self.level, self.anchor = self.level + shift, self.anchor + shift
        moves = (np.abs(goal - self.level) > BAND) | self.limited
        self.level = np.where(moves, np.clip(goal, self.anchor - STEP, self.anchor + STEP), self.level)
        self.limited = moves & (self.level != goal)
        return not np.array_equal(self.level, before)

    def settle(self, type_: int) -> bool:
        """Make the mean of the type its base and move the level to the goal; whether it changed."""
        if self.weight[type_] > 0:
            self.base[type_] = self.total[type_] / self.weight[type_]
            self.past[type_] = max(self.past[type_], self.confidence[type_])
        before, self.level = self.level, self.goal()
        self.anchor, self.limited = self.level.copy(), np.zeros(self.types, dtype=np.bool_)
        return not np.array_equal(self.level, before)

    def widen(self, types: int) -> None:
        new = types - self.types
        if not new:
            return
        self.types = types
        for name in (*_ROWS, "limited"):
            setattr(self, name, np.pad(getattr(self, name), (0, new)))
        self.jobs = {job: (np.pad(f, (0, new)), np.pad(c, (0, new))) for job, (f, c) in self.jobs.items()}

    def to_json(self) -> dict[str, Any]:
        return {
            "jobs": [[job, f.tolist(), c.tolist()] for job, (f, c) in self.jobs.items()],
            "scaled": self.scaled,
            **{name: getattr(self, name).tolist() for name in (*_ROWS, "limited")},
        }


def _evidence_from_json(types: int, row: dict[str, Any]) -> _Evidence:
    evidence = _Evidence(types, scaled=row["scaled"])
    evidence.jobs = {job: (np.array(f), np.array(c)) for job, f, c in row["jobs"]}
    for name in (*_ROWS, "limited"):
        setattr(evidence, name, np.array(row[name], dtype=getattr(evidence, name).dtype))
    return evidence
