"""The metrics of a running service. A thread follows the log and reads the tables; a scrape only writes what it found."""

from __future__ import annotations

import math
import platform
import threading
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from fairlead import __version__
from fairlead.model.histogram import Histogram
from fairlead.service.store.followed import (
    FollowedRecord,
    archived_ends,
    crowd_so_far,
    jobs_by_id,
    jobs_by_state,
    oldest_arrival_s,
    waiting_widths,
)
from fairlead.service.store.reads import Reads
from fairlead.service.telemetry import families as f
from fairlead.service.telemetry.auditing import MetricsAudit
from fairlead.service.telemetry.crowd import Crowd
from fairlead.service.telemetry.exposition import Labels, MetricFamily, Samples, render
from fairlead.service.telemetry.log_tally import KINDS, LogTally, Ratios, named_jobs
from fairlead.service.telemetry.scheduler_figures import SchedulerFigures
from fairlead.service.telemetry.table_gauges import (
    fragmented_gauge,
    gpu_gauges,
    held_by_type,
    jobs_gauge,
    largest,
    share_gauges,
    summed,
)

FRESH_S = 1.0  # a scrape this soon after another one gets the same document
REFRESH_S = 1.0  # between two looks at the tables
REFRESH_PART = 0.05  # of the time may be spent on looking at them
QUIET_REFRESH_S = 15.0  # while nothing is recorded
_HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class NoticeFigures:
    """How many notices of one channel were delivered, dropped, or still wait."""

    channel: str
    delivered: int = 0
    failed_attempts: int = 0
    dropped: int = 0
    pending: int = 0


@dataclass(frozen=True, slots=True)
class MetricsSources:
    """What metrics read besides the log and its tables."""

    scheduler: Callable[[], SchedulerFigures] = SchedulerFigures
    commits: Callable[[], Histogram | None] = lambda: None  # of requests.db
    notices: Callable[[], list[NoticeFigures]] = list
    ratios: Ratios = lambda job, crowd: None


@dataclass(slots=True)
class _Tables:
    """The tables as they were last looked at."""

    gauges: dict[str, Samples] = field(default_factory=dict)
    oldest_s: float | None = None  # arrival of the oldest job that waits
    clock_s: float = 0.0  # log time minus monotonic time
    last_seq: int = 0


