"""What a simulated future has to assume: the lengths of jobs that declare none, and the jobs that arrive later.

Every job's draws come from a stream of its own, so the same seed gives a job the same length in every scenario.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from fairlead.model.arrays import BoolArray, FloatArray
from fairlead.model.jobs import JobSpec
from fairlead.model.lifecycle import Phase
from fairlead.numerics.random import stream
from fairlead.rates.estimator import allowed_rates
from fairlead.rounds.state import State
from fairlead.studies.runs.from_state import Lengths
from fairlead.studies.what_if.batches import copied_length_s, likeness_of, neighbours_of

ENOUGH = 5  # jobs that must have ended before lengths are more than guesses
GROUP = 20  # ended jobs of a group whose lengths are drawn from; with fewer, those of a wider group
MOST_LONGER = 100.0  # a job that is older than all others lasts at most this many times as long
BLOCKS = 8  # of the recent arrivals, which are repeated whole
NOTHING_KNOWN_S = 3600.0  # the length of a job if no job has ever finished or declared a length
RECENT_S = 86_400.0  # arrivals of a day show the rate at which jobs arrive
SHORTEST_S = 3600.0  # a rate is not read off a shorter time


@dataclass(frozen=True)
class Observed:
    """Lengths of jobs in seconds at their best rate, ascending; of a job that has not ended, how long it is at least."""

    length_s: FloatArray
    ended: BoolArray

    def above(self, age_s: float) -> Observed:
        first = int(np.searchsorted(self.length_s, age_s, side="right"))
        return Observed(self.length_s[first:], self.ended[first:])

    def at(self, part: float) -> float:
        """The length below which `part` of all lengths are, by the product-limit estimator of Kaplan and Meier.

            S(t) = product over lengths l_i <= t of jobs that ended (1 - 1 / n_i),  n_i = the jobs with at least that length

        What no ended job shows is longer than the longest, by the law of `older`.
        """
        at_risk = np.arange(len(self.ended), 0, -1)
        survival = np.cumprod(np.where(self.ended, 1.0 - 1.0 / at_risk, 1.0))
        place = int(np.searchsorted(-survival, -(1.0 - part)))  # the first length with S(t) <= 1 - part
        if place < len(survival):
            return float(self.length_s[place])
        return older(float(self.length_s[-1]), (1.0 - part) / float(survival[-1]))

    def survival_at(self, age_s: float) -> float:
        """S(t): the part of all lengths above `age_s`."""
        shown = self.ended[: int(np.searchsorted(self.length_s, age_s, side="right"))]
        at_risk = len(self.ended) - np.arange(len(shown))
        return float(np.prod(np.where(shown, 1.0 - 1.0 / at_risk, 1.0)))


def older(age_s: float, left: float) -> float:
    """The length of a job that has outlived all others, if `left` in (0, 1] of such jobs are longer.

    A job that is seen at a random time of its life lasts for more than r times its age with the chance 1 / r, whatever
    its length; so do running jobs of the Philly trace (half of them 2.6 times, a tenth of them 13 times).
    """
    return age_s * min(1.0 / max(left, 1e-12), MOST_LONGER)


_NONE = Observed(np.empty(0), np.empty(0, dtype=np.bool_))


@dataclass(frozen=True)
class History:
    """Observed lengths by group, the narrowest first: tenant and model, tenant, all jobs."""

    groups: Mapping[tuple[str, ...], Observed] = field(default_factory=dict)

    def lengths_above(self, spec: JobSpec, age_s: float) -> Observed:
        """Lengths above `age_s` of the narrowest group in which enough jobs have ended with one; else of the widest."""
        above = _NONE
        for group in _groups(spec):
            above = self.groups.get(group, _NONE).above(age_s)
            if np.count_nonzero(above.ended) >= GROUP:
                break
        return above

    def survival(self, age_s: float) -> float:
        """The part of all jobs that last longer than `age_s`."""
        return self.groups.get((), _NONE).survival_at(age_s)


def history_of(state: State) -> History:
    """From the jobs that finished and those that run; from declared lengths, if no job has finished."""
    finished = np.flatnonzero(state.phase[: state.jobs] == Phase.FINISHED)
    unfinished = state.active_jobs
    jobs, samples = np.concatenate((finished, unfinished)), state.done_at(unfinished, state.now_s)
    samples, ended = np.concatenate((state.done[finished], samples)), np.arange(len(jobs)) < len(finished)
    if not len(finished):
        jobs = np.flatnonzero(~np.isnan(state.total[: state.jobs]))
        samples, ended = state.total[jobs], np.ones(len(jobs), dtype=np.bool_)
    best = state.best_rate[jobs].max(axis=1, initial=0.0)
    known = (best > 0) & (samples > 0)
    members: dict[tuple[str, ...], list[int]] = {}
    for place in np.flatnonzero(known).tolist():
        for group in _groups(state.specs[int(jobs[place])]):
            members.setdefault(group, []).append(place)
    length_s = np.divide(samples, best, out=np.zeros_like(samples), where=known)
    return History({group: _sorted(length_s[places], ended[places]) for group, places in members.items()})


def _groups(spec: JobSpec) -> tuple[tuple[str, ...], ...]:
    return (spec.tenant, spec.model), (spec.tenant,), ()


def _sorted(length_s: FloatArray, ended: BoolArray) -> Observed:
    order = np.lexsort((~ended, length_s))  # of equal lengths, those of ended jobs first
    return Observed(length_s[order], ended[order])


def drawn_lengths(
    state: State, true_steps: Mapping[str, float], seed: int, copies: Mapping[str, int] | None = None
) -> Lengths:
    """The steps in `true_steps`, else those that a job declares, else a draw from the lengths of earlier jobs.

    Jobs that their tenant submitted together may have the same length (`batches`). `copies` are later jobs that have
    the length of a present one, given by its position. No job lasts longer than the limit of its runs.
    """
    history, copied_from = history_of(state), copies or {}
    present_s = _present_lengths(state, history, true_steps, seed)

    def steps(spec: JobSpec, done: float) -> float | None:
        if spec.id in true_steps or (spec.steps is not None and spec.run_limit_s is None):
            return true_steps.get(spec.id)
        best = float(allowed_rates(spec, state.cluster, state.estimator).max(initial=0.0))
        if best <= 0:
            return None if spec.steps is not None else done + 1.0  # it never runs, so any length will do
        per_step = state.estimator.samples_per_step(spec.model, spec.gpus)
        age_s = done * per_step / best
        length_s = drawn_s(spec, age_s) if spec.steps is None else spec.steps * per_step / best
        return min(length_s, _longest_s(spec, age_s)) * best / per_step

    def drawn_s(spec: JobSpec, age_s: float) -> float:
        length_s = present_s.get(copied_from.get(spec.id, state.position.get(spec.id, -1)))
        return _fresh_s(history, spec, age_s, seed) if length_s is None or length_s <= age_s else length_s

    return steps


def _longest_s(spec: JobSpec, age_s: float) -> float:
    """How long the job can last at its best rate. One that is older than its limit has had several runs."""
    if spec.run_limit_s is None:
        return math.inf
    return spec.run_limit_s if age_s < spec.run_limit_s else age_s + spec.run_limit_s


def _fresh_s(history: History, spec: JobSpec, age_s: float, seed: int) -> float:
    """A length above `age_s` for a job that is like no other one."""
    part = float(stream(seed, f"length of {spec.id}").random())
    observed = history.lengths_above(spec, age_s)
    if len(observed.length_s):
        return observed.at(part)
    return older(age_s, 1.0 - part) if history.groups else max(2 * age_s, NOTHING_KNOWN_S)


def _present_lengths(
    state: State, history: History, true_steps: Mapping[str, float], seed: int
) -> dict[int | None, float]:
    """Lengths in seconds at the best rate of the active jobs that declare none, by position."""
    jobs = np.arange(state.jobs)
    best = state.best_rate[jobs].max(axis=1, initial=0.0)
    length_s = np.full(state.jobs, np.nan)
    finished = (state.phase[jobs] == Phase.FINISHED) & (best > 0)
    length_s[finished] = state.done[jobs][finished] / best[finished]
    before = neighbours_of(state)
    likeness = likeness_of(length_s, before)
    active = state.active_jobs
    drawn: dict[int | None, float] = {}
    for j, samples in zip(active.tolist(), state.done_at(active, state.now_s).tolist(), strict=True):
        spec, rate = state.specs[j], float(best[j])
        declared = true_steps.get(spec.id, spec.steps)
        if rate <= 0:
            continue
        if declared is not None:
            length_s[j] = declared * state.estimator.samples_per_step(spec.model, spec.gpus) / rate
            continue
        age_s, previous, copy_s = samples / rate, before.get(j), None
        if likeness.chance > 0 and previous is not None and length_s[previous] > 0:
            draws = stream(seed, f"batch of {spec.id}").random(2).tolist()
            copy_s = copied_length_s(likeness, float(length_s[previous]), age_s, history.survival(age_s), draws)
        length_s[j] = drawn[j] = _fresh_s(history, spec, age_s, seed) if copy_s is None else copy_s
    return drawn


@dataclass(frozen=True, slots=True)
class LaterJobs:
    jobs: tuple[JobSpec, ...] = ()
    true_steps: Mapping[str, float] = field(default_factory=dict)  # of jobs that declare no length
    per_hour: float = 0.0  # the rate at which they were drawn
    copies: Mapping[str, int] = field(default_factory=dict)  # job -> the present job whose unknown length it has


def later_jobs(state: State, factor: float, until_s: float, seed: int) -> LaterJobs:
    """Arrivals up to a time: blocks of the recent arrivals, drawn with replacement, `factor` times as fast.

    Recent are the arrivals of the last day, or of the time since the first arrival if that is shorter. A block is an
    eighth of that time, so jobs that arrived together do so again.
    """
    now_s = state.now_s
    span_s = min(RECENT_S, max(now_s - state.first_arrival_s, SHORTEST_S))
    recent = np.flatnonzero(
        (state.arrival_s[: state.jobs] > now_s - span_s) & state.best_rate[: state.jobs].any(axis=1)
    )
    per_s = factor * len(recent) / span_s
    if per_s <= 0:
        return LaterJobs()
    draws = stream(seed, "later arrivals")
    past_s, block_s = state.arrival_s[recent] - (now_s - span_s), span_s / BLOCKS  # since the recent time began
    jobs, true_steps, copies = list[JobSpec](), dict[str, float](), dict[str, int]()
    begin_s = now_s
    while begin_s < until_s:
        into_s = (
            past_s - draws.uniform(0.0, span_s)
        ) % span_s  # since the block began, which may begin in the past's end
        for place in np.argsort(into_s, kind="stable").tolist():
            arrival_s = begin_s + float(into_s[place]) / factor
            if into_s[place] >= block_s or arrival_s >= until_s:
                break
            j = int(recent[place])
            spec = replace(state.specs[j], id=f"later-{len(jobs) + 1}", arrival_s=arrival_s)
            jobs.append(spec)
            if spec.steps is None and state.phase[j] == Phase.FINISHED and state.done[j] > 0:
                true_steps[spec.id] = float(state.done[j]) / state.estimator.samples_per_step(spec.model, spec.gpus)
            elif spec.steps is None:
                copies[spec.id] = j
        begin_s += block_s / factor
    return LaterJobs(tuple(jobs), true_steps, per_s * 3600, copies)
