"""The scheduler process: the scheduling loop with a live engine, and the one writer of events.db.

It may be killed at any instant: what was not committed did not happen, and what was committed is done again by its
successor. It ends, without touching a job, when the pipe from the API closes.
"""

from __future__ import annotations

import json
import math
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from fairlead.engines.clock import MachineClocks, machine_clocks
from fairlead.engines.live import LiveEngine
from fairlead.engines.registry import ENGINES, RunnerOptions
from fairlead.engines.runner import Runner
from fairlead.engines.slurm.commands import Slurm
from fairlead.engines.slurm.intake import SteeredPartition
from fairlead.engines.slurm.job_requests import UNKNOWN_MODEL
from fairlead.engines.slurm.shadow import LOOK_S, WatchOptions
from fairlead.model.decision import Cause, Decision
from fairlead.model.errors import FairleadError, InputError
from fairlead.model.events import Event, PolicySet, SettingsSet
from fairlead.model.limits import limits_of
from fairlead.model.trial_jobs import CHECK_SHARE
from fairlead.model.words import choose
from fairlead.rounds.decide import Memory
from fairlead.rounds.loop import (
    Carried,
    Decider,
    HereDecider,
    Settings,
    When,
    run_with,
    settings_from_json,
    settings_to_json,
)
from fairlead.rounds.remembering import memory_to_bytes
from fairlead.rounds.state import State
from fairlead.service.live_policies import POLICY_MEMORY_GIB, PolicyFailedError, configured
from fairlead.service.process.child import ChildLimits, ServiceEndedError
from fairlead.service.process.decider import ChosenPolicy, open_child_decider
from fairlead.service.process.watching import WatchSurroundings, watch_slurm
from fairlead.service.store import request_queue
from fairlead.service.store.commits import begin_epoch
from fairlead.service.store.database import DiskFullError, disk_full_raised, open_reader, open_writer
from fairlead.service.store.directory import StateDirectory, stored_header
from fairlead.service.store.incarnations import incarnations_of
from fairlead.service.store.log import DAY_S, Log, open_log, settings_of
from fairlead.service.store.retention import KEEP_S
from fairlead.service.store.tables import EVENTS
from fairlead.service.telemetry.scheduler_figures import MEASURED_S, MeasuredRunner, Measurements

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
    users: Sequence[str] = ()  # as whom local jobs run, if the daemon runs as root: NAME, or TENANT=NAME
    emulate: bool = False  # emulate GPUs even if there are some
    node_pace: Mapping[str, float] = field(default_factory=dict)  # speed of emulated nodes relative to their type
    warm_standbys: int = 2  # processes that wait for leases of local jobs
    warm_memory_gib: float = 4.0  # resident size of all of them together
    warm_contexts: bool = False  # whether they open CUDA contexts
    trial_s: float | None = None  # to measure a new model on a GPU type; None: as the policy declares
    slurm_options: tuple[str, ...] = ()  # of sbatch, for every lease
    max_memory_gib: float | None = None  # that the processes of a local job may use together
    max_processes: int | None = None  # that a local job may have
    steer: str = ""  # the partition of Slurm whose jobs are steered
    keep_s: float = KEEP_S  # after which ended jobs are archived
    check_share: float = CHECK_SHARE  # part of a tenant's GPU time that checks of its declared speeds may take
    preemption_gpu_s: float | None = None  # that pre-emption may cost in an hour; None: no limit
    tenant_preemption_gpu_s: float | None = None  # the same for the jobs of any one tenant
    decide_within_s: float = 30.0  # after that, a decision is given up and another policy decides
    policy_memory_gib: float = POLICY_MEMORY_GIB  # that a policy may use
    policy_files: Sequence[str] = ()  # of the operator's own policies
    shadow: bool = False  # only watch the cluster
    aliases: Mapping[str, str] = field(default_factory=dict)  # other spellings of GPU types, in what an engine shows
    job_models: Sequence[Sequence[str]] = ()  # (pattern of job names, model), for watching
    default_model: str = UNKNOWN_MODEL
    look_s: float | None = None  # between two looks at Slurm; None: as the engine likes
    address: str = ""  # of Ray's head
    fixed_cluster: bool = True  # no nodes join that the operator did not name

    @property
    def runner(self) -> RunnerOptions:
        return RunnerOptions(
            self.users,
            self.emulate,
            self.node_pace,
            self.warm_standbys,
            self.warm_memory_gib,
            self.warm_contexts,
            self.slurm_options,
            self.max_memory_gib,
            self.max_processes,
            self.steer,
            self.address,
            self.aliases,
            self.fixed_cluster,
            self.look_s,
        )

    @property
    def watch(self) -> WatchOptions:
        models = [(pattern, model) for pattern, model in self.job_models]
        look_s = LOOK_S if self.look_s is None else self.look_s
        return WatchOptions(self.aliases, models, self.default_model, look_s, self.keep_s)

    @property
    def steered_partition(self) -> SteeredPartition:
        models = [(pattern, model) for pattern, model in self.job_models]
        return SteeredPartition(self.steer, self.aliases, models, self.default_model)

    @property
    def forget_every_s(self) -> float:
        return min(DAY_S, self.keep_s)

    @property
    def settings(self) -> Settings:
        return Settings(
            self.round_s,
            When.EVENTS,
            self.min_run_s,
            trial_s=self.trial_s,
            check_share=self.check_share,
            preemption_gpu_s=self.preemption_gpu_s,
            tenant_preemption_gpu_s=self.tenant_preemption_gpu_s,
        )

    @property
    def child_limits(self) -> ChildLimits:
        return ChildLimits(self.decide_within_s, self.policy_memory_gib)

    def to_json(self) -> str:
        return json.dumps(asdict(self))


