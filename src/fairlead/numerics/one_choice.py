"""Linear programs in which every job takes at most one of its choices and few rows are shared by all jobs.

    min  sum_c cost_c x_c    s.t.  sum_{c of j} x_c <= 1                 every job j
                                   low_r <= sum_c a_rc x_c <= high_r     every shared row r,     x >= 0

At the optimal prices of the shared rows nearly every job has one choice that is clearly the best, because an optimal
vertex divides at most as many jobs as there are shared rows. So most of the program is decided by good prices:

1. Prices are estimated by the same program for every fourth job on a quarter of the resources.
2. A job with a single choice near its best, at these prices, takes it. The other jobs, with the choices that are near
   their best, share what is left in a small program.
3. If a choice that was left out is better at the prices of that program, it is added, and the program is solved again.
   If there is none, the solution is optimal for the whole program: it is feasible, no choice has a negative reduced
   cost, and the choices that were fixed are the best ones of their jobs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.numerics.solve import TOLERANCE, Limit, LinearProgram, Optimal, solve

SMALL = 1_500  # choices: a program with fewer is solved at once
SAMPLE = 4  # one of this many jobs is in the program that estimates prices
BOX = 0.1  # of a price: how far it may be from its estimate at first
LEAST_BOX = 0.2  # of the mean price: what counts as a price at least
NEAR = 800  # choices other than the best one of their job in the first small program, if its box can be smaller
LEAST_PART = 1e-3  # of the box at first
GROW = 4.0  # times as far if a price is at the edge of its box
MOST_ADDED = 400  # choices that are added at once
MOST_SOLVES = 40  # before all of the program is solved at once


@dataclass(frozen=True, slots=True, eq=False)
class ChoiceProgram:
    """The program above. The entries of choice c are amount[start[c]:start[c+1]] in rows row[start[c]:start[c+1]]."""

    job: IntArray  # c  from 0
    cost: FloatArray  # c
    start: IntArray  # c + 1
    row: IntArray  # entries
    amount: FloatArray  # entries
    low: FloatArray  # r
    high: FloatArray  # r

    def part(self, columns: IntArray, low: FloatArray, high: FloatArray) -> ChoiceProgram:
        """These choices alone, with other bounds; jobs are renumbered."""
        count = np.diff(self.start)[columns]
        start = np.append(0, np.cumsum(count))
        entries = np.arange(start[-1]) + np.repeat(self.start[columns] - start[:-1], count)
        _, job = np.unique(self.job[columns], return_inverse=True)
        return ChoiceProgram(
            job.reshape(-1), self.cost[columns], start, self.row[entries], self.amount[entries], low, high
        )

    def net(self, price: FloatArray) -> FloatArray:
        """c  the cost of a choice and of what it uses, at these prices."""
        column = np.repeat(np.arange(len(self.cost)), np.diff(self.start))
        return np.asarray(self.cost - np.bincount(column, self.amount * price[self.row], len(self.cost)))

    def used(self, x: FloatArray) -> FloatArray:
        """r"""
        total = np.bincount(self.row, self.amount * np.repeat(x, np.diff(self.start)), len(self.high))
        return np.asarray(total, dtype=np.float64)

    def linear(self) -> LinearProgram:
        """Rows: the shared ones, then one per job."""
        choices, jobs = len(self.cost), int(self.job.max(initial=-1)) + 1
        return LinearProgram(
            cost=self.cost,
            low=np.zeros(choices),
            high=np.full(choices, np.inf),  # a job's row limits it
            row_low=np.concatenate((self.low, np.full(jobs, -np.inf))),
            row_high=np.concatenate((self.high, np.ones(jobs))),
            start=self.start + np.arange(choices + 1),
            index=np.insert(self.row, self.start[1:], len(self.high) + self.job),
            value=np.insert(self.amount, self.start[1:], 1.0),
        )

    def boxed(self, price: FloatArray, box: FloatArray) -> LinearProgram:
        """The linear program in which more of a row can be bought at `price - box` and sold at `price + box`.

        This keeps the prices between the two, and the program has a solution whatever jobs outside it use.
        """
        whole, rows = self.linear(), len(price)
        at = np.arange(rows)
        return LinearProgram(
            cost=np.concatenate((whole.cost, box - price, box + price)),
            low=np.zeros(len(whole.cost) + 2 * rows),
            high=np.concatenate(
                (np.ones(len(whole.cost)), np.full(2 * rows, 1.0 + float(np.abs(self.amount).sum()) + _size(self)))
            ),
            row_low=whole.row_low,
            row_high=whole.row_high,
            start=np.append(whole.start, whole.start[-1] + 1 + np.arange(2 * rows)),
            index=np.concatenate((whole.index, at, at)),
            value=np.concatenate((whole.value, -np.ones(rows), np.ones(rows))),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Chosen:
    """An optimal vertex and its prices."""

    x: FloatArray  # c
    objective: float
    price: FloatArray  # r  growth of the minimum per unit of the row's binding bound: at most 0 for an upper one


def choose(program: ChoiceProgram, limit: Limit) -> Chosen | None:
    """The optimum; None if the program has no solution or a solve reached its limit."""
    if len(program.cost) <= SMALL:
        return _whole(program, limit)
    estimate = choose(_sample(program), limit)
    return _refined(program, np.zeros(len(program.high)) if estimate is None else estimate.price, limit)


def _sample(program: ChoiceProgram) -> ChoiceProgram:
    """Every fourth job, in the order of their cheapest choices, on a quarter of the resources."""
    cheapest = _least(program, program.cost, np.inf)
    inside = np.zeros(len(cheapest), dtype=np.bool_)
    inside[np.argsort(cheapest, kind="stable")[SAMPLE // 2 :: SAMPLE]] = True
    return program.part(np.flatnonzero(inside[program.job]), program.low / SAMPLE, program.high / SAMPLE)


def _refined(program: ChoiceProgram, price: FloatArray, limit: Limit) -> Chosen | None:
    """The optimum, found from an estimate of the prices."""
    job, box = program.job, _box(program, price)
    net = program.net(price)
    best = _least(program, net, 0.0)  # j  waiting costs nothing
    above = net - best[job]  # c  how much worse a choice is than the best of its job
    reach = program.cost - program.net(box)  # c  by how much its net cost can change inside the box
    top = np.zeros(len(best))  # j  the same for the best choice
    np.maximum.at(top, job[above <= 0], reach[above <= 0])
    with np.errstate(divide="ignore", invalid="ignore"):
        # The part of the box inside which a choice, or to wait, cannot become the best.
        ratio, wait_ratio = np.nan_to_num(above / (reach + top[job])), np.nan_to_num(-best / top)
    part = min(_in_place(-np.concatenate((ratio, wait_ratio)), len(best) + NEAR) * -1.0, 1.0)
    box = np.maximum(part, LEAST_PART) * box
    inside = ratio <= part  # c  choices that may be taken
    waits = wait_ratio <= part  # j  jobs that may wait
    for _ in range(MOST_SOLVES):
        open_ = np.bincount(job, inside, len(best)) + waits > 1  # j
        sure, shared = inside & ~open_[job], np.flatnonzero(inside & open_[job])
        used = program.used(sure.astype(np.float64))
        outcome = solve(program.part(shared, program.low - used, program.high - used).boxed(price, box), limit)
        if not isinstance(outcome, Optimal):
            return None
        now = outcome.row_dual[: len(price)]
        net = program.net(now)
        least = _least(program, np.where(inside, net, np.inf), np.inf)  # j  of the choices that may be taken
        alone = np.where(waits | open_, np.minimum(least, 0.0), least)
        gain = np.where(inside, 0.0, alone[job] - net)  # c
        wait_gain = np.where(waits | open_, 0.0, alone)  # j
        worst = max(_in_place(np.concatenate((gain, wait_gain)), MOST_ADDED), TOLERANCE)
        better, wait_better = gain >= worst, wait_gain >= worst
        inside |= better
        waits |= wait_better
        bought = outcome.x[len(shared) :].reshape(2, -1).max(axis=0) > TOLERANCE  # r
        if not better.any() and not wait_better.any():
            if not bought.any():
                x = sure.astype(np.float64)
                x[shared] = outcome.x[: len(shared)]
                return Chosen(x, float(program.cost @ x), now)
            price, box = now, np.where(bought, GROW * box, box)
    return _whole(program, limit)


def _box(program: ChoiceProgram, price: FloatArray) -> FloatArray:
    """r  how far the prices may be from their estimate."""
    mean = float(np.abs(price).mean())
    if mean == 0:
        mean = float(np.abs(program.cost).sum() / max(float(np.abs(program.amount).sum()), 1e-300))
    return np.asarray(BOX * np.maximum(np.abs(price), LEAST_BOX * mean))


def _in_place(values: FloatArray, place: int) -> float:
    """The value in this place when the largest one is in place 1; the smallest one if there are fewer."""
    at = max(len(values) - place, 0)
    return float(np.partition(values, at)[at])


def _size(program: ChoiceProgram) -> float:
    """The sum of all finite bounds."""
    bounds = np.concatenate((program.low, program.high))
    return float(np.abs(bounds[np.isfinite(bounds)]).sum())


def _least(program: ChoiceProgram, cost: FloatArray, most: float) -> FloatArray:
    """j  the smallest of these costs (c) among the job's choices, at most `most`."""
    least = np.full(int(program.job.max(initial=-1)) + 1, most)
    np.minimum.at(least, program.job, cost)
    return least


def _whole(program: ChoiceProgram, limit: Limit) -> Chosen | None:
    """All of it in one linear program."""
    outcome = solve(program.linear(), limit)
    if not isinstance(outcome, Optimal):
        return None
    return Chosen(outcome.x, outcome.objective, outcome.row_dual[: len(program.high)])