class Metrics:
    """Implements `LogConsumer`, and answers scrapes from any thread."""

    name = "metrics"
    kinds: Collection[str] = KINDS

    def __init__(self, reads: Reads, audit: MetricsAudit, sources: MetricsSources | None = None) -> None:
        self._reads, self._audit, self._sources = reads, audit, sources or MetricsSources()
        self._tally = LogTally(self._sources.ratios)
        self._lock = threading.Lock()  # for everything below
        self._tables = _Tables()
        self._counted = 0  # the last record that the tally contains
        self._text, self._text_s = "", -math.inf
        self._refresh_s = 0.0
        self._stale = False  # records have come since the tables were read

    # ---- following the log --------------------------------------------------------------------------------------

    def begin(self, memory: Any) -> int:
        tally, archived = LogTally(self._sources.ratios), 0
        if memory is not None:
            tally.restore(memory["tally"])
            self._counted = int(memory["counted"])
        else:
            archived = self._counted = self._reads.archived_seq()
            for (tenant, phase), count in archived_ends(self._reads).items():
                label = tally.tenants.label(tenant)
                tally.count(f.JOBS_SUBMITTED, (label,), count)
                tally.count(f.JOBS_ENDED, (label, phase), count)
        tally.crowd_seq, arrivals_s, ends_s = crowd_so_far(self._reads)
        tally.crowd = Crowd(arrivals_s, ends_s)
        with self._lock:
            self._tally = tally
        return archived

    def take(self, page: list[FollowedRecord]) -> None:
        jobs = jobs_by_id(self._reads, named_jobs(page)) if page else {}
        with self._lock:
            for record in page:
                if record.seq > self._counted:  # a page comes again if the database could not be read
                    self._counted = record.seq
                    if record.body:
                        self._tally.fold(record, jobs)
        self._stale |= bool(page)
        now_s = time.monotonic()
        if now_s >= self._refresh_s and (self._stale or now_s >= self._refresh_s + QUIET_REFRESH_S):
            self._refresh()
            self._stale = False
            spent_s = time.monotonic() - now_s
            self._refresh_s = time.monotonic() + max(REFRESH_S, spent_s / REFRESH_PART)

    def settled(self, last: int) -> int:
        return last

    def memory(self) -> Any:
        with self._lock:
            return {"tally": self._tally.to_json(), "counted": self._counted}

    def _refresh(self) -> None:
        reads, labels = self._reads, self._tally.tenants
        states, nodes, terms, held = jobs_by_state(reads), reads.nodes(), reads.tenants(), reads.held()
        weights = {tenant: terms[tenant].weight if tenant in terms else 1.0 for tenant, _ in states}
        policy, now_s = reads.policy()[0], reads.now_s()
        counts = held_by_type(nodes, held)
        widths, oldest_s, last_seq = waiting_widths(reads), oldest_arrival_s(reads), reads.last_seq()
        with self._lock:
            gauges: dict[str, Samples] = {
                f.JOBS.name: jobs_gauge(states, labels),
                f.POLICY_INFO.name: {(policy,): 1.0},
                f.FRAGMENTED.name: fragmented_gauge(nodes, widths),
                f.TENANT_WEIGHT.name: summed(((labels.label(name),), weight) for name, weight in weights.items()),
                **gpu_gauges(nodes, counts),
                **share_gauges(nodes, states, weights, counts, labels),
            }
            self._tables = _Tables(gauges, oldest_s, now_s - time.monotonic(), last_seq)

    # ---- scrapes ------------------------------------------------------------------------------------------------

    def text(self) -> str:
        """All metrics, at most `FRESH_S` old; waits at most until a page of the log is counted."""
        self._audit.want()
        with self._lock:
            if time.monotonic() - self._text_s >= FRESH_S:
                self._text, self._text_s = render(self._families()), time.monotonic()
            return self._text

    def _families(self) -> Iterator[tuple[MetricFamily, Samples]]:
        others = {
            **self._of_scheduler(self._sources.scheduler()),
            **self._of_audit(),
            **self._of_notices(),
            **self._of_tables(),
        }
        for family in f.FAMILIES:
            yield family, others.get(family.name) or self._tally.samples(family)

    def _of_tables(self) -> dict[str, Samples]:
        tables = self._tables
        waited_s = 0.0 if tables.oldest_s is None else tables.clock_s + time.monotonic() - tables.oldest_s
        return {
            **tables.gauges,
            f.BUILD_INFO.name: {(__version__, platform.python_version()): 1.0},
            f.OLDEST_WAITING.name: {(): max(waited_s, 0.0)},
            f.LOG_RECORDS.name: {(): float(max(tables.last_seq, self._counted))},
            f.METRICS_LAG.name: {(): float(max(tables.last_seq - self._counted, 0))},
        }

    def _of_scheduler(self, figures: SchedulerFigures) -> dict[str, Samples]:
        measured, commits = figures.measurements, self._sources.commits()
        by_database = {("events",): measured.commits, **({} if commits is None else {("requests",): commits})}
        age_s = figures.decision_age_s
        return {
            f.SCHEDULER_READY.name: {(): float(figures.ready)},
            f.SCHEDULER_RESTARTS.name: {(): float(figures.restarts)},
            f.POLICY_FAILED.name: {(): float(figures.policy_failed)},
            f.DECISION_OVERDUE.name: {(): float(figures.decision_overdue)},
            **({} if age_s is None else {f.DECISION_AGE.name: {(): age_s}}),
            f.DECISION_SECONDS.name: {(): measured.decisions},
            f.COMMIT_SECONDS.name: by_database,
            f.ENGINE_CALL_SECONDS.name: {(call,): one for call, one in measured.calls.items()},
            f.ENGINE_CALL_ERRORS.name: {(call,): float(count) for call, count in measured.errors.items()},
        }

    def _of_notices(self) -> dict[str, Samples]:
        figures = self._sources.notices()
        outcomes: dict[Labels, float] = {}
        for one in figures:
            outcomes[one.channel, "delivered"] = one.delivered
            outcomes[one.channel, "failed_attempt"] = one.failed_attempts
            outcomes[one.channel, "dropped"] = one.dropped
        pending = {(one.channel,): float(one.pending) for one in figures}
        return {f.NOTICES.name: outcomes, f.NOTICES_PENDING.name: pending}

    def _of_audit(self) -> dict[str, Samples]:
        samples: dict[str, Samples] = {f.AUDIT_FAILURES.name: {(): float(self._audit.failures)}}
        if self._audit.newest is None:
            return samples
        made_s, audit = self._audit.newest
        label, tenants = self._tally.tenants.label, audit["tenants"]

        def seconds(key: str) -> dict[Labels, float]:
            return summed(((label(name),), one[key] * _HOUR_S) for name, one in tenants.items())

        incentives = {name: one["sharing_incentive"] for name, one in tenants.items()}
        envies = {name: math.inf if one["envy"] is None else one["envy"] for name, one in tenants.items()}
        return {
            **samples,
            f.AUDIT_TIME.name: {(): made_s},
            f.ENVY.name: largest(((label(name),), envy) for name, envy in envies.items()),
            f.SHARING_INCENTIVE.name: {
                labels: -value
                for labels, value in largest(
                    ((label(name),), -one) for name, one in incentives.items() if one is not None
                ).items()
            },
            f.HELD_GPU_SECONDS.name: summed(
                ((label(name), type_), hours * _HOUR_S)
                for name, one in tenants.items()
                for type_, hours in one["gpu_hours"].items()
            ),
            f.ENTITLED_GPU_SECONDS.name: seconds("entitled_gpu_hours"),
            f.BORROWED_GPU_SECONDS.name: seconds("borrowed_gpu_hours"),
            f.LENT_GPU_SECONDS.name: seconds("lent_gpu_hours"),
            f.RESTART_GPU_SECONDS.name: seconds("restart_gpu_hours"),
        }
