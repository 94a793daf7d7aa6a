"""The engine on a virtual clock: time jumps to the next arrival, completion or fault, and never ticks."""

from __future__ import annotations

import heapq
import math

import numpy as np

from fairlead.model.allocation import NOWHERE, Spot
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.decision import Decision
from fairlead.model.errors import BrokenInvariantError
from fairlead.model.events import Arrived, Event, Finished, Lost, NodeDown, Started, Stopped
from fairlead.sim.faults import Faults
from fairlead.sim.truth import Truth


class SimEngine:
    """Jobs are known by position: the order in which they arrive, which is the order of the trace."""

    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        self._now_s = 0.0
        self._declared = truth.declared()
        self._arrived = 0
        self._ended = 0
        self._faults = Faults(len(truth.cluster.nodes), truth.world.mtbf_s, truth.world.repair_s, truth.world.seed)
        self._answers: list[Event] = []  # to the last commands

        # A running job has done `done` samples by `resume_s` and makes `rate` a second from then on.
        jobs = len(truth.jobs)
        self._done = np.zeros(jobs)  # j
        self._rate = np.zeros(jobs)  # j
        self._resume_s = np.zeros(jobs)  # j
        self._ran = np.zeros(jobs, dtype=np.bool_)  # j  has run before, so a start restores a checkpoint
        self._spots: list[Spot] = [NOWHERE] * jobs
        self._end_s: dict[int, float] = {}  # of the running jobs
        self._finishing: list[tuple[float, int]] = []  # heap; entries that `_end_s` does not confirm are stale

    def now(self) -> float:
        return self._now_s

    def wait(self, until_s: float) -> list[Event]:
        """Events of the next instant and kind: completions before faults before arrivals, each by position."""
        if self._answers:
            answers, self._answers = self._answers, []
            return answers
        jobs = self._truth.jobs
        finish_s = self._next_finish_s()
        fault_s = self._faults.next_s if self._ended < len(jobs) else math.inf
        arrival_s = jobs[self._arrived].arrival_s if self._arrived < len(jobs) else math.inf
        next_s = min(finish_s, fault_s, arrival_s)
        if next_s > until_s or next_s == math.inf:
            self._now_s = until_s if until_s < math.inf else self._now_s
            return []
        self._now_s = next_s
        if finish_s == next_s:
            return [self._finish()]
        return self._fault() if fault_s == next_s else self._arrive()

    def apply(self, decision: Decision) -> None:
        now_s = decision.time_s
        if decision.stop.size:
            self._answers.append(Stopped(now_s, decision.stop, self._stop(decision.stop, now_s)))
        if decision.start.size:
            for j, spot in zip(decision.start.tolist(), decision.spots, strict=True):
                self._start(j, spot, now_s)
            self._ran[decision.start] = True
            self._answers.append(
                Started(now_s, decision.start, self._rate[decision.start], self._resume_s[decision.start])
            )

    def _start(self, j: int, spot: Spot, now_s: float) -> None:
        rate = self._truth.rate(j, spot)
        if rate <= 0 or j in self._end_s:
            raise BrokenInvariantError(f"job {self._truth.jobs[j].id} was started where it cannot run, or twice")
        resume_s = now_s + (float(self._truth.restart_s[j]) if self._ran[j] else 0.0)
        end_s = resume_s + max(float(self._truth.total[j] - self._done[j]), 0.0) / rate
        self._rate[j], self._resume_s[j], self._spots[j], self._end_s[j] = rate, resume_s, spot, end_s
        heapq.heappush(self._finishing, (end_s, j))

    def _stop(self, jobs: IntArray, now_s: float) -> FloatArray:
        """j  samples kept: all that was done."""
        ran_s = np.maximum(now_s - self._resume_s[jobs], 0.0)
        return self._leave(jobs, self._done[jobs] + self._rate[jobs] * ran_s)

    def _leave(self, jobs: IntArray, samples: FloatArray) -> FloatArray:
        self._done[jobs] = samples
        self._rate[jobs] = 0.0
        for j in jobs.tolist():
            self._end_s.pop(j, None)
            self._spots[j] = NOWHERE
        return samples

    def _next_finish_s(self) -> float:
        heap = self._finishing
        while heap and self._end_s.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else math.inf

    def _finish(self) -> Finished:
        ending: list[int] = []
        while self._next_finish_s() == self._now_s:
            j = heapq.heappop(self._finishing)[1]
            ending.append(j)
            del self._end_s[j]
        self._ended += len(ending)
        jobs = np.array(sorted(ending), dtype=np.int64)
        return Finished(self._now_s, jobs, self._leave(jobs, self._truth.total[jobs]))

    def _fault(self) -> list[Event]:
        fault = self._faults.pop()
        if not isinstance(fault, NodeDown):
            return [fault]
        on_it = [j for j in sorted(self._end_s) if any(node == fault.node for node, _ in self._spots[j])]
        if not on_it:
            return [fault]
        jobs = np.array(on_it, dtype=np.int64)
        every_s = self._truth.world.checkpoint_s
        saved_s = np.floor(np.maximum(self._now_s - self._resume_s[jobs], 0.0) / every_s) * every_s
        kept = self._leave(jobs, self._done[jobs] + self._rate[jobs] * saved_s)
        return [fault, Lost(self._now_s, jobs, kept)]

    def _arrive(self) -> list[Event]:
        events: list[Event] = []
        while self._arrived < len(self._declared) and self._declared[self._arrived].arrival_s == self._now_s:
            events.append(Arrived(self._now_s, self._declared[self._arrived]))
            self._arrived += 1
        return events
