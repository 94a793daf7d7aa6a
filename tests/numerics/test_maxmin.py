"""The max-min program compared with a plain one, warm starts with cold ones, in any order of the groups."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.numerics.maxmin import TIE, MaxMin, MaxMinSolver
from fairlead.numerics.solve import LinearProgram, Optimal, columns_from_entries, solve

CLOSE = 1e-4  # of a share: preferences of 1e-5 break ties, solvers are accurate to 1e-7


@dataclass(frozen=True)
class Problem:
    rate: FloatArray  # g,t
    scale: FloatArray  # g
    width: IntArray  # g
    count: IntArray  # g
    capacity: IntArray  # t

    def solved(self, solver: MaxMinSolver | None = None) -> MaxMin:
        solver = solver or MaxMinSolver(len(self.capacity))
        solution = solver.solve(self.rate, self.scale, self.width, self.count, self.capacity)
        assert solution is not None
        return solution

    def values(self, shares: FloatArray) -> FloatArray:
        return np.asarray((self.rate * shares).sum(axis=1) * self.scale)

    def total(self, shares: FloatArray) -> float:
        return float(self.count @ self.values(shares))

    def permuted(self, order: list[int]) -> Problem:
        return Problem(self.rate[order], self.scale[order], self.width[order], self.count[order], self.capacity)


def dense(cost: FloatArray, rows: FloatArray, low: FloatArray, high: FloatArray) -> float:
    """The minimum over x >= 0 of a program written row by row."""
    row, column = np.nonzero(rows)
    start, index, value = columns_from_entries(row, column, rows[row, column], len(cost))
    n = len(cost)
    outcome = solve(LinearProgram(cost, np.zeros(n), np.full(n, np.inf), low, high, start, index, value))
    assert isinstance(outcome, Optimal)
    return outcome.objective


def oracle(p: Problem) -> tuple[float, float]:
    """The highest level, and the largest total at that level, directly from the formulas: x_gt, then z."""
    groups, types = p.rate.shape
    cells = groups * types
    value = np.zeros((groups, cells + 1))  # v_g.x_g - z
    gang = np.zeros((groups, cells + 1))
    room = np.zeros((types, cells + 1))
    for g in range(groups):
        for t in range(types):
            value[g, g * types + t] = p.rate[g, t] * p.scale[g]
            gang[g, g * types + t] = 1.0
            room[t, g * types + t] = p.count[g]
    useless = np.zeros((1, cells + 1))
    useless[0, :cells] = (p.rate <= 0).ravel()
    alive = p.rate.max(axis=1) > 0
    level_rows = value.copy()
    level_rows[:, cells] = np.where(alive, -1.0, 0.0)
    rows = np.vstack((level_rows, gang, room, useless))
    low = np.concatenate((np.zeros(groups), np.full(groups + types + 1, -np.inf)))
    high = np.concatenate((np.full(groups, np.inf), p.width, p.capacity, [0.0]))
    level = -dense(-np.eye(cells + 1)[cells], rows, low, high)
    rows[:groups] = value
    low[:groups] = np.where(alive, level * (1 - 1e-7), 0.0)
    total = -dense(-(p.count.astype(np.float64) @ value), rows, low, high)
    return level, total


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    groups, types = draw(st.integers(1, 5)), draw(st.integers(1, 3))
    rates = st.sampled_from((0.0, 0.5, 1.0, 1.0, 2.0, 3.7, 12.0))
    rate = np.array([[draw(rates) for _ in range(types)] for _ in range(groups)])
    rate[0, 0] = max(rate[0, 0], 1.0)
    return Problem(
        rate=rate,
        scale=np.array([draw(st.sampled_from((0.1, 1.0, 1.0, 4.0))) for _ in range(groups)]),
        width=np.array([draw(st.sampled_from((1, 1, 2, 8))) for _ in range(groups)]),
        count=np.array([draw(st.integers(1, 6)) for _ in range(groups)]),
        capacity=np.array([draw(st.integers(1, 12)) for _ in range(types)]),
    )


@settings(max_examples=80)
@given(problems())
def test_the_level_and_then_the_total_are_as_high_as_a_plain_program_finds(p: Problem) -> None:
    solution, (level, total) = p.solved(), oracle(p)

    assert solution.level == pytest.approx(level, rel=1e-5, abs=1e-7)
    assert p.total(solution.shares) == pytest.approx(total, rel=3 * TIE, abs=1e-6)


@settings(max_examples=80)
@given(problems())
def test_shares_keep_to_the_gang_the_cluster_and_the_level(p: Problem) -> None:
    solution = p.solved()

    alive = p.rate.max(axis=1) > 0
    assert (solution.shares >= 0).all()
    assert (solution.shares.sum(axis=1) <= p.width + 1e-6).all()
    assert (p.count @ solution.shares <= p.capacity + 1e-6).all()
    assert (p.values(solution.shares)[alive] >= solution.level * (1 - 1e-5) - 1e-6).all()
    assert not solution.shares[p.rate <= 0].any()


@settings(max_examples=40)
@given(st.lists(problems(), min_size=2, max_size=5))
def test_a_warm_start_gives_the_cold_answer(problems_in_turn: list[Problem]) -> None:
    """The problems that the solver solved before, on the same cluster, make no difference."""
    types = len(problems_in_turn[-1].capacity)
    warm = MaxMinSolver(types)
    for p in problems_in_turn:
        if len(p.capacity) == types:
            p.solved(warm)

    again, cold = problems_in_turn[-1].solved(warm), problems_in_turn[-1].solved()

    assert again.level == pytest.approx(cold.level, rel=1e-6)
    assert again.shares == pytest.approx(cold.shares, abs=CLOSE)


@settings(max_examples=40)
@given(problems(), st.data())
def test_the_order_of_groups_does_not_matter(p: Problem, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(p.scale))))
    equal = {(p.rate[g].tobytes(), p.scale[g], p.width[g]) for g in order}

    one, other = p.solved(), p.permuted(order).solved()

    assert other.level == pytest.approx(one.level, rel=1e-6)
    assert p.total(one.shares) == pytest.approx(p.permuted(order).total(other.shares), rel=3 * TIE)
    if len(equal) == len(order):  # groups that differ only in size may share in any way
        assert other.shares == pytest.approx(one.shares[order], abs=CLOSE)


def many(seed: int, groups: int, types: int) -> Problem:
    rng = np.random.default_rng(seed)
    rate, width = rng.uniform(1.0, 9.0, (groups, types)), rng.choice([1, 1, 2, 4], groups)
    rate[rng.random((groups, types)) < 0.2] = 0.0
    capacity = rng.integers(groups // 8, groups, types)
    return Problem(rate, rng.uniform(0.5, 2.0, groups), width, rng.integers(1, 3, groups), capacity)


@pytest.mark.parametrize(("seed", "types"), [(0, 2), (1, 3), (2, 3), (3, 5)])
def test_many_distinct_groups_get_what_the_plain_program_gives(seed: int, types: int) -> None:
    """With more groups than are kept open, another method solves the program; the result is the same."""
    p = many(seed, 101, types)

    solution, (level, total) = p.solved(MaxMinSolver(types, many=100)), oracle(p)

    assert solution.level == pytest.approx(level, rel=1e-6)
    assert p.total(solution.shares) == pytest.approx(total, rel=1e-4)
    assert (p.count @ solution.shares <= p.capacity + 1e-6).all()


def test_many_groups_without_a_limit_of_their_own_share_as_if_there_was_none() -> None:
    """A gang as wide as anything is a tenant, which can hold no more than the whole cluster."""
    p = replace(many(4, 101, 2), width=np.full(101, 10**9))
    same = replace(p, width=np.full(101, int(p.capacity.sum())))

    level = p.solved(MaxMinSolver(2, many=100)).level

    assert level == pytest.approx(same.solved(MaxMinSolver(2, many=100)).level, rel=1e-9)
    assert level == pytest.approx(oracle(same)[0], rel=1e-6)


def test_groups_that_differ_only_by_weight_are_distinguished() -> None:
    p = Problem(np.ones((2, 1)), np.array([1.0, 0.5]), np.array([9, 9]), np.array([1, 1]), np.array([9]))

    assert p.solved().shares.ravel() == pytest.approx([3.0, 6.0], abs=CLOSE)


def test_a_group_that_runs_nowhere_gets_nothing_and_does_not_lower_the_level() -> None:
    p = Problem(np.array([[1.0], [0.0]]), np.ones(2), np.array([1, 1]), np.array([1, 1]), np.array([1]))

    assert p.solved().shares.tolist() == [[1.0], [0.0]]


def test_without_any_rate_no_group_gets_anything() -> None:
    p = Problem(np.zeros((2, 1)), np.ones(2), np.array([1, 1]), np.array([1, 1]), np.array([1]))

    assert p.solved().shares.tolist() == [[0.0], [0.0]]


def test_groups_that_are_gone_leave_nothing_behind() -> None:
    """A solver that has solved for many other jobs gives a single job all it can use."""
    solver = MaxMinSolver(1)
    one = Problem(np.array([[1.0]]), np.ones(1), np.array([4]), np.array([1]), np.array([8]))
    for rate in (2.0, 3.0, 5.0):
        p = Problem(np.array([[1.0], [rate]]), np.ones(2), np.array([4, 7]), np.array([5, 5]), np.array([8]))
        p.solved(solver)

    assert one.solved(solver).shares.tolist() == [[pytest.approx(4.0)]]
    assert replace(one, capacity=np.array([3])).solved(solver).shares.tolist() == [[pytest.approx(3.0)]]
