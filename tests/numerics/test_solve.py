"""The typed interface of the solver: outcomes, limits, warm starts, changes to an open model."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from fairlead.model.arrays import FloatArray
from fairlead.model.errors import BrokenInvariantError
from fairlead.numerics.solve import (
    Basis,
    Infeasible,
    Limit,
    LinearProgram,
    Model,
    Optimal,
    SolverFailed,
    TimeLimit,
    columns_from_entries,
    solve,
)


def dense(
    cost: list[float],
    A: list[list[float]],
    row_high: list[float],
    *,
    high: float = np.inf,
    whole: bool = False,
) -> LinearProgram:
    """min cost.x s.t. A x <= row_high, 0 <= x <= high."""
    matrix = np.array(A, dtype=float).reshape(len(row_high), len(cost))
    row, column = np.nonzero(matrix)
    start, index, value = columns_from_entries(row, column, matrix[row, column], len(cost))
    return LinearProgram(
        cost=np.array(cost, dtype=float),
        low=np.zeros(len(cost)),
        high=np.full(len(cost), high),
        row_low=np.full(len(row_high), -np.inf),
        row_high=np.array(row_high, dtype=float),
        start=start,
        index=index,
        value=value,
        whole=np.ones(len(cost), dtype=bool) if whole else None,
    )


def knapsack(n: int, m: int, seed: int) -> LinearProgram:
    rng = np.random.default_rng(seed)
    A = rng.integers(1, 30, (m, n)).astype(float)
    return dense(list(-rng.integers(1, 40, n).astype(float)), A.tolist(), list(A.sum(axis=1) / 3), high=1.0, whole=True)


def optimal(outcome: object) -> Optimal:
    assert isinstance(outcome, Optimal), outcome
    return outcome


def objective(program: LinearProgram, x: FloatArray) -> float:
    return float(program.cost @ x)


def test_an_optimum_meets_its_dual() -> None:
    # max 3x + 5y, x <= 4, 2y <= 12, 3x + 2y <= 18: the textbook optimum (2, 6) with duals (0, 3/2, 1)
    program = dense([-3, -5], [[1, 0], [0, 2], [3, 2]], [4, 12, 18])
    optimum = optimal(solve(program))
    assert optimum.x == pytest.approx([2, 6])
    assert optimum.objective == pytest.approx(-36)
    assert optimum.row_dual == pytest.approx([0, -1.5, -1])
    assert optimum.row_dual @ program.row_high == pytest.approx(optimum.objective)


def test_a_contradiction_is_infeasible() -> None:
    program = dense([1], [[1], [-1]], [1, -2])
    assert solve(program) == Infeasible()


def test_an_unbounded_program_fails_with_its_reason() -> None:
    outcome = solve(dense([-1], [[-1]], [0]))
    assert isinstance(outcome, SolverFailed)
    assert "nbounded" in outcome.reason


def test_a_program_without_columns_is_decided_by_its_rows() -> None:
    assert optimal(solve(dense([], [[], []], [0, 1]))).objective == 0
    assert solve(dense([], [[]], [-1])) == Infeasible()


def test_a_program_without_rows_goes_to_its_bounds() -> None:
    assert optimal(solve(dense([-1, 1], [], [], high=3))).x == pytest.approx([3, 0])


def test_a_nan_is_refused_before_it_reaches_the_solver() -> None:
    program = dense([np.nan], [[1]], [1])
    with pytest.raises(BrokenInvariantError, match="cost"):
        solve(program)
    with pytest.raises(BrokenInvariantError, match="bounds"):
        solve(dense([1], [[1]], [np.nan]))
    with pytest.raises(BrokenInvariantError, match="coefficients"):
        solve(dense([1], [[np.inf]], [1]))


def test_counted_iterations_stop_a_continuous_program() -> None:
    program = knapsack(40, 30, seed=1)
    relaxed = replace(program, whole=None)
    outcome = solve(relaxed, Limit(iterations=1))
    assert isinstance(outcome, TimeLimit)
    assert optimal(solve(relaxed)).iterations > 1


def test_counted_nodes_stop_a_whole_number_program_with_a_bound() -> None:
    program = knapsack(40, 10, seed=1)
    best = optimal(solve(program)).objective
    outcome = solve(program, Limit(nodes=1))
    assert isinstance(outcome, TimeLimit)
    assert outcome.bound <= best + 1e-6
    assert outcome.x is not None
    assert np.array_equal(outcome.x, np.rint(outcome.x))
    assert outcome.objective >= best - 1e-6


def test_the_time_limit_applies_to_each_solve_of_an_open_model() -> None:
    model = Model(knapsack(40, 10, seed=1))
    assert isinstance(model.solve(Limit(seconds=0)), TimeLimit)
    assert isinstance(model.solve(Limit(seconds=600)), Optimal)
    assert isinstance(model.solve(), Optimal)


def test_whole_numbers_agree_with_trying_all() -> None:
    program = knapsack(8, 3, seed=2)
    A = np.zeros((3, 8))
    for column in range(8):
        entries = slice(program.start[column], program.start[column + 1])
        A[program.index[entries], column] = program.value[entries]
    best = min(
        objective(program, x)
        for x in map(np.array, itertools.product((0.0, 1.0), repeat=8))
        if np.all(A @ x <= program.row_high)
    )
    optimum = optimal(solve(program))
    assert optimum.objective == pytest.approx(best)
    assert set(optimum.x) <= {0.0, 1.0}


def test_a_solve_from_its_final_basis_needs_no_iterations() -> None:
    program = dense([-3, -5], [[1, 0], [0, 2], [3, 2]], [4, 12, 18])
    cold = optimal(solve(program, keep_basis=True))
    warm = optimal(solve(program, basis=cold.basis, keep_basis=True))
    assert cold.iterations > 0
    assert warm.iterations == 0
    assert warm.objective == cold.objective
    assert warm.basis == cold.basis


def test_an_open_model_follows_every_kind_of_change() -> None:
    model = Model(dense([-3, -5], [[1, 0], [0, 2], [3, 2]], [4, 12, 18]))
    assert optimal(model.solve()).objective == pytest.approx(-36)
    model.set_costs(np.array([0]), np.array([-30.0]))
    assert optimal(model.solve()).objective == pytest.approx(-135)  # (4, 3)
    model.set_bounds(np.array([0]), np.array([0.0]), np.array([1.0]))
    assert optimal(model.solve()).objective == pytest.approx(-60)  # (1, 6)
    model.set_row_bounds(np.array([1]), np.array([-np.inf]), np.array([4.0]))
    assert optimal(model.solve()).objective == pytest.approx(-40)  # (1, 2)
    model.set_coefficient(1, 1, 1.0)
    assert optimal(model.solve()).objective == pytest.approx(-50)  # (1, 4)
    model.add_rows(np.array([-np.inf]), np.array([3.0]), np.array([0, 2]), np.array([0, 1]), np.array([1.0, 1.0]))
    assert optimal(model.solve()).objective == pytest.approx(-40)  # (1, 2)
    model.add_columns(
        np.array([-100.0]), np.zeros(1), np.array([np.inf]), np.array([0, 1]), np.array([3]), np.array([2.0])
    )
    optimum = optimal(model.solve())
    assert optimum.objective == pytest.approx(-150)  # (0, 0, 1.5)
    assert len(optimum.x) == 3
    model.delete_rows(np.array([3]))
    model.set_bounds(np.array([2]), np.zeros(1), np.ones(1))
    assert optimal(model.solve()).objective == pytest.approx(-150)  # (1, 4, 1)


def test_presolve_does_not_change_the_answer() -> None:
    rng = np.random.default_rng(3)
    A = rng.uniform(0, 1, (120, 200))
    large = dense(list(-rng.uniform(0, 1, 200)), A.tolist(), [10.0] * 120)
    assert len(large.value) >= 20_000
    cold = optimal(solve(large, keep_basis=True))
    warm = optimal(solve(large, basis=cold.basis))
    assert warm.objective == pytest.approx(cold.objective, rel=1e-9)
    assert warm.iterations == 0


def test_among_many_optima_a_second_objective_chooses() -> None:
    model = Model(dense([-1, -1], [[1, 1]], [1]))  # any point of x + y = 1 is optimal
    assert model.keep_optima(optimal(model.solve()))
    for cost, x in (([1.0, 2.0], [1, 0]), ([2.0, 1.0], [0, 1])):
        model.set_costs(np.arange(2), np.array(cost))
        assert optimal(model.solve(primal=True)).x == pytest.approx(x)


def test_a_single_optimum_is_known_to_be_single() -> None:
    model = Model(dense([-3, -5], [[1, 0], [0, 2], [3, 2]], [4, 12, 18]))
    assert not model.keep_optima(optimal(model.solve()))


def test_a_basis_with_too_few_basic_variables_is_repaired() -> None:
    program = dense([-3, -5], [[1, 0], [0, 2], [3, 2]], [4, 12, 18])
    assert optimal(solve(program, basis=Basis(bytes(2), bytes(3)))).objective == pytest.approx(-36)
