"""Lower bounds on sum_n w_n C_n over all task-level schedules.

p_n and s_n are the shortest task and synchronisation times of job n, K_n = R_n k_n its tasks, M the number of GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.errors import BrokenInvariantError
from fairlead.model.tasks import Instance
from fairlead.numerics.solve import LinearProgram, Model, Optimal, columns_from_entries, solve

CUT_TOLERANCE = 1e-6  # a cut is violated if it is short by more than this part of its right-hand side
CUTS_AT_ONCE = 12
PASSES = 200
MOST_BLOCKS = 600  # columns of the pooled program; with more rounds than this, rounds are combined into blocks
INTERVALS = 30


@dataclass(frozen=True, slots=True, eq=False)
class Midpoints:
    """The solution of the pooled program. `exact`: all cuts hold and no rounds were combined."""

    bound: float
    by_round: FloatArray  # all rounds of job 0, of job 1 ...
    exact: bool


def critical_path(instance: Instance) -> float:
    """sum_n w_n (a_n + R_n (p_n + s_n)): the bound if each job were alone on its best GPUs."""
    known = instance.known
    chain_s = instance.rounds * (known.fastest_s + known.quickest_sync_s)
    return float(known.weight @ (instance.arrival_s + chain_s))


def pooled(instance: Instance, *, most_blocks: int = MOST_BLOCKS) -> Midpoints:
    """The bound if all GPUs were as fast as the best, with one mid-point M[n,r] per round.

        min sum w_n C_n
        M[n,0] >= a_n + p_n/2,  M[n,r+1] >= M[n,r] + p_n + s_n,  C_n >= M[n,R-1] + p_n/2 + s_n
        sum_{A} k_n p_n M[n,r] >= (sum_{A} k_n p_n)^2 / (2 M)       every set A of rounds

    Rows of the last family (Queyranne; Schulz for parallel machines) are added when they are violated: the sets that
    can be violated are prefixes in the order of M. With more than `most_blocks` rounds, consecutive rounds of a job
    share one variable, their mean mid-point; the result is still a bound, but the order becomes a heuristic.
    """
    job, length, before = _blocks(instance, most_blocks)
    known = instance.known
    p, s = known.fastest_s, known.quickest_sync_s
    step = (p + s)[job]
    half_s = (length - 1) / 2 * step  # b  from a block's first mid-point to its mean
    B, N = len(job), instance.jobs
    first, last = before == 0, np.concatenate([job[1:] != job[:-1], [True]])
    work = length * (known.scale * p)[job]  # b
    follower = np.flatnonzero(~first)
    ends = np.flatnonzero(last)
    rows = len(follower) + N
    row = np.concatenate([np.tile(np.arange(len(follower)), 2), np.tile(len(follower) + np.arange(N), 2)])
    column = np.concatenate([follower, follower - 1, B + job[ends], ends])
    value = np.concatenate([np.ones(len(follower)), -np.ones(len(follower)), np.ones(N), -np.ones(N)])
    start, index, value = columns_from_entries(row, column, value, B + N)
    low = np.concatenate([np.where(first, (instance.arrival_s + p / 2)[job] + half_s, 0.0), np.zeros(N)])
    gap_s = half_s[follower] + half_s[follower - 1] + step[follower]
    tail_s = (half_s + (p / 2 + s)[job])[ends]
    program = LinearProgram(
        cost=np.concatenate([np.zeros(B), known.weight]),
        low=low,
        high=np.full(B + N, np.inf),
        row_low=np.concatenate([gap_s, tail_s]),
        row_high=np.full(rows, np.inf),
        start=start,
        index=index,
        value=value,
    )
    solution, cuts_hold = _with_cuts(Model(program), work, int(known.gpus.sum()))
    middle = solution.x[:B]
    # The rounds of a block are spaced evenly around its mean, one step apart.
    of = np.repeat(np.arange(B), length)
    place = np.arange(len(of)) - np.repeat(np.cumsum(length) - length, length)
    by_round = middle[of] + (place - (length[of] - 1) / 2) * step[of]
    return Midpoints(solution.objective, by_round, cuts_hold and bool((length == 1).all()))


def mean_busy_time(instance: Instance, *, intervals: int = INTERVALS, until_s: float | None = None) -> float:
    """A type-aware bound on a time grid e_0 < e_1 < ...: z[n,g,t] tasks of n on type g in (e_t, e_{t+1}], none before a_n.

        min sum w_n C_n
        (c1) sum_{g,t} z = K_n
        (c2) sum_n T[n,g] z[n,g,t] <= count_g (e_{t+1} - e_t)
        (c3) C_n >= (1/K_n) sum z max(e_t, a_n) + s_n + p_n/2 + (R_n - 1)(p_n + s_n)/2
        (c4) C_n >= a_n + R_n (p_n + s_n)
        (c5) C_n >= a_n + (1/k_n) sum (T[n,g] + S[n,g]) z[n,g,t]
        (c6) sum_g T[n,g] z[n,g,t] <= k_n |(e_t, e_{t+1}] after a_n|

    `until_s` is where the fine part of the grid ends (the end of a good schedule); one long interval follows, so that
    the bound holds for longer schedules too.
    """
    known = instance.known
    p, s, K = known.fastest_s, known.quickest_sync_s, instance.tasks
    types = np.flatnonzero(known.gpus > 0)
    grid = _grid(instance, intervals, until_s)
    width_s = np.diff(grid)
    after_s = np.clip(grid[None, 1:] - np.maximum(grid[None, :-1], instance.arrival_s[:, None]), 0.0, None)  # n,t
    n, t = np.nonzero(after_s > 0)
    N, I, G, pairs = instance.jobs, len(width_s), len(types), len(n)
    # Columns: z by (pair, type), then C. Rows: c1, c2, c3, c5, c6.
    jobs, slots = np.repeat(n, G), np.repeat(t, G)
    kinds, kind_row = np.tile(types, pairs), np.tile(np.arange(G), pairs)
    z, C = np.arange(pairs * G), pairs * G + np.arange(N)
    T, S = known.task_s[jobs, kinds], known.sync_s[jobs, kinds]
    begin_s = np.maximum(grid[slots], instance.arrival_s[jobs])
    c2, c3, c5, c6 = N, N + G * I, 2 * N + G * I, 3 * N + G * I
    row = np.concatenate(
        [
            jobs,
            c2 + kind_row * I + slots,
            c3 + jobs,
            c5 + jobs,
            c6 + np.repeat(np.arange(pairs), G),
            c3 + np.arange(N),
            c5 + np.arange(N),
        ]
    )
    column = np.concatenate([z, z, z, z, z, C, C])
    value = np.concatenate(
        [np.ones(len(z)), T, -begin_s / K[jobs], -(T + S) / known.scale[jobs], T, np.ones(N), np.ones(N)]
    )
    start, index, value = columns_from_entries(row, column, value, len(z) + N)
    infinite = np.inf
    tail_s = s + p / 2 + (instance.rounds - 1) * (p + s) / 2
    program = LinearProgram(
        cost=np.concatenate([np.zeros(len(z)), known.weight]),
        low=np.concatenate([np.zeros(len(z)), instance.arrival_s + instance.rounds * (p + s)]),
        high=np.full(len(z) + N, infinite),
        row_low=np.concatenate([K, np.full(G * I, -infinite), tail_s, instance.arrival_s, np.full(pairs, -infinite)]),
        row_high=np.concatenate(
            [
                K.astype(np.float64),
                (known.gpus[types][:, None] * width_s[None, :]).ravel(),
                np.full(2 * N, infinite),
                known.scale[n] * after_s[n, t],
            ]
        ),
        start=start,
        index=index,
        value=value,
    )
    return _optimal(solve(program)).objective


def best_bound(
    instance: Instance, midpoints: Midpoints | None = None, *, intervals: int = INTERVALS, until_s: float | None = None
) -> float:
    """The largest of the three bounds; pass `midpoints` if the pooled program has been solved already."""
    middle = pooled(instance) if midpoints is None else midpoints
    return max(critical_path(instance), middle.bound, mean_busy_time(instance, intervals=intervals, until_s=until_s))


def _blocks(instance: Instance, most: int) -> tuple[IntArray, IntArray, IntArray]:
    """(job, rounds, rounds before it) of each block, in order; each block is one round if there are few rounds."""
    size = 1
    while int((-(-instance.rounds // size)).sum()) > max(most, instance.jobs):
        size += 1
    blocks = -(-instance.rounds // size)
    job = np.repeat(np.arange(instance.jobs), blocks)
    before = (np.arange(len(job)) - np.repeat(np.cumsum(blocks) - blocks, blocks)) * size
    return job, np.minimum(size, instance.rounds[job] - before), before


def _with_cuts(model: Model, work: FloatArray, gpus: int) -> tuple[Optimal, bool]:
    solution = _optimal(model.solve())
    for _ in range(PASSES):
        order = np.argsort(solution.x[: len(work)], kind="stable")
        total = np.cumsum(work[order])
        wanted = total**2 / (2 * gpus)
        short = (wanted - np.cumsum((work * solution.x[: len(work)])[order])) / wanted
        missed = _peaks(short)
        if not len(missed):
            return solution, True
        start = np.concatenate([[0], np.cumsum(missed + 1)])
        index = np.concatenate([order[: last + 1] for last in missed])
        model.add_rows(wanted[missed], np.full(len(missed), np.inf), start, index, work[index])
        solution = _optimal(model.solve())
    return solution, False


def _peaks(short: FloatArray) -> IntArray:
    """The few prefixes that violate their cut most, each by at least as much as its neighbours, ascending."""
    padded = np.concatenate([[-np.inf], short, [-np.inf]])
    peak = (short > CUT_TOLERANCE) & (short >= padded[:-2]) & (short >= padded[2:])
    worst = np.flatnonzero(peak)
    return np.sort(worst[np.argsort(-short[worst], kind="stable")][:CUTS_AT_ONCE])


def _grid(instance: Instance, intervals: int, until_s: float | None) -> FloatArray:
    """Ends of the intervals: equal steps up to `until_s`, then one interval up to the end of any sensible schedule."""
    known = instance.known
    slowest_s = known.task_s[:, known.gpus > 0].max(axis=1) + known.sync_s[:, known.gpus > 0].max(axis=1)
    over_s = float(instance.arrival_s[-1] + ((slowest_s + known.switch_s) * instance.tasks).sum())
    fine_s = (
        min(over_s, until_s) if until_s is not None else float(instance.arrival_s[-1] + instance.tasks @ known.fluid_s)
    )
    return np.concatenate([np.linspace(0.0, fine_s, intervals + 1), [over_s] if over_s > fine_s else []])


def _optimal(outcome: object) -> Optimal:
    if not isinstance(outcome, Optimal):
        raise BrokenInvariantError(f"a bound's program always has an optimum; the solver returned {outcome}")
    return outcome
