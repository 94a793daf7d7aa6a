"""Task-level scheduling: jobs made of rounds of equal tasks, what a dispatch rule may know of them, and schedules.

A job n has R_n rounds of k_n tasks (one mini-batch each). A task takes T[n,g] on a GPU of type g, and its gradients
are in S[n,g] later; those S seconds do not hold the GPU. The next round starts when all gradients of this one are in
(the barrier). Tasks of a round may run at different times, on different types, or one after another on one GPU.
GPUs are numbered type by type.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.errors import InputError

NO_TABLE: FloatArray = np.empty(0)
NO_TABLE.flags.writeable = False


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """What can be known of jobs when they arrive: all but their lengths. Rules that are not clairvoyant see this."""

    arrival_s: FloatArray  # n  ascending
    weight: FloatArray  # n
    scale: IntArray  # n  k: tasks per round
    task_s: FloatArray  # n,g  T; inf = cannot run there
    sync_s: FloatArray  # n,g  S
    gpus: IntArray  # g  how many of each type
    switch_s: FloatArray  # n  what a GPU pays when it turns to this job from another one

    @property
    def jobs(self) -> int:
        return len(self.arrival_s)

    @property
    def fastest_s(self) -> FloatArray:
        """n  p: a task on the type that suits it best."""
        return np.asarray(self.task_s[:, self.gpus > 0].min(axis=1))

    @property
    def quickest_sync_s(self) -> FloatArray:
        """n  s."""
        return np.asarray(self.sync_s[:, self.gpus > 0].min(axis=1))

    @property
    def fluid_s(self) -> FloatArray:
        """n  seconds per task if every GPU worked for this job alone: 1 / sum_m 1 / T[n,m]."""
        return np.asarray(1.0 / (self.gpus / self.task_s).sum(axis=1))


@dataclass(frozen=True, slots=True, eq=False)
class Instance:
    """Jobs with their lengths. Jobs are in the order of their arrival."""

    known: Known
    rounds: IntArray  # n  R
    last: FloatArray = field(default_factory=lambda: NO_TABLE)  # n  the last round is this part of a round; empty = 1

    def __post_init__(self) -> None:
        _check(self)

    @property
    def jobs(self) -> int:
        return self.known.jobs

    @property
    def tasks(self) -> IntArray:
        """n  K = R k."""
        return np.asarray(self.rounds * self.known.scale)

    @property
    def last_part(self) -> FloatArray:
        """n  above 0, at most 1."""
        return self.last if len(self.last) else np.ones(self.jobs)

    @property
    def type_of(self) -> IntArray:
        """m  the type of each GPU."""
        return np.repeat(np.arange(len(self.known.gpus)), self.known.gpus)

    @property
    def alpha(self) -> float:
        """The largest max_m / min_m of a job's task or synchronisation times."""
        used = self.known.gpus > 0
        worst = 1.0
        runs = np.isfinite(self.known.task_s[:, used])
        for times in (self.known.task_s[:, used], self.known.sync_s[:, used]):
            low = np.where(runs, times, np.inf).min(axis=1)
            high = np.where(runs, times, -np.inf).max(axis=1)
            if ((low == 0) & (high > 0)).any():
                return math.inf
            worst = max(worst, float((high[high > 0] / low[high > 0]).max(initial=1.0)))
        return worst


def instance(
    *,
    arrival_s: FloatArray,
    rounds: IntArray,
    scale: IntArray,
    task_s: FloatArray,
    gpus: IntArray,
    weight: FloatArray | None = None,
    sync_s: FloatArray | None = None,
    switch_s: FloatArray | None = None,
) -> Instance:
    """Jobs in any order, with what is mostly left out filled in: weight 1, no synchronisation, no switch cost."""
    order = np.argsort(arrival_s, kind="stable")
    n = len(arrival_s)
    known = Known(
        np.asarray(arrival_s, dtype=np.float64)[order],
        (np.ones(n) if weight is None else np.asarray(weight, dtype=np.float64))[order],
        np.asarray(scale, dtype=np.int64)[order],
        np.asarray(task_s, dtype=np.float64)[order],
        (np.zeros(np.shape(task_s)) if sync_s is None else np.asarray(sync_s, dtype=np.float64))[order],
        np.asarray(gpus, dtype=np.int64),
        (np.zeros(n) if switch_s is None else np.asarray(switch_s, dtype=np.float64))[order],
    )
    return Instance(known, np.asarray(rounds, dtype=np.int64)[order])


