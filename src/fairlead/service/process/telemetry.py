"""Metrics, log lines and notices of a running service, as its options ask for them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fairlead.model.cluster import Cluster
from fairlead.rates.estimator import Estimator, allowed_rates
from fairlead.rounds.journal import Header, cluster_from_json
from fairlead.service.store.directory import StateDirectory
from fairlead.service.store.reads import Reads
from fairlead.service.store.writer import Writer
from fairlead.service.telemetry.auditing import MetricsAudit
from fairlead.service.telemetry.follower import LogConsumer, LogFollower
from fairlead.service.telemetry.log_lines import JsonOutput, LogLines
from fairlead.service.telemetry.log_tally import ratios_of
from fairlead.service.telemetry.metrics import Metrics, MetricsSources
from fairlead.service.telemetry.notices import Channel, Notices
from fairlead.service.telemetry.scheduler_figures import SchedulerFigures


@dataclass(frozen=True, slots=True)
class TelemetryOptions:
    metrics_port: int | None = None  # on 127.0.0.1, without tokens; 0: any free port
    json_log: bool = False  # standard error has JSON lines, also one for each decision and change
    channels: Sequence[Channel] = ()  # to which notices go


class Telemetry:
    """Everything that follows the log of this service."""

    def __init__(
        self,
        options: TelemetryOptions,
        directory: StateDirectory,
        header: Header,
        estimator: Estimator,
        reads: Reads,
        scheduler: Callable[[], SchedulerFigures],
        writer: Writer,
        output: JsonOutput | None = None,
    ) -> None:
        self._audit = MetricsAudit(directory, reads.last_seq)
        notices = [Notices(reads, channel) for channel in options.channels]
        hardware = _Hardware(reads, header.cluster, estimator)
        models = frozenset(header.profile.models)
        sources = MetricsSources(
            scheduler=scheduler,
            commits=lambda: writer.commit_seconds,
            notices=lambda: [one.figures() for one in notices],
            ratios=ratios_of(models.__contains__, hardware.rates, hardware.capacity),
        )
        self.metrics = Metrics(reads, self._audit, sources)
        consumers: list[LogConsumer] = [self.metrics, *notices]
        if output is not None:
            consumers.append(LogLines(reads, output.write))
        self._followers = [LogFollower(directory, reads, consumer) for consumer in consumers]

    def start(self) -> None:
        self._audit.start()
        for follower in self._followers:
            follower.start()

    def stop(self) -> None:
        for follower in self._followers:
            follower.stop()
        self._audit.stop()


class _Hardware:
    """The cluster as it is now, with the speeds of jobs on it."""

    def __init__(self, reads: Reads, cluster: Cluster, estimator: Estimator) -> None:
        self._reads, self._first = reads, estimator
        self._line: str | None = None
        self._cluster, self._estimator = cluster, estimator

    def rates(self, spec: Any) -> Any:
        self._follow()
        return allowed_rates(spec, self._cluster, self._estimator)

    def capacity(self) -> Any:
        self._follow()
        return self._cluster.capacity

    def _follow(self) -> None:
        line = self._reads.cluster_line()
        if line is not None and line != self._line:
            self._line, self._cluster = line, cluster_from_json(json.loads(line))
            self._estimator = self._first.for_cluster(self._cluster)
