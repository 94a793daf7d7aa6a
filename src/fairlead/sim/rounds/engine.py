"""The engine on a virtual clock: time jumps to the next arrival, completion or fault, and never ticks."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fairlead.model.allocation import Spot
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.changes import Change
from fairlead.model.decision import Cause, Decision
from fairlead.model.errors import BrokenInvariantError, InputError
from fairlead.model.events import (
    Arrived,
    Event,
    Finished,
    Lost,
    NodeAdded,
    NodeDown,
    NodeUsable,
    Progress,
    Released,
    Started,
    Stopped,
)
from fairlead.model.lifecycle import Phase
from fairlead.rounds.state import State
from fairlead.sim.rounds.changes import Changes
from fairlead.sim.rounds.faults import Faults
from fairlead.sim.rounds.profiling import in_the_way, plan
from fairlead.sim.rounds.reports import Reports
from fairlead.sim.truth import Truth

_FEW = 64  # stale entries that are not worth removing


class _Running(NamedTuple):
    """A running job: from `resume_s` on it processes `rate` samples per second. That it has ended is known at `end_s`."""

    spot: Spot
    rate: float
    resume_s: float
    since_s: float  # `resume_s` or the last report, to which the counted samples belong
    end_s: float


class SimEngine:
    """The simulated world. Jobs are identified by position, in order of arrival, which is the order of the trace."""

    def __init__(self, truth: Truth, changes: Sequence[Change] = (), *, senses: bool = False) -> None:
        """The world at time 0. If the scheduler `senses` speeds, starts show none and running jobs report theirs."""
        self._truth = truth
        self._senses = senses
        # Where the truth is what was learnt, reports could only confirm it.
        self._reports = Reports(truth.world) if senses and truth.learnt is None else None
        self._changes = Changes(changes)
        self._down: set[int] = set()
        self._nowhere: set[int] = set()  # jobs that the cluster cannot run after its last change
        self._is_quiet = False  # the policy leaves the whole cluster empty
        self._now_s = 0.0
        self._declared = truth.declared()
        self._total = list(truth.total)  # j  samples
        self._arrived = 0
        self._ended = 0
        self._faults = Faults(len(truth.cluster.nodes), truth.world.mtbf_s, truth.world.repair_s, truth.world.seed)
        self._answers: list[Event] = []  # to the last commands
        self.profiling = plan(truth)
        self._tried = 0  # trials that have begun
        self._paused: list[tuple[float, int]] = []  # heap: (when the job continues, job)

        self._done = [0.0] * len(truth.jobs)  # j  samples at its last start
        self._is_over = [False] * len(truth.jobs)  # j
        self._ran: set[int] = set()  # jobs that have run before, so a start restores a checkpoint
        self._running: dict[int, _Running] = {}
        self._finishing: list[tuple[float, int]] = []  # heap; entries that `_running` does not confirm are stale

    @classmethod
    def from_state(cls, truth: Truth, state: State, faults_since_s: float = 0.0) -> SimEngine:
        """The world of a folded state at its time. The jobs of `truth` are those of the state, then later arrivals.

        Running jobs continue from their samples, on their spots, at the rate that was last reported (where reports are
        noisy, at the true rate) and with the rest of their restart; a job without a rate continues from now at its true
        rate. Jobs that are starting or stopping have
        done so immediately. Jobs on a node that is down are lost. A job past its true length ends now. Nodes that are
        down stay down until the world's draws repair them, or permanently if nodes never fail. The faults are those of a
        world that began at `faults_since_s`.
        """
        if truth.world.profiling_s:
            raise InputError("the measuring of new models is not simulated from a state; set the profiling time to 0")
        engine, world = cls(truth, senses=state.learner is not None), truth.world
        engine._now_s, engine._arrived = state.now_s, state.jobs
        engine._faults = Faults(len(truth.cluster.nodes), world.mtbf_s, world.repair_s, world.seed, faults_since_s)
        gone = np.flatnonzero(state.cluster.node_gpus == 0).tolist()
        for node in gone:
            engine._faults.leave(node)
        engine._faults.skip_to(state.now_s, state.node_up)
        engine._down = set(np.flatnonzero(~state.node_up).tolist()) - set(gone)
        engine._done[: state.jobs] = state.done[: state.jobs].tolist()
        engine._ran.update(np.flatnonzero(~np.isnan(state.first_start_s[: state.jobs])).tolist())
        engine._ended = state.ended
        truth.usable = state.nodes.usable.copy()
        unfinished = (*state.active_jobs.tolist(), *range(state.jobs, len(truth.jobs)))
        engine._nowhere = {j for j in unfinished if truth.runs_nowhere(j)}
        running = _in(state, Phase.RUNNING).tolist()
        for j in running:
            engine._continue(j, state)
        engine._settle(state)
        silent = [j for j in running if state.rate[j] <= 0 and j in engine._running]
        if silent:  # they have a rate from now on, which the state must learn
            engine._answers.append(engine._progress(silent, [engine._running[j].rate for j in silent]))
        return engine

    def now(self) -> float:
        return self._now_s

    def wait(self, until_s: float) -> list[Event]:
        """Events of the next instant and kind, each by position.

        At the same instant, completions come first, then changes of the cluster, faults, jobs that pause for a trial or
        continue after it, reports, and arrivals.
        """
        if self._answers:
            answers, self._answers = self._answers, []
            return answers
        jobs = self._truth.jobs
        while True:
            finish_s = self._next_finish_s()
            goes_on = not self._is_quiet and self._ended + self._stranded() < len(jobs)
            fault_s, change_s = (self._faults.next_s, self._changes.next_s) if goes_on else (math.inf, math.inf)
            trial_s = self._next_trial_s() if self.profiling.trials else math.inf
            report_s = math.inf if self._reports is None else self._next_report_s(self._reports)
            arrival_s = self._known_s(self._arrived) if self._arrived < len(jobs) else math.inf
            next_s = min(finish_s, change_s, fault_s, trial_s, report_s, arrival_s)
            if next_s > until_s or next_s == math.inf:
                self._now_s = until_s if until_s < math.inf else self._now_s
                return []
            self._now_s = next_s
            if finish_s == next_s:
                return [self._finish()]
            if change_s == next_s:
                return self._change()
            if fault_s == next_s:
                return self._fault()
            if trial_s != next_s and report_s != next_s:
                return self._arrive()
            # A trial that makes no job pause causes no event, nor does an instant at which no report is due.
            if events := self._trial() if trial_s == next_s else self._report():
                return events

    def apply(self, decision: Decision) -> None:
        now_s = decision.time_s
        if decision.stop.size:
            kept = self._leave(decision.stop, [self._done_at(j, now_s) for j in decision.stop.tolist()])
            self._answers.append(Stopped(now_s, decision.stop, kept))
        if decision.start.size:
            self._answers.append(self._start_all(decision.start, decision.spots, now_s))
            self._drop_stale()
        self._is_quiet = self._leaves_all_empty(decision)

    def _leaves_all_empty(self, decision: Decision) -> bool:
        """Whether a round starts no job on a cluster that is empty and whole, and nothing is planned that could help.

        Without faults a run ends here. With faults it would continue permanently, because nodes only fail and are repaired.
        """
        acts = self._running or decision.stop.size or decision.time_s < decision.holds_until_s < math.inf
        more = self._down or self._changes.next_s < math.inf or self._arrived < len(self._truth.jobs)
        return decision.cause is Cause.ROUND and not acts and not more

    def _start_all(self, jobs: IntArray, spots: Sequence[Spot], now_s: float) -> Started:
        truth, running, ran = self._truth, self._running, self._ran
        restart_s, start_s, notice_s = truth.restart_s, truth.world.start_s, truth.world.notice_s
        rates: list[float] = []
        resumes_s: list[float] = []
        for j, spot in zip(jobs.tolist(), spots, strict=True):
            rate = truth.rate(j, spot)
            if rate <= 0 or j in running:
                raise BrokenInvariantError(f"job {truth.jobs[j].id} was started where it cannot run, or twice")
            resume_s = now_s + (restart_s[j] if j in ran else start_s)
            end_s = resume_s + max(self._total[j] - self._done[j], 0.0) / rate + notice_s
            running[j] = _Running(spot, rate, resume_s, resume_s, end_s)
            ran.add(j)
            heapq.heappush(self._finishing, (end_s, j))
            rates.append(rate)
            resumes_s.append(resume_s)
        return Started(now_s, jobs, np.array(rates), np.array(resumes_s), measured=not self._senses)

    def _continue(self, j: int, state: State) -> None:
        spot = state.spots[j]
        rate, resume_s = float(state.rate[j]), float(state.resume_s[j])
        since_s = max(resume_s, float(state.at_s[j]))
        if rate <= 0:
            since_s = max(since_s, self._now_s)
        if rate <= 0 or self._truth.world.sensing_noise:
            rate = self._truth.rate(j, spot)
        if rate <= 0:
            raise InputError(
                f"job {state.specs[j].id} runs where no speed of its model is known; add it to the profile"
            )
        end_s = self._end_s(j, since_s, rate)
        if end_s < self._now_s:
            end_s = self._now_s
            self._total[j] = self._done[j] + rate * max(end_s - since_s, 0.0)
        self._running[j] = _Running(spot, rate, resume_s, since_s, end_s)
        heapq.heappush(self._finishing, (end_s, j))

    def _settle(self, state: State) -> None:
        """Complete the starts and stops that a state's last decisions requested, and lose the jobs on nodes that are down."""
        down = frozenset(np.flatnonzero(~state.node_up).tolist())
        self._lose(down)
        stopping = _in(state, Phase.STOPPING, Phase.MOVING)
        if stopping.size:
            kept = state.done_at(stopping, state.now_s)
            for j, done in zip(stopping.tolist(), kept.tolist(), strict=True):
                self._done[j] = done
            self._answers.append(Stopped(self._now_s, stopping, kept))
        if state.pauses:  # here nothing prevents their next start
            self._answers.append(Released(self._now_s, np.array(sorted(state.pauses), dtype=np.int64)))
        starting = _in(state, Phase.STARTING, Phase.MOVING)
        if starting.size:
            self._answers.append(self._start_all(starting, [state.spots[j] for j in starting.tolist()], self._now_s))
        self._lose(down)

    def _lose(self, down: frozenset[int]) -> None:
        if lost := self._lost_on(down):
            self._answers.append(lost)

    def _done_at(self, j: int, time_s: float) -> float:
        run = self._running[j]
        done = self._done[j] + run.rate * max(time_s - run.since_s, 0.0)
        return min(done, self._total[j]) if self._truth.world.notice_s else done  # it may have ended since

    def _end_s(self, j: int, since_s: float, rate: float) -> float:
        """When it is known that a job has ended which processes `rate` samples per second since then."""
        return since_s + max(self._total[j] - self._done[j], 0.0) / rate + self._truth.world.notice_s

    def _known_s(self, j: int) -> float:
        """When it is known that a job has arrived."""
        return self.profiling.ready_s[j] + self._truth.world.notice_s

    def _leave(self, jobs: IntArray, samples: list[float]) -> FloatArray:
        """Record that these jobs no longer run, and the samples (j) that they keep."""
        for j, done in zip(jobs.tolist(), samples, strict=True):
            self._done[j] = done
            del self._running[j]
        return np.array(samples)

    def _drop_stale(self) -> None:
        """Remove stale entries: every start of a job leaves one behind."""
        if len(self._finishing) > 2 * len(self._running) + _FEW:
            self._finishing = [(run.end_s, j) for j, run in self._running.items()]
            heapq.heapify(self._finishing)

    def _next_finish_s(self) -> float:
        while self._finishing:
            end_s, j = self._finishing[0]
            run = self._running.get(j)
            if run is not None and run.end_s == end_s:
                return end_s
            heapq.heappop(self._finishing)
        return math.inf

    def _finish(self) -> Finished:
        ending: set[int] = set()
        while self._next_finish_s() == self._now_s:
            ending.add(heapq.heappop(self._finishing)[1])
        self._ended += len(ending)
        self._nowhere -= ending
        for j in ending:
            self._is_over[j] = True
        jobs = np.array(sorted(ending), dtype=np.int64)
        return Finished(self._now_s, jobs, self._leave(jobs, [self._total[j] for j in jobs.tolist()]))

    def _fault(self) -> list[Event]:
        fault = self._faults.pop()
        if not isinstance(fault, NodeDown):
            self._down.discard(fault.node)
            return [fault]
        self._down.add(fault.node)
        lost = self._lost_on(frozenset((fault.node,)))
        return [fault] if lost is None else [fault, lost]

    def _change(self) -> list[Event]:
        """Apply the next change. A node that leaves goes down first, so that its jobs are lost as in a failure."""
        change = self._changes.pop(self._truth)
        events: list[Event] = []
        if isinstance(change, NodeAdded):
            self._faults.join(self._truth.cluster.nodes.index(change.name), self._now_s)
        elif isinstance(change, NodeUsable):
            events += self._make_room(change.node, change.gpus)
        else:
            self._faults.leave(change.node)
            if change.node not in self._down:
                lost = self._lost_on(frozenset((change.node,)))
                events += [NodeDown(self._now_s, change.node), *([lost] if lost else ())]
            self._down.discard(change.node)
        if self._changes.next_s == math.inf:
            left = (j for j, is_over in enumerate(self._is_over) if not is_over)
            self._nowhere = {j for j in left if self._truth.runs_nowhere(j)}
        return [*events, change]

    def _stranded(self) -> int:
        """The number of jobs that will never run; if the world waited for them, faults would never end.

        A job that runs on fewer GPUs than its reference width continues, even if that width has left the cluster.
        """
        return sum(j not in self._running for j in self._nowhere) if self._nowhere else 0

    def _make_room(self, node: int, gpus: int) -> list[Event]:
        """Lose jobs, the last to start first, until the others hold at most this many GPUs of the node."""
        on_it = {j: dict(run.spot)[node] for j, run in self._running.items() if node in dict(run.spot)}
        leaving: list[int] = []
        for j in reversed(on_it):
            if sum(on_it.values()) - sum(on_it[left] for left in leaving) > gpus:
                leaving.append(j)
        return [self._lost(sorted(leaving))] if leaving else []

    def _lost_on(self, down: frozenset[int]) -> Lost | None:
        """The loss of the jobs on these nodes, which keep only their last checkpoint."""
        on_it = [j for j, run in sorted(self._running.items()) if any(node in down for node, _ in run.spot)]
        if not on_it:
            return None
        return self._lost(on_it)

    def _lost(self, leaving: list[int]) -> Lost:
        kept = [self._saved(j) for j in leaving]
        jobs = np.array(leaving, dtype=np.int64)
        return Lost(self._now_s, jobs, self._leave(jobs, kept))

    def _next_trial_s(self) -> float:
        """When a trial begins, or a job that paused for one continues."""
        trials = self.profiling.trials
        begins_s = trials[self._tried].start_s if self._tried < len(trials) else math.inf
        return min(begins_s, self._paused[0][0] if self._paused else math.inf)

    def _trial(self) -> list[Event]:
        """Events of jobs that continue, then of jobs that pause, because it may be the same job."""
        going: set[int] = set()
        while self._paused and self._paused[0][0] == self._now_s:
            resume_s, j = heapq.heappop(self._paused)
            if j in self._running and self._running[j].resume_s == resume_s:
                going.add(j)
        events = [self._progress(sorted(going), [self._running[j].rate for j in sorted(going)])] if going else []
        trials = self.profiling.trials
        while self._tried < len(trials) and trials[self._tried].start_s == self._now_s:
            trial = trials[self._tried]
            self._tried += 1
            held = ((j, run.spot) for j, run in sorted(self._running.items()))
            paused = in_the_way(trial, self._truth.cluster, held)
            for j in paused:
                self._pause(j, trial.end_s - trial.start_s)
            if paused:
                events.append(self._progress(paused, [0.0] * len(paused)))
        return list(events)

    def _pause(self, j: int, seconds: float) -> None:
        """Pause a job: it saves its state, and a restore in progress ends that much later."""
        run = self._running[j]
        self._done[j] = self._done_at(j, self._now_s)
        resume_s = max(run.resume_s, self._now_s) + seconds
        end_s = self._end_s(j, resume_s, run.rate)
        self._running[j] = _Running(run.spot, run.rate, resume_s, resume_s, end_s)
        heapq.heappush(self._finishing, (end_s, j))
        heapq.heappush(self._paused, (resume_s, j))

    def _progress(self, jobs: list[int], rate: list[float]) -> Progress:
        return Progress(
            self._now_s, np.array(jobs, dtype=np.int64), np.array([self._done[j] for j in jobs]), np.array(rate)
        )

    def _next_report_s(self, reports: Reports) -> float:
        if not self._running:
            return math.inf
        reports.skip_to(self._now_s)
        return reports.next_s

    def _report(self) -> list[Event]:
        """The progress of every job that ran since its last report or its start for a whole interval."""
        assert self._reports is not None
        jobs = np.array(
            [j for j, run in sorted(self._running.items()) if self._reports.is_due(run.since_s)], dtype=np.int64
        )
        noise = self._reports.noise(jobs)
        self._reports.pop()
        for j in jobs.tolist():
            run, self._done[j] = self._running[j], self._done_at(j, self._now_s)
            is_over = self._truth.world.notice_s > 0 and self._done[j] >= self._total[j]  # and not known yet
            end_s = run.end_s if is_over else self._end_s(j, self._now_s, run.rate)
            self._running[j] = run._replace(since_s=self._now_s, end_s=end_s)
            heapq.heappush(self._finishing, (end_s, j))
        self._drop_stale()
        speeds = [self._running[j].rate * factor for j, factor in zip(jobs.tolist(), noise.tolist(), strict=True)]
        return [self._progress(jobs.tolist(), speeds)] if jobs.size else []

    def _saved(self, j: int) -> float:
        """Samples in the job's last checkpoint."""
        run, every_s = self._running[j], self._truth.world.checkpoint_s
        saved_s = math.floor(max(self._now_s - run.resume_s, 0.0) / every_s) * every_s  # after `resume_s`
        saved = max(self._done[j] + run.rate * (saved_s - (run.since_s - run.resume_s)), 0.0)
        return min(saved, self._total[j]) if self._truth.world.notice_s else saved

    def _arrive(self) -> list[Event]:
        events: list[Event] = []
        while self._arrived < len(self._declared) and self._known_s(self._arrived) == self._now_s:
            events.append(Arrived(self._now_s, self._declared[self._arrived]))
            self._arrived += 1
        return events


def _in(state: State, *phases: Phase) -> IntArray:
    """Jobs in one of these phases, by position."""
    return np.flatnonzero(np.isin(state.phase[: state.jobs], phases))
