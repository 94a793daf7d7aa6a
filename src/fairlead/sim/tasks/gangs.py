"""Gangs at task level: the k tasks of a round start together on k GPUs, and the slowest of them sets the pace.

The GPUs are held through the synchronisation. Where pre-emption is allowed, a job gives way at the end of a round.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from enum import StrEnum

import numpy as np

from fairlead.model.tasks import Instance, Schedule
from fairlead.sim.tasks.schedules import blind_rank

Key = Callable[[int, int, float], tuple[float, int]]  # (job, rounds done, GPU-seconds held) -> who goes first


class GangPlace(StrEnum):
    BLIND = "blind"  # any idle GPUs, in a shuffled order
    FASTEST = "fastest"  # idle GPUs of the types that suit the job best, mixed if need be
    PURE = "pure"  # the best type that has enough idle GPUs; mixed only where none has


def run_gangs(given: Instance, key: Key, place: GangPlace, *, preempt: bool, start_s: float) -> Schedule:
    """`start_s` is what a start or a restart costs. Without pre-emption jobs wait strictly in their order."""
    gangs = _Gangs(given, key, place, preempt, start_s)
    gangs.run()
    return gangs.schedule()


class _Gangs:
    def __init__(self, given: Instance, key: Key, place: GangPlace, preempt: bool, start_s: float) -> None:
        self.given, self.key, self.place, self.preempt, self.start_s = given, key, place, preempt, start_s
        known = given.known
        self.k: list[int] = known.scale.tolist()
        self.T: list[list[float]] = known.task_s.tolist()
        self.S: list[list[float]] = known.sync_s.tolist()
        self.switch: list[float] = known.switch_s.tolist()
        self.type_of: list[int] = given.type_of.tolist()
        rank = blind_rank(given)
        self.order = [  # n  all GPUs, the preferred ones first
            np.argsort(rank if place is GangPlace.BLIND else known.task_s[n, given.type_of], kind="stable").tolist()
            for n in range(given.jobs)
        ]
        self.idle = set(range(len(rank)))
        self.total = len(rank)
        self.done, self.held_s = [0] * given.jobs, [0.0] * given.jobs
        self.gang: dict[int, list[int]] = {}
        self.waiting: set[int] = set()
        self.rows: list[tuple[int, int, int, int, float, float]] = []
        self.ends: list[tuple[float, int, float]] = []  # end of a round, job, how long it took
        self.keys: dict[int, tuple[float, int]] = {}

    def run(self) -> None:
        arrivals: list[float] = self.given.known.arrival_s.tolist()
        arrived = 0
        while arrived < len(arrivals) or self.ends:
            now = min(
                self.ends[0][0] if self.ends else np.inf, arrivals[arrived] if arrived < len(arrivals) else np.inf
            )
            boundary: list[int] = []
            while self.ends and self.ends[0][0] <= now:
                boundary += self._end_round(*heapq.heappop(self.ends))
            while arrived < len(arrivals) and arrivals[arrived] <= now:
                self.waiting.add(arrived)
                self.keys[arrived] = self.key(arrived, 0, 0.0)
                arrived += 1
            wanted = self._wanted()
            for n in boundary:
                if n in wanted:
                    self._begin_round(n, now, 0.0)
                else:
                    self.idle.update(self.gang.pop(n))
                    self.waiting.add(n)
            self._start(now, wanted)

    def _end_round(self, end_s: float, n: int, took_s: float) -> list[int]:
        """The job, if it has rounds left."""
        self.done[n] += 1
        self.held_s[n] += self.k[n] * took_s
        if self.done[n] == self.given.rounds[n]:
            self.idle.update(self.gang.pop(n))
            return []
        self.keys[n] = self.key(n, self.done[n], self.held_s[n])
        return [n]

    def _wanted(self) -> set[int]:
        """Who should run now: those who run, or with pre-emption whoever comes first as far as the GPUs go."""
        if not self.preempt or not self.waiting:
            return set(self.gang) | (self.waiting if not self.preempt else set())
        wanted, left = set(), self.total
        for n in sorted([*self.gang, *self.waiting], key=lambda n: self.keys[n]):
            if self.k[n] <= left:
                wanted.add(n)
                left -= self.k[n]
                if not left:
                    break
        return wanted

    def _start(self, now: float, wanted: set[int]) -> None:
        for n in sorted(self.waiting, key=lambda n: self.keys[n]):
            if n in wanted and self.k[n] <= len(self.idle):
                self.waiting.remove(n)
                self.gang[n] = self._gpus(n)
                self.idle.difference_update(self.gang[n])
                self._begin_round(n, now, max(self.start_s, self.switch[n]))
            elif not self.preempt:
                return

    def _gpus(self, n: int) -> list[int]:
        k = self.k[n]
        order = [m for m in self.order[n] if m in self.idle]
        if self.place is GangPlace.PURE:
            for g in sorted(range(len(self.T[n])), key=lambda g: self.T[n][g]):
                pure = [m for m in order if self.type_of[m] == g]
                if len(pure) >= k:
                    return pure[:k]
        return order[:k]

    def _begin_round(self, n: int, now: float, extra_s: float) -> None:
        kinds = [self.type_of[m] for m in self.gang[n]]
        for task, (m, g) in enumerate(zip(self.gang[n], kinds, strict=True)):
            self.rows.append((n, self.done[n], task, m, now, now + extra_s + self.T[n][g]))
        took_s = extra_s + max(self.T[n][g] for g in kinds) + max(self.S[n][g] for g in kinds)
        heapq.heappush(self.ends, (now + took_s, n, took_s))

    def schedule(self) -> Schedule:
        return from_rows(self.rows)


def from_rows(rows: Sequence[tuple[int, int, int, int, float, float]]) -> Schedule:
    table = np.array(rows, dtype=np.float64).reshape(-1, 6)
    whole = table[:, :4].astype(np.int64)
    return Schedule(whole[:, 0], whole[:, 1], whole[:, 2], whole[:, 3], table[:, 4], table[:, 5])
