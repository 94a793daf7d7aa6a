"""Gangs at task level: the k tasks of a round start together on k GPUs, and the slowest of them sets the pace.

A gang holds its GPUs during the synchronisation. If pre-emption is allowed, it happens at the end of a round.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from enum import StrEnum

import numpy as np

from fairlead.model.tasks import Instance, Schedule
from fairlead.sim.tasks.schedules import blind_rank

Key = Callable[[int, int, float], tuple[float, int]]  # (job, rounds done, GPU-seconds held) -> sort key


class GangPlace(StrEnum):
    BLIND = "blind"  # any idle GPUs, in a shuffled order
    FASTEST = "fastest"  # idle GPUs of the types that suit the job best, mixed if necessary
    PURE = "pure"  # the best type that has enough idle GPUs; mixed only if no type has


def run_gangs(instance: Instance, key: Key, place: GangPlace, *, preempt: bool, start_s: float) -> Schedule:
    """The schedule of gangs. `start_s` is the cost of a start or restart. Without pre-emption, order is strict."""
    gangs = _Gangs(instance, key, place, preempt, start_s)
    gangs.run()
    return gangs.schedule()


class _Gangs:
    def __init__(self, instance: Instance, key: Key, place: GangPlace, preempt: bool, start_s: float) -> None:
        self.instance, self.key, self.place, self.preempt, self.start_s = instance, key, place, preempt, start_s
        known = instance.known
        self.k: list[int] = known.scale.tolist()
        self.T: list[list[float]] = known.task_s.tolist()
        self.S: list[list[float]] = known.sync_s.tolist()
        self.switch: list[float] = known.switch_s.tolist()
        self.type_of: list[int] = instance.type_of.tolist()
        rank = blind_rank(instance)
        self.order = [  # n  all GPUs, the preferred ones first
            np.argsort(rank if place is GangPlace.BLIND else known.task_s[n, instance.type_of], kind="stable").tolist()
            for n in range(instance.jobs)
        ]
        self.idle = set(range(len(rank)))
        self.total = len(rank)
        self.done, self.held_s = [0] * instance.jobs, [0.0] * instance.jobs
        self.gang: dict[int, list[int]] = {}
        self.waiting: set[int] = set()
        self.rows: list[tuple[int, int, int, int, float, float]] = []
        self.ends: list[tuple[float, int, float]] = []  # end of a round, job, duration
        self.keys: dict[int, tuple[float, int]] = {}

    def run(self) -> None:
        arrivals: list[float] = self.instance.arrival_s.tolist()
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
        """End a round of the job; returns the job if it has rounds left."""
        self.done[n] += 1
        self.held_s[n] += self.k[n] * took_s
        if self.done[n] == self.instance.rounds[n]:
            self.idle.update(self.gang.pop(n))
            return []
        self.keys[n] = self.key(n, self.done[n], self.held_s[n])
        return [n]

    def _wanted(self) -> set[int]:
        """Jobs that should run now: without pre-emption all that are here, otherwise the first ones that fit."""
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
