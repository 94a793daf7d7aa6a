"""Task-level scheduling: jobs made of rounds of equal tasks, what a dispatch rule may know about them, and schedules.

A job n has R_n rounds of k_n tasks (one mini-batch each). A task takes T[n,g] on a GPU of type g, and its gradients
arrive S[n,g] later, or more where the tasks of the round run on several nodes; those S seconds do not hold the GPU. The next round starts when all gradients of this one have
arrived (the barrier). Tasks of a round may run at different times, on different types, or one after another on one GPU.
GPUs are numbered type by type.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Protocol

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.errors import InputError

NO_TABLE: FloatArray = np.empty(0)
NO_TABLE.flags.writeable = False
NO_NODES: IntArray = np.empty(0, dtype=np.int64)
NO_NODES.flags.writeable = False


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """What is known about a job when it arrives, for jobs in the order of arrival: no arrival times and no lengths."""

    weight: FloatArray  # n
    scale: IntArray  # n  k: tasks per round
    task_s: FloatArray  # n,g  T; inf = cannot run there
    sync_s: FloatArray  # n,g  S, on as few nodes as a gang of k needs
    gpus: IntArray  # g  number of each type
    switch_s: FloatArray  # n  cost when a GPU switches to this job from another one
    restarts: bool = False  # a switch is a restart: a job's first round is free, and a GPU that was idle so far is not
    node_of: IntArray = field(default_factory=lambda: NO_NODES)  # m  the node of each GPU; empty = nodes do not matter
    spread_sync_s: FloatArray = field(
        default_factory=lambda: NO_TABLE
    )  # n,g,N  S if the tasks of a round run on N + 1 nodes; more nodes than the table has count as its last; empty = S

    @property
    def jobs(self) -> int:
        return len(self.weight)

    @property
    def fastest_s(self) -> FloatArray:
        """n  p: seconds of a task on its fastest type."""
        return np.asarray(self.task_s[:, self.gpus > 0].min(axis=1))

    @property
    def quickest_sync_s(self) -> FloatArray:
        """n  s: the shortest synchronisation time."""
        return np.asarray(self.sync_s[:, self.gpus > 0].min(axis=1))

    @property
    def fluid_s(self) -> FloatArray:
        """n  seconds per task if every GPU worked for this job alone: 1 / sum_m 1 / T[n,m]."""
        return np.asarray(1.0 / (self.gpus / self.task_s).sum(axis=1))


class HasLengths(Protocol):
    """Jobs with their lengths: what `Sized` and `Instance` have in common."""

    @property
    def known(self) -> Known: ...

    @property
    def rounds(self) -> IntArray: ...

    @property
    def jobs(self) -> int: ...

    @property
    def tasks(self) -> IntArray: ...


@dataclass(frozen=True, slots=True, eq=False)
class Sized:
    """Jobs with their lengths but without arrival times, for a policy that does not know the future."""

    known: Known
    rounds: IntArray  # n  R

    @property
    def jobs(self) -> int:
        return self.known.jobs

    @property
    def tasks(self) -> IntArray:
        """n  The number of tasks, K = R k."""
        return np.asarray(self.rounds * self.known.scale)


@dataclass(frozen=True, slots=True, eq=False)
class Instance:
    """Jobs with their lengths and arrival times, in the order of their arrival: everything that happens."""

    known: Known
    rounds: IntArray  # n  R
    arrival_s: FloatArray  # n  ascending
    last: FloatArray = field(
        default_factory=lambda: NO_TABLE
    )  # n  the length of the last round as a fraction of a round; empty = 1

    def __post_init__(self) -> None:
        _check(self)

    @property
    def jobs(self) -> int:
        return self.known.jobs

    @property
    def tasks(self) -> IntArray:
        """n  The number of tasks, K = R k."""
        return np.asarray(self.rounds * self.known.scale)

    @property
    def sized(self) -> Sized:
        """The jobs without their arrival times."""
        return Sized(self.known, self.rounds)

    @property
    def last_part(self) -> FloatArray:
        """n  The length of the last round as a fraction of a round, above 0 and at most 1."""
        return self.last if len(self.last) else np.ones(self.jobs)

    @property
    def type_of(self) -> IntArray:
        """m  The type of each GPU."""
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
    """An instance of jobs in any order. Defaults: weight 1, no synchronisation, no switch cost."""
    order = np.argsort(arrival_s, kind="stable")
    n = len(arrival_s)
    known = Known(
        (np.ones(n) if weight is None else np.asarray(weight, dtype=np.float64))[order],
        np.asarray(scale, dtype=np.int64)[order],
        np.asarray(task_s, dtype=np.float64)[order],
        (np.zeros(np.shape(task_s)) if sync_s is None else np.asarray(sync_s, dtype=np.float64))[order],
        np.asarray(gpus, dtype=np.int64),
        (np.zeros(n) if switch_s is None else np.asarray(switch_s, dtype=np.float64))[order],
    )
    return Instance(known, np.asarray(rounds, dtype=np.int64)[order], np.asarray(arrival_s, dtype=np.float64)[order])


def first_jobs(jobs: Instance, count: int) -> Instance:
    """The jobs that arrive first."""
    known = jobs.known
    names = ("weight", "scale", "task_s", "sync_s", "switch_s", "spread_sync_s")
    columns = {name: getattr(known, name)[:count] for name in names}
    return Instance(replace(known, **columns), jobs.rounds[:count], jobs.arrival_s[:count], jobs.last[:count])


class Choice(IntEnum):
    """How a task chooses its GPU."""

    FASTEST_IDLE = 0  # the idle GPU of the task's fastest type
    EARLIEST_FINISH = 1  # the task may also wait for a busy GPU if it ends earlier there
    LONGEST_IDLE = 2  # ignores types: the GPU that has been idle longest, ties in a fixed shuffled order


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """A dispatch rule as data: which job is dispatched first, and where.

    The job with the smallest key is first, ties by arrival. With i tasks started so far, in round r,

        key = base_n + slope_n i + by_round[n,r]

    and if there are queues, only the queue that contains this value counts: number 0 below unit_n, then one for each
    factor `growth`. If no task of a job runs and it has waited `promote` times its service so far (i slope_n w_n / k_n
    seconds), it starts again with i = 0.
    """

    base: FloatArray  # n
    slope: FloatArray  # n
    by_round: FloatArray = field(default_factory=lambda: NO_TABLE)  # all rounds of job 0, of job 1 ...; empty = zero
    unit: FloatArray = field(default_factory=lambda: NO_TABLE)  # n  empty = no queues
    growth: float = 4.0
    queues: int = 7
    promote: float = math.inf
    choice: Choice = Choice.EARLIEST_FINISH
    sigma: float = 1.3  # if the task must wait, its finish counts as if it took this many times longer
    cost_s: FloatArray | None = None  # n,g  replaces T in the choice of the GPU; None = T itself


@dataclass(frozen=True, slots=True, eq=False)
class TaskPlan:
    """The answer of a task-level policy: a rule, or a list of rounds (a job's r-th entry is its r-th round).

    A policy that knows all jobs and their lengths may return several; the one with the smallest sum of w C is used.
    """

    candidates: tuple[tuple[str, Rule | IntArray], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """A schedule with one row per task. A GPU is held from `start_s` to `end_s`: switching first, then T."""

    job: IntArray
    round: IntArray
    task: IntArray  # 0 .. k-1 in its round
    gpu: IntArray
    start_s: FloatArray
    end_s: FloatArray

    def __len__(self) -> int:
        return len(self.job)


def completions_s(problem: Instance, schedule: Schedule) -> FloatArray:
    """n  C: when the gradients of a job's last round have arrived."""
    completed_s = np.full(problem.jobs, -np.inf)
    np.maximum.at(completed_s, schedule.job, schedule.end_s + row_sync_s(problem, schedule))
    return completed_s


def row_sync_s(problem: Instance, schedule: Schedule) -> FloatArray:
    """The synchronisation time of each row, which depends on the number of nodes on which its round runs."""
    known, type_ = problem.known, problem.type_of[schedule.gpu]
    parts = row_parts(problem, schedule)
    if not known.spread_sync_s.size:
        return np.asarray(known.sync_s[schedule.job, type_] * parts)
    nodes = np.minimum(round_nodes(problem, schedule), known.spread_sync_s.shape[2])
    return np.asarray(known.spread_sync_s[schedule.job, type_, nodes - 1] * parts)


def round_nodes(problem: Instance, schedule: Schedule) -> IntArray:
    """The number of nodes that the round of each row runs on."""
    rounds_before = np.cumsum(problem.rounds) - problem.rounds
    round_ = rounds_before[schedule.job] + schedule.round  # among the rounds of all jobs
    node = problem.known.node_of[schedule.gpu]
    nodes = int(node.max(initial=0)) + 1
    pairs = np.unique(round_ * nodes + node)
    return np.asarray(np.bincount(pairs // nodes, minlength=int(problem.rounds.sum()))[round_])


def row_parts(problem: Instance, schedule: Schedule) -> FloatArray:
    """The fraction of a round that each row belongs to: 1, or less in a job's last round."""
    last = schedule.round == problem.rounds[schedule.job] - 1
    return np.where(last, problem.last_part[schedule.job], 1.0)


def weighted_completion_s(problem: Instance, schedule: Schedule) -> float:
    """The weighted completion time, sum_n w_n C_n."""
    return float(problem.known.weight @ completions_s(problem, schedule))


def weighted_jct_s(problem: Instance, schedule: Schedule) -> float:
    """The weighted mean job completion time, sum_n w_n (C_n - a_n) / sum_n w_n."""
    known = problem.known
    return float(known.weight @ (completions_s(problem, schedule) - problem.arrival_s) / known.weight.sum())


def _check(problem: Instance) -> None:
    known, n, g = problem.known, problem.known.jobs, len(problem.known.gpus)
    shapes = [problem.arrival_s, known.scale, known.switch_s, problem.rounds]
    if any(len(column) != n for column in shapes) or known.task_s.shape != (n, g) or known.sync_s.shape != (n, g):
        raise InputError(f"tasks: columns differ in length; expected {n} jobs and {g} GPU types in all of them")
    for name, column, low in (
        ("arrival_s", problem.arrival_s, 0.0),
        ("sync_s", known.sync_s, 0.0),
        ("switch_s", known.switch_s, 0.0),
        ("task_s", np.where(np.isposinf(known.task_s), 1.0, known.task_s), np.nextafter(0.0, 1.0)),
        ("last", problem.last, np.nextafter(0.0, 1.0)),
        ("weight", known.weight, np.nextafter(0.0, 1.0)),
        ("rounds", problem.rounds, 1),
        ("scale", known.scale, 1),
    ):
        if not (np.isfinite(column).all() and (column >= low).all()):
            raise InputError(f"tasks: {name} holds {column.min(initial=0)}; expected finite numbers from {low:g} up")
    if len(known.spread_sync_s) and (
        len(known.node_of) != known.gpus.sum() or known.spread_sync_s.shape[:2] != known.task_s.shape
    ):
        raise InputError(
            "tasks: synchronisation by nodes needs a row for every job and type, and the node of every GPU"
        )
    if not np.isfinite(known.task_s[:, known.gpus > 0]).any(axis=1).all():
        raise InputError("tasks: a job cannot run on any GPU of the cluster")
    if (np.diff(problem.arrival_s) < 0).any():
        raise InputError("tasks: jobs must be in the order of their arrival; build them with `instance`")
    if known.gpus.sum() < 1 or (known.gpus < 0).any():
        raise InputError(f"tasks: GPU counts are {known.gpus.tolist()}; expected at least one GPU")