class Choice(IntEnum):
    """Which GPU a task takes."""

    FASTEST_IDLE = 0  # of those that are idle now the one of the type that suits it best
    EARLIEST_FINISH = 1  # it may also wait for a busy GPU if it ends earlier there
    LONGEST_IDLE = 2  # blind to types: the GPU that has been idle longest, ties in a fixed shuffled order


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """A dispatch rule as data: which job goes first, and where to.

    The job with the smallest key goes first, ties by arrival. With i tasks started so far, in round r,

        key = base_n + slope_n i + by_round[n,r]

    and where there are queues, only the queue counts that this value falls into: number 0 below unit_n, then one for
    each factor `growth`. A job none of whose tasks run and that has waited `promote` times its service so far
    (i slope_n w_n / k_n seconds) starts again with i = 0.
    """

    base: FloatArray  # n
    slope: FloatArray  # n
    by_round: FloatArray = field(default_factory=lambda: NO_TABLE)  # all rounds of job 0, of job 1 ...; empty = zero
    unit: FloatArray = field(default_factory=lambda: NO_TABLE)  # n  empty = no queues
    growth: float = 4.0
    queues: int = 7
    promote: float = math.inf
    choice: Choice = Choice.EARLIEST_FINISH
    sigma: float = 1.3  # a finish that needs a wait counts as if the task took so many times longer
    cost_s: FloatArray | None = None  # n,g  what stands for T in the choice of the GPU; None = T itself


@dataclass(frozen=True, slots=True, eq=False)
class TaskPlan:
    """What a policy for single tasks answers: a rule, or a list of rounds (a job's r-th mention is its r-th round).

    Whoever knows all jobs and their lengths may name several: the one with the smallest sum of w C is kept.
    """

    candidates: tuple[tuple[str, Rule | IntArray], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """One row per task. A GPU is held from `start_s` to `end_s`: switching first, then T."""

    job: IntArray
    round: IntArray
    task: IntArray  # 0 .. k-1 in its round
    gpu: IntArray
    start_s: FloatArray
    end_s: FloatArray

    def __len__(self) -> int:
        return len(self.job)


def completions_s(given: Instance, schedule: Schedule) -> FloatArray:
    """n  C: when the gradients of a job's last round are in."""
    sync_s = given.known.sync_s[schedule.job, given.type_of[schedule.gpu]] * row_parts(given, schedule)
    found = np.full(given.jobs, -np.inf)
    np.maximum.at(found, schedule.job, schedule.end_s + sync_s)
    return found


def row_parts(given: Instance, schedule: Schedule) -> FloatArray:
    """By row: 1, or less in a job's last round."""
    last = schedule.round == given.rounds[schedule.job] - 1
    return np.where(last, given.last_part[schedule.job], 1.0)


def weighted_completion_s(given: Instance, schedule: Schedule) -> float:
    """sum_n w_n C_n."""
    return float(given.known.weight @ completions_s(given, schedule))


def weighted_jct_s(given: Instance, schedule: Schedule) -> float:
    """sum_n w_n (C_n - a_n) / sum_n w_n."""
    known = given.known
    return float(known.weight @ (completions_s(given, schedule) - known.arrival_s) / known.weight.sum())


def _check(given: Instance) -> None:
    known, n, g = given.known, given.known.jobs, len(given.known.gpus)
    shapes = [known.weight, known.scale, known.switch_s, given.rounds]
    if any(len(column) != n for column in shapes) or known.task_s.shape != (n, g) or known.sync_s.shape != (n, g):
        raise InputError(f"tasks: columns differ in length; wanted {n} jobs and {g} GPU types in all of them")
    for name, column, low in (
        ("arrival_s", known.arrival_s, 0.0),
        ("sync_s", known.sync_s, 0.0),
        ("switch_s", known.switch_s, 0.0),
        ("task_s", np.where(np.isposinf(known.task_s), 1.0, known.task_s), np.nextafter(0.0, 1.0)),
        ("last", given.last, np.nextafter(0.0, 1.0)),
        ("weight", known.weight, np.nextafter(0.0, 1.0)),
        ("rounds", given.rounds, 1),
        ("scale", known.scale, 1),
    ):
        if not (np.isfinite(column).all() and (column >= low).all()):
            raise InputError(f"tasks: {name} holds {column.min(initial=0)}; wanted finite numbers from {low:g} up")
    if not np.isfinite(known.task_s[:, known.gpus > 0]).any(axis=1).all():
        raise InputError("tasks: a job can run on no GPU that is there")
    if (np.diff(known.arrival_s) < 0).any():
        raise InputError("tasks: jobs must be in the order of their arrival; build them with `instance`")
    if known.gpus.sum() < 1 or (known.gpus < 0).any():
        raise InputError(f"tasks: GPU counts are {known.gpus.tolist()}; wanted at least one GPU")
