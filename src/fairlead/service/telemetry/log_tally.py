"""Counts what the log records. The counts are stored with their place in the log, so that a restart loses none."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from fairlead.engines.slurm.folding import BY_SLURM
from fairlead.model.histogram import Histogram, histogram_from_json
from fairlead.service.store.followed import FollowedJob, FollowedRecord
from fairlead.service.telemetry import families as f
from fairlead.service.telemetry.crowd import Crowd
from fairlead.service.telemetry.exposition import Labels, MetricFamily, Samples

MOST_TENANTS = 50
OTHER = "other"
Ratios = Callable[[FollowedJob, float], tuple[float, float] | None]  # job, mean active jobs -> FTF, latency ratio
_ENDS = ("finished", "failed", "cancelled")
_OFF_GPUS = frozenset({"stopped", "held", "lost", "refused", *_ENDS})
_GOOD_SOLVES = frozenset({"", "optimal", "close"})
KINDS = frozenset({"arrived", "started", "progress", "decision", "advised", "policy_set", *_OFF_GPUS})


class TenantLabels:
    """Tenants in the order in which they were first seen; those after the first `MOST_TENANTS` are one label."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.names = dict.fromkeys(names)

    def label(self, tenant: str) -> str:
        if tenant in self.names:
            return tenant
        if len(self.names) >= MOST_TENANTS:
            return OTHER
        self.names[tenant] = None
        return tenant


class LogTally:
    """Counters and histograms over the records of the log."""

    def __init__(self, ratios: Ratios = lambda job, crowd: None) -> None:
        self._ratios = ratios
        self.tenants = TenantLabels()
        self.crowd = Crowd()
        self.crowd_seq = 0  # arrivals and ends up to this record are in the crowd already
        self._counters: dict[str, dict[Labels, float]] = {}
        self._histograms: dict[str, dict[Labels, Histogram]] = {}
        self._expected: dict[str, float] = {}  # rate by job that started and has not reported yet
        self._begin_at_zero()

    def fold(self, record: FollowedRecord, jobs: Mapping[str, FollowedJob]) -> None:
        """Count a record; `jobs` has the rows of the jobs that it names, except archived ones."""
        body, kind = record.body, record.kind
        if kind == "decision":
            self._decided(body, jobs)
        elif kind == "advised":
            self._solved(body)
        elif kind == "arrived":
            self._submitted(body["job"]["tenant"])
            if record.seq > self.crowd_seq:
                self.crowd.arrive(body["job"]["arrival_s"])
        elif kind == "started":
            self._started(record, jobs)
        elif kind == "progress":
            self._progressed(body)
        elif kind == "policy_set":
            self.count(f.POLICY_FALLBACKS, (), 1 if body.get("instead_of") else 0)
        if kind in _OFF_GPUS:
            self._off_gpus(record, jobs)

    def count(self, family: MetricFamily, labels: Labels, more: float = 1.0) -> None:
        counts = self._counters.setdefault(family.name, {})
        counts[labels] = counts.get(labels, 0.0) + more

    def observe(self, family: MetricFamily, labels: Labels, value: float) -> None:
        by_labels = self._histograms.setdefault(family.name, {})
        if labels not in by_labels:
            by_labels[labels] = Histogram(family.bounds)
        by_labels[labels].observe(value)

    def samples(self, family: MetricFamily) -> Samples:
        return self._histograms.get(family.name) or self._counters.get(family.name, {})

    def _begin_at_zero(self) -> None:
        """Make the samples whose labels are known, so that their first increase is seen."""
        for family, labels in (
            (f.DECISIONS, ("round",)),
            (f.DECISIONS, ("event",)),
            (f.DECISIONS_CUT_SHORT, ()),
            (f.SOLVER_FALLBACKS, ()),
            (f.POLICY_FALLBACKS, ()),
            (f.ENGINE_DRIFT, ("lost",)),
            (f.ENGINE_DRIFT, ("refused",)),
        ):
            self.count(family, labels, 0.0)
        for family in (f.FINISH_TIME_FAIRNESS, f.LATENCY_RATIO, f.RATE_ERROR):
            self._histograms[family.name] = {(): Histogram(family.bounds)}

    def _submitted(self, tenant: str) -> None:
        """Count a job, and begin the other counts of a new tenant at zero."""
        label = self.tenants.label(tenant)
        self.count(f.JOBS_SUBMITTED, (label,))
        for family in (f.JOB_STARTS, f.PREEMPTIONS, f.MOVES):
            self.count(family, (label,), 0.0)
        for outcome in _ENDS:
            self.count(f.JOBS_ENDED, (label, outcome), 0.0)

    def to_json(self) -> dict[str, Any]:
        return {
            "tenants": list(self.tenants.names),
            "counters": {name: list(map(list, values.items())) for name, values in self._counters.items()},
            "histograms": {
                name: [[labels, one.to_json()] for labels, one in values.items()]
                for name, values in self._histograms.items()
            },
        }

    def restore(self, document: dict[str, Any]) -> None:
        """Continue from stored counts. Histograms with other bounds, of an older version, begin again."""
        bounds = {family.name: family.bounds for family in f.FAMILIES}
        self.tenants = TenantLabels(document["tenants"])
        self._counters = {
            name: {tuple(labels): float(value) for labels, value in rows}
            for name, rows in document["counters"].items()
            if name in bounds
        }
        for name, rows in document["histograms"].items():
            read = {tuple(labels): histogram_from_json(one) for labels, one in rows}
            self._histograms[name] = {key: one for key, one in read.items() if one.bounds == bounds.get(name)}

    def _tenant(self, id_: str, jobs: Mapping[str, FollowedJob]) -> str:
        return self.tenants.label(jobs[id_].tenant) if id_ in jobs else OTHER

    def _decided(self, body: dict[str, Any], jobs: Mapping[str, FollowedJob]) -> None:
        if body["solver"] == BY_SLURM:  # a start that a watched Slurm made
            self.count(f.DECISIONS, ("slurm",))
        else:
            self._solved(body)
        for id_ in body["stop"]:
            self.count(f.MOVES if id_ in body["start"] else f.PREEMPTIONS, (self._tenant(id_, jobs),))

    def _solved(self, body: dict[str, Any]) -> None:
        """Count a decision or an advice of our own."""
        self.count(f.DECISIONS, (str(body["cause"]),))
        self.count(f.DECISIONS_CUT_SHORT, (), 1 if body.get("by_clock") else 0)
        self.count(f.SOLVER_FALLBACKS, (), 0 if body["solver"] in _GOOD_SOLVES else 1)

    def _started(self, record: FollowedRecord, jobs: Mapping[str, FollowedJob]) -> None:
        body = record.body
        for id_, rate in zip(body["jobs"], body["rate"], strict=True):
            tenant, job = self._tenant(id_, jobs), jobs.get(id_)
            self.count(f.JOB_STARTS, (tenant,))
            if not body.get("measured", True) and rate > 0:
                self._expected[id_] = rate
            if job is not None and job.first_start_s == record.time_s:
                self.observe(f.JOB_WAIT, (tenant,), max(record.time_s - job.arrival_s, 0.0))

    def _progressed(self, body: dict[str, Any]) -> None:
        for id_, rate in zip(body["jobs"], body["rate"], strict=True):
            if rate > 0 and id_ in self._expected:
                self.observe(f.RATE_ERROR, (), abs(rate / self._expected.pop(id_) - 1.0))

    def _off_gpus(self, record: FollowedRecord, jobs: Mapping[str, FollowedJob]) -> None:
        kind, ids = record.kind, record.body["jobs"]
        for id_ in ids:
            self._expected.pop(id_, None)
        if kind in ("lost", "refused"):
            self.count(f.ENGINE_DRIFT, (kind,), len(ids))
        for id_ in ids if kind in _ENDS else ():
            self.count(f.JOBS_ENDED, (self._tenant(id_, jobs), kind))
            if record.seq > self.crowd_seq:
                self.crowd.end(record.time_s)
            if kind == "finished" and id_ in jobs:
                self._finished(jobs[id_], record.time_s)

    def _finished(self, job: FollowedJob, end_s: float) -> None:
        self.observe(f.JOB_COMPLETION, (self.tenants.label(job.tenant),), max(end_s - job.arrival_s, 0.0))
        ratios = self._ratios(job, self.crowd.mean(job.arrival_s, end_s))
        if ratios is not None:
            self.observe(f.FINISH_TIME_FAIRNESS, (), ratios[0])
            self.observe(f.LATENCY_RATIO, (), ratios[1])


