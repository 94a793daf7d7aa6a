"""The scheduler process: the scheduling loop with a live engine, and the one writer of events.db.

It may be killed at any instant: what was not committed did not happen, and what was committed is done again by its
successor. It ends, without touching a job, when the pipe from the API closes.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fairlead.engines.live import LiveEngine
from fairlead.engines.registry import ENGINES, RunnerOptions
from fairlead.model.decision import Decision
from fairlead.model.errors import FairleadError
from fairlead.model.events import Event, PolicySet
from fairlead.model.words import choose
from fairlead.rounds.loop import Settings, When, run
from fairlead.service.live_policies import UnusablePolicyError, usable
from fairlead.service.store import request_queue
from fairlead.service.store.database import DiskFullError, disk_full_raised, open_reader, open_writer
from fairlead.service.store.directory import StateDirectory, stored_header
from fairlead.service.store.log import Log, open_log
from fairlead.service.store.tables import EVENTS

REFUSED = 3  # exit code: starting again would not help
LAST_RESORT = "fifo"  # decides if no earlier policy can
FULL = 4  # exit code: starting again will help once there is room on the disk
# An earlier scheduler may have to finish its decision and write its snapshot first. Nothing else can hold the lock,
# because the API holds that of the service; giving up early would end a service that only had to wait.
_LOCK_S = 600.0


@dataclass(frozen=True, slots=True)
class SchedulerOptions:
    """Options of the scheduler process, passed from the API process as JSON."""

    engine: str = "local"
    round_s: float = 60.0
    min_run_s: float = 60.0
    user: str | None = None  # that local jobs run as, if the daemon runs as root
    emulate: bool = False  # emulate GPUs even if there are some
    node_pace: Mapping[str, float] = field(default_factory=dict)  # speed of emulated nodes relative to their type
    warm_standbys: int = 2  # processes that wait for leases of local jobs
    warm_memory_gib: float = 4.0  # resident size of all of them together
    warm_contexts: bool = False  # whether they open CUDA contexts

    trial_s: float | None = None  # to measure a new model on a GPU type; None: as the policy declares

    @property
    def runner(self) -> RunnerOptions:
        return RunnerOptions(
            self.user, self.emulate, self.node_pace, self.warm_standbys, self.warm_memory_gib, self.warm_contexts
        )

    @property
    def settings(self) -> Settings:
        return Settings(self.round_s, When.EVENTS, self.min_run_s, trial_s=self.trial_s)

    def to_json(self) -> str:
        return json.dumps(asdict(self))


class DurableEngine:
    """An engine that commits first: all earlier records are on disk before anything is asked of the runner."""

    def __init__(self, engine: LiveEngine, log: Log, inbox: request_queue.StoredInbox) -> None:
        self._engine, self._log, self._inbox = engine, log, inbox
        self._woken_s = 0.0

    def now(self) -> float:
        return self._engine.now()

    def wait(self, until_s: float) -> list[Event] | None:
        self._log.commit(self._inbox.taken)
        self._log.snapshot_if_due()
        events = self._engine.wait(until_s)
        self._woken_s = time.monotonic()
        if events and any(isinstance(event, PolicySet) for event in events):
            # The old policy must not decide once more on the event that it was replaced.
            for event in events:
                self._log.event(event)
                self._log.state.fold(event)
            self._log.commit(self._inbox.taken)
            return self._engine.wait(until_s)  # which ends the loop
        return events

    def apply(self, decision: Decision) -> None:
        """Report the duration of the decision (fold, decide, commit) and the standbys, and apply it."""
        _report({"decision_s": time.monotonic() - self._woken_s, "warm": self._engine.warm_figures()})
        self._engine.apply(decision)


def main(path: str, plan_json: str) -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the API, whose end also ends this process
    try:
        plan, directory = SchedulerOptions(**json.loads(plan_json)), StateDirectory(Path(path))
        lock = directory.lock("scheduler", _LOCK_S)
        with disk_full_raised():
            serve(directory, plan)
        del lock
    except DiskFullError as error:
        return _no_room(error)
    except FairleadError as error:
        _report({"refused": str(error)})
        return REFUSED
    except BrokenPipeError:
        pass  # the API ended before this process could report
    return 0


def serve(directory: StateDirectory, plan: SchedulerOptions) -> None:
    began_s = time.monotonic()
    connection = open_writer(directory.events, EVENTS)
    log = open_log(connection)
    requests = open_reader(directory.requests)
    inbox = request_queue.StoredInbox(
        requests, log, request_queue.unanswered(requests, log.taken, log.state), sys.stdin.fileno()
    )
    open_runner = ENGINES[choose("engine", plan.engine, ENGINES)].open_runner
    engine = LiveEngine(
        log.state,
        open_runner(directory.path, log.state, plan.runner),
        inbox,
        lambda job: request_queue.command_of(requests, job),
        time.time,
        drained=request_queue.drained(requests, log.taken),
        learns_restarts=stored_header(directory).restart_s is None,
    )
    _take_over(log)
    engine.resume()
    log.commit(log.taken)
    _report({"ready": True, "start_s": time.monotonic() - began_s, "jobs": log.state.jobs})
    keep_deciding(engine, log, inbox, plan.settings)
    log.commit(inbox.taken)
    log.snapshot()
    connection.close()


def _take_over(log: Log) -> None:
    """Record that the policy starts without memory, which ended with the previous process, for replays."""
    name, parameters = log.policy
    begins = PolicySet(max(time.time(), log.state.now_s), name, parameters)
    log.event(begins)
    log.state.fold(begins)


def keep_deciding(engine: LiveEngine, log: Log, inbox: request_queue.StoredInbox, settings: Settings) -> None:
    """Decide until the API has ended. A policy that cannot decide is replaced by the previous one."""
    failed: list[tuple[str, dict[str, Any]]] = []
    while not inbox.closed:
        try:
            run(DurableEngine(engine, log, inbox), log.state, usable(*log.policy), settings, log)
        except UnusablePolicyError as error:
            failed.append(log.policy)
            event = _fall_back(log, failed, error)
            log.event(event)
            log.state.fold(event)
            log.commit(inbox.taken)


def _fall_back(log: Log, failed: list[tuple[str, dict[str, Any]]], error: UnusablePolicyError) -> PolicySet:
    for name, parameters in (*log.policies_before(), (LAST_RESORT, {})):
        if (name, parameters) not in failed:
            message = f"policy {failed[-1][0]} cannot decide ({error}); {name} decides from now on"
            print(f"fairlead: {message}", file=sys.stderr, flush=True)
            _report({"fell_back": message})
            return PolicySet(log.state.now_s, name, parameters)
    raise error


def _no_room(error: Exception) -> int:
    print(f"fairlead: the scheduler has no room on disk ({error}); it continues when there is some", file=sys.stderr)
    return FULL


def _report(message: dict[str, Any]) -> None:
    print(json.dumps(message), flush=True)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