OpenDecider = Callable[[Log, Settings], AbstractContextManager[Decider]]  # with the log's policy, until it is replaced


@contextmanager
def decide_here(log: Log, settings: Settings) -> Iterator[Decider]:
    """Decide in this process, without limits; of the failures of a policy, only an InputError is survived."""
    with _failures_named():
        decider = HereDecider(configured(*log.policy), settings, Memory())
    log.remembered = lambda: memory_to_bytes(decider.memory, decider.policy)
    try:
        yield _Here(decider)
    finally:
        log.remembered = None


@dataclass(frozen=True, slots=True)
class _Here:
    decider: HereDecider

    def decide(self, state: State, cause: Cause) -> Decision:
        with _failures_named():
            return self.decider.decide(state, cause)


@contextmanager
def _failures_named() -> Iterator[None]:
    try:
        yield
    except InputError as error:
        raise PolicyFailedError(str(error)) from None


def decide_apart(plan: SchedulerOptions, ends: int) -> OpenDecider:
    """Decide in a child process that can be killed; `ends` is a descriptor that hangs up with the service."""

    @contextmanager
    def begin(log: Log, settings: Settings) -> Iterator[Decider]:
        policy = ChosenPolicy(*log.policy, plan.policy_files)
        with closing(open_child_decider(log.state, policy, settings, plan.child_limits, ends)) as decider:
            log.listener, log.remembered = decider.note, lambda: decider.remembered
            try:
                yield decider
            finally:
                log.listener = log.remembered = None

    return begin


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is around the scheduler: the machine's clocks, the runner, a pipe from the API (`StoredInbox`), the decider."""

    clocks: MachineClocks
    open_runner: Callable[[Path, State, RunnerOptions], Runner]
    wait: Callable[[float], bool]
    open_decider: OpenDecider = decide_here


def surroundings_of(plan: SchedulerOptions) -> Surroundings:
    """Those of a process that the API has started."""
    open_runner = ENGINES[choose("engine", plan.engine, ENGINES)].open_runner
    pipe = sys.stdin.fileno()
    return Surroundings(
        machine_clocks(), open_runner, partial(request_queue.wait_on_pipe, pipe), decide_apart(plan, pipe)
    )