def named_jobs(page: Sequence[FollowedRecord]) -> list[str]:
    """The jobs whose rows are needed to count these records, each once."""
    ids: dict[str, None] = {}
    for record in page:
        if record.kind == "decision":
            ids.update(dict.fromkeys(record.body["stop"]))
        elif record.kind == "started" or record.kind in _ENDS:
            ids.update(dict.fromkeys(record.body["jobs"]))
    return list(ids)


def ratios_of(profiled: Callable[[str], bool], rates: Callable[[Any], Any], capacity: Callable[[], Any]) -> Ratios:
    """Finish-time fairness and latency ratio of finished jobs, as docs/metrics.md defines them.

    None for a job whose model nobody has profiled, because its speeds are made up, and for one that did nothing.
    """
    import numpy as np

    from fairlead.numerics.metrics import expected_run_s, isolated_rate
    from fairlead.rounds.records import spec_from_json

    def ratios(job: FollowedJob, crowd: float) -> tuple[float, float] | None:
        spec = spec_from_json(json.loads(job.spec))
        if not profiled(spec.model) or job.end_s is None or job.done <= 0:
            return None
        rate, gpus, samples = rates(spec)[None, :], capacity(), np.array([job.done])
        slice_rate = float(isolated_rate(rate, np.array([spec.gpus]), gpus, np.array([crowd]))[0])
        age_s = float(expected_run_s(samples, rate, gpus)[0])
        if slice_rate <= 0 or age_s <= 0:
            return None
        jct_s = job.end_s - job.arrival_s
        return jct_s * slice_rate / job.done, max(jct_s - job.run_s, 0.0) / age_s

    return ratios
