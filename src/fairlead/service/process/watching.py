"""The scheduler process of a service that only watches a Slurm cluster.

It records what Slurm does and decides every round on the state that Slurm really has. The decision is journalled as advice
and folded only as such, and the next state comes from Slurm again. Each advice is independent of the one before: the
policy begins without a memory, because what it remembers would assume that its last decision was carried out.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from fairlead.engines.slurm.commands import Slurm
from fairlead.engines.slurm.shadow import ShadowEngine, WatchOptions
from fairlead.engines.slurm.watch_file import FILE, WatchFile
from fairlead.engines.slurm.watched import WatchedJob
from fairlead.model.decision import Cause, Decision
from fairlead.model.events import Advised, PolicySet
from fairlead.model.lifecycle import ENDED
from fairlead.rounds.decide import Memory
from fairlead.rounds.loop import HereDecider, Settings, next_boundary
from fairlead.service.live_policies import configured
from fairlead.service.store import request_queue
from fairlead.service.store.commits import begin_epoch
from fairlead.service.store.database import open_reader, open_writer
from fairlead.service.store.directory import StateDirectory
from fairlead.service.store.log import Log, open_log
from fairlead.service.store.tables import EVENTS
from fairlead.service.telemetry.scheduler_figures import MEASURED_S, Measurements, watching_measurements

ONLY_WATCHES = "it only watches Slurm: decisions are advice, and nothing is started, stopped or changed"
_ANNOUNCED = 500  # jobs in one message
Report = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class WatchSurroundings:
    """What is around the watching loop: the pipe from the API, reports to it, and the clocks."""

    wait: Callable[[float], bool]
    report: Report
    slurm: Slurm
    wall: Callable[[], float] = time.time


def watch_slurm(
    directory: StateDirectory,
    settings: Settings,
    options: WatchOptions,
    forget_every_s: float,
    around: WatchSurroundings,
) -> None:
    """Watch until the API ends. The log has the same form as that of a service that runs jobs."""
    began_s = time.monotonic()
    connection = open_writer(directory.events, EVENTS)
    begin_epoch(connection)
    log = open_log(connection)
    inbox = request_queue.StoredInbox(open_reader(directory.requests), log, [], around.wait)
    record = WatchFile(directory.path / FILE)
    measurements = watching_measurements(log.commit_seconds)
    engine = ShadowEngine(
        log.state,
        around.slurm,
        inbox,
        record,
        options,
        clock=log.clock,
        wall=around.wall,
        announce=lambda rows: _announce(rows, around.report),
        looked=measurements.looked,
    )
    _fold(log, PolicySet(log.clock(), *log.policy))
    log.commit(log.taken)
    around.report({"ready": True, "start_s": time.monotonic() - began_s})
    around.report({"watching": [ONLY_WATCHES]})
    watch_loop = _WatchLoop(engine, log, inbox, advice_settings(settings), forget_every_s, around.report, measurements)
    while not inbox.closed:
        watch_loop.run()
    log.commit(inbox.taken)
    log.snapshot()
    record.close()
    connection.close()


def advice_settings(settings: Settings) -> Settings:
    """Nobody can try a model or check a declared speed without starting jobs."""
    return replace(settings, trial_s=0.0, check_share=0.0)


@dataclass(slots=True)
class _WatchLoop:
    engine: ShadowEngine
    log: Log
    inbox: request_queue.StoredInbox
    settings: Settings
    forget_every_s: float
    report: Report
    measurements: Measurements
    measured_s: float = -math.inf  # when measurements were last reported
    due_s: float = -math.inf  # when the next advice is due
    reported_due_s: float | None = None
    forgotten_s: float = -math.inf
    failure: str = ""

    def run(self) -> None:
        """Fold what Slurm does and advise every round, until the policy is replaced or the API ends."""
        state = self.log.state
        decider = HereDecider(configured(*self.log.policy), self.settings, Memory())
        shown: list[str] = []
        while True:
            self._keep_books()
            due_s = self.due_s if state.active else math.inf
            self._report_figures(due_s)
            records = self.engine.wait(due_s)
            if records is None:
                return
            for record in records:
                _fold(self.log, record)
            if state.active and self.engine.now() >= self.due_s:
                self._advise(decider)
            sentences = [ONLY_WATCHES, *([self.failure] if self.failure else []), *self.engine.sentences()]
            if sentences != shown:
                self.report({"watching": sentences})
                shown = sentences

    def _advise(self, decider: HereDecider) -> None:
        state, began_s = self.log.state, time.monotonic()
        now_s = self.engine.now()
        state.pass_time(now_s)
        self.due_s = next_boundary(now_s, now_s, self.settings.round_s)
        decider.memory = Memory()
        try:
            decision = decider.decide(state, Cause.ROUND)
        except Exception as error:  # the record of what Slurm does is worth more than one piece of advice
            self.failure = f"policy {self.log.policy[0]} has no advice now ({type(error).__name__}: {error})"
            print(f"fairlead: {self.failure}", file=sys.stderr, flush=True)
            return
        self.failure = ""
        _fold(self.log, Advised(now_s, decision))
        self.log.commit(self.inbox.taken)
        decision_s = time.monotonic() - began_s
        self.measurements.decisions.observe(decision_s)
        self.report({"decision_s": decision_s, "at_s": now_s})
        self.reported_due_s = None

    def _report_figures(self, due_s: float) -> None:
        """Report when the next advice is due if that has changed, and what was measured every few seconds."""
        if due_s != self.reported_due_s:
            self.reported_due_s = due_s
            self.report({"due_in_s": None if due_s == math.inf else max(due_s - self.engine.now(), 0.0)})
        if time.monotonic() - self.measured_s >= MEASURED_S:
            self.measured_s = time.monotonic()
            self.report({"measurements": self.measurements.to_json()})

    def _keep_books(self) -> None:
        """Commit, and forget ended jobs from time to time, which the record keeps for longer."""
        log = self.log
        log.commit(self.inbox.taken)
        now_s = self.engine.now()
        if log.snapshot_due or now_s >= self.forgotten_s + self.forget_every_s:
            self.forgotten_s = now_s
            ended = np.flatnonzero(np.isin(log.state.phase[: log.state.jobs], ENDED))
            if ended.size:
                log.forget(ended)
            log.snapshot()
            self.engine.forget_old()


def _fold(log: Log, record: Any) -> None:
    if isinstance(record, Decision):
        log.decision(record)
    else:
        log.event(record)
    log.state.fold(record)


def _announce(rows: Sequence[WatchedJob], report: Report) -> None:
    """Report new jobs to the API, which writes their rows and hands them back through the inbox."""
    for first in range(0, len(rows), _ANNOUNCED):
        part = rows[first : first + _ANNOUNCED]
        report({"watched": [{"name": row.name or row.spec.id, "spec": asdict(row.spec)} for row in part]})