class DurableEngine:
    """An engine that commits first: all earlier records are on disk before anything is asked of the runner."""

    def __init__(
        self,
        engine: LiveEngine,
        log: Log,
        inbox: request_queue.StoredInbox,
        forget_every_s: float = DAY_S,
        measurements: Measurements | None = None,
    ) -> None:
        self._engine, self._log, self._inbox, self._forget_every_s = engine, log, inbox, forget_every_s
        self._measurements = measurements or Measurements()
        self._measurements.commits = log.commit_seconds
        self._measured_s = -math.inf  # when measurements were last reported
        self._woken_s = 0.0
        self._snapshot_s = log.begun_s
        self._reported_due_s: float | None = None
        self._trouble = ""

    def now(self) -> float:
        return self._engine.now()

    def wait(self, until_s: float) -> list[Event] | None:
        self._report_due(until_s)
        self._report_measurements()
        events = self._wait(until_s)
        self._woken_s = time.monotonic()
        if events and any(isinstance(event, PolicySet) for event in events):
            # The old policy must not decide once more on the event that it was replaced.
            for event in events:
                self._log.event(event)
                self._log.state.fold(event)
            self._log.commit(self._inbox.taken)
            return self._engine.wait(until_s)  # which ends the loop
        return events

    def _wait(self, until_s: float) -> list[Event] | None:
        """The next events, with a pause for a snapshot whenever one is due."""
        while True:
            self._log.commit(self._inbox.taken)
            self._report_trouble()
            if self._log.snapshot_due or self._engine.now() >= self._due_s:
                self._snapshot()
            events = self._engine.wait(min(until_s, self._due_s))
            if events != [] or self._engine.now() >= until_s:
                return events

    @property
    def _due_s(self) -> float:
        """When ended jobs are forgotten at the latest."""
        return self._snapshot_s + self._forget_every_s if self._log.state.ended else math.inf

    def _snapshot(self) -> None:
        self._engine.forget_ended(self._log.forget)
        self._log.snapshot()
        self._snapshot_s = self._engine.now()

    def _report_due(self, until_s: float) -> None:
        """Report how long it is until the next round is decided; none if nothing is to be decided."""
        if until_s != self._reported_due_s:
            self._reported_due_s = until_s
            _report({"due_in_s": None if math.isinf(until_s) else max(until_s - self._engine.now(), 0.0)})

    def _report_trouble(self) -> None:
        """Report that the engine cannot be reached, or is reached again."""
        if self._engine.trouble != self._trouble:
            self._trouble = self._engine.trouble
            print(f"fairlead: {self._trouble or 'the engine is reached again'}", file=sys.stderr, flush=True)
            _report({"engine_trouble": self._trouble or None})

    def _report_measurements(self, pause_s: float = MEASURED_S) -> None:
        """Report what was measured, if the last report is `pause_s` old."""
        if time.monotonic() - self._measured_s >= pause_s:
            self._measured_s = time.monotonic()
            _report({"measurements": self._measurements.to_json()})

    def apply(self, decision: Decision) -> None:
        """Report the duration of the decision (fold, decide, commit) and the standbys, and apply it."""
        decision_s = time.monotonic() - self._woken_s
        self._measurements.decisions.observe(decision_s)
        _report({"decision_s": decision_s, "at_s": decision.time_s, "warm": self._engine.warm_figures()})
        self._reported_due_s = None  # the next wait reports that the decision was applied
        self._report_measurements(0.0)
        self._engine.apply(decision)


def main(path: str, plan_json: str) -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the API, whose end also ends this process
    try:
        plan, directory = SchedulerOptions(**json.loads(plan_json)), StateDirectory(Path(path))
        lock = directory.lock("scheduler", _LOCK_S)
        with disk_full_raised():
            if plan.shadow:
                pipe = partial(request_queue.wait_on_pipe, sys.stdin.fileno())
                around = WatchSurroundings(pipe, _report, Slurm())
                watch_slurm(directory, plan.settings, plan.watch, plan.forget_every_s, around)
            else:
                serve(directory, plan, surroundings_of(plan))
        del lock
    except DiskFullError as error:
        return _no_room(error)
    except FairleadError as error:
        _report({"refused": str(error)})
        return REFUSED
    except BrokenPipeError:
        pass  # the API ended before this process could report
    return 0


def serve(directory: StateDirectory, plan: SchedulerOptions, around: Surroundings) -> None:
    began_s = time.monotonic()
    connection = open_writer(directory.events, EVENTS)
    begin_epoch(connection)
    log = open_log(connection, around.clocks)
    requests = open_reader(directory.requests)
    incarnations = incarnations_of(requests)
    inbox = request_queue.StoredInbox(
        requests, log, request_queue.unanswered(requests, log.taken, log.state), around.wait
    )
    measurements = Measurements()
    runner = MeasuredRunner(around.open_runner(directory.path, log.state, plan.runner), measurements)
    engine = LiveEngine(
        log.state,
        runner,
        inbox,
        lambda job: request_queue.command_of(requests, job),
        log.clock,
        drained=request_queue.drained(requests, log.taken),
        learns_restarts=stored_header(directory).restart_s is None,
        log_bytes=lambda tenant: limits_of(tenant, log.limits).log_bytes,
        lease_floor=incarnations.lease_floor,
    )
    _take_over(log, settings_from_json(settings_of(connection)), plan.settings)
    _renumber(engine, log)
    for job, number in engine.resume(incarnations.strangers(runner.jobs(), log.taken)):
        print(f"fairlead: lease {number} of {job}, a job that the log does not contain, is stopped", file=sys.stderr)
    log.commit(log.taken)
    _report({"ready": True, "start_s": time.monotonic() - began_s})
    keep_deciding(engine, log, inbox, plan.settings, plan.forget_every_s, around.open_decider, measurements)
    log.commit(inbox.taken)
    engine.forget_ended(log.forget)
    log.snapshot()
    connection.close()


def _take_over(log: Log, before: Settings, now: Settings) -> None:
    """Record for replays which settings apply from now on, and that the policy starts without memory."""
    name, parameters = log.policy
    time_s = log.clock()
    begins: list[Event] = [PolicySet(time_s, name, parameters, log.instead_of)]
    if now != before:
        begins.insert(0, SettingsSet(time_s, settings_to_json(now)))
    for event in begins:
        log.event(event)
        log.state.fold(event)


def _renumber(engine: LiveEngine, log: Log) -> None:
    """Record which numbers of leases were used by a part of the log that is gone."""
    event = engine.renumbered()
    if event is not None:
        log.event(event)
        log.state.fold(event)


def keep_deciding(
    engine: LiveEngine,
    log: Log,
    inbox: request_queue.StoredInbox,
    settings: Settings,
    forget_every_s: float = DAY_S,
    open_decider: OpenDecider = decide_here,
    measurements: Measurements | None = None,
) -> None:
    """Decide until the API has ended. A policy that fails is replaced by the previous one that has not failed."""
    failed: list[tuple[str, dict[str, Any]]] = []
    carried = None
    while not inbox.closed:
        _report({"policy_failed": bool(log.instead_of)})
        try:
            durable = DurableEngine(engine, log, inbox, forget_every_s, measurements)
            with open_decider(log, settings) as decider:
                run_with(decider, durable, log.state, settings, log, carried=carried)
            failed, carried = [], None
        except PolicyFailedError as error:
            carried = _fall_back(log, failed, error, settings)
            log.commit(inbox.taken)
        except ServiceEndedError:
            return


def _fall_back(
    log: Log, failed: list[tuple[str, dict[str, Any]]], error: PolicyFailedError, settings: Settings
) -> Carried | None:
    """Record that another policy decides from now on. If none is left, the last resort tries again in the next round."""
    failed.append(log.policy)
    choices = (*log.policies_before(), (LAST_RESORT, {}))
    name, parameters = next((choice for choice in choices if choice not in failed), (LAST_RESORT, {}))
    reason = f"policy {log.policy[0]} cannot decide ({error}); {name} decides from now on"
    print(f"fairlead: {reason}", file=sys.stderr, flush=True)
    event = PolicySet(log.state.now_s, name, parameters, reason)
    log.event(event)
    log.state.fold(event)
    if (name, parameters) not in failed:
        return None
    return Carried(Memory(), log.state.now_s + settings.round_s, log.state.now_s)


def _no_room(error: Exception) -> int:
    print(f"fairlead: the scheduler has no room on disk ({error}); it continues when there is some", file=sys.stderr)
    return FULL


def _report(message: dict[str, Any]) -> None:
    print(json.dumps(message), flush=True)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
