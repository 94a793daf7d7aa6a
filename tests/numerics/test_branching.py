"""Whole-number programs by branching: the same optimum as HiGHS finds, and no answer where that takes too long."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.numerics.branching import branch
from fairlead.numerics.packing import counted_program
from fairlead.numerics.solve import Infeasible, LinearProgram, Optimal, solve


def small_round(seed: int, spare: int) -> LinearProgram:
    """Up to 14 gangs of widths 1 to 5 on two types, which must use all but `spare` GPUs."""
    random = np.random.default_rng(seed)
    d, Y = random.choice([1, 1, 2, 3, 5], int(random.integers(1, 15))), random.integers(1, 9, 2)
    jobs, types = np.nonzero(random.random((len(d), 2)) < 0.8)
    cost = random.normal(0.0, 1.0, len(jobs))
    return counted_program(jobs, types, cost, d, np.ones(len(d), dtype=np.int64), Y, int(Y.sum()) - spare)


@settings(max_examples=200)
@given(seed=st.integers(0, 100_000), spare=st.integers(0, 6))
def test_the_optimum_is_that_of_a_general_search_and_its_jobs_are_whole(seed: int, spare: int) -> None:
    program = small_round(seed, spare)

    found, known = branch(program, nodes=10_000), solve(program)

    assert type(found) is type(known)
    if isinstance(found, Optimal) and isinstance(known, Optimal):
        assert found.objective == pytest.approx(known.objective, abs=1e-6)
        assert np.abs(found.x - np.rint(found.x)).max(initial=0.0) < 1e-6


def test_a_search_that_takes_too_long_has_no_answer() -> None:
    """Two gangs of three and one of two on seven GPUs of one type: at first the relaxed numbers are not whole."""
    cost, d = np.array([-3.0, -2.9, -1.0]), np.array([3, 3, 2])
    program = counted_program(np.arange(3), np.zeros(3, np.int64), cost, d, np.ones(3, np.int64), np.array([7]), 0)

    assert branch(program, nodes=1) is None
    found = branch(program, nodes=10)
    assert isinstance(found, Optimal)
    assert found.objective == pytest.approx(-5.9)


def test_a_round_that_cannot_use_enough_gpus_is_infeasible() -> None:
    one = np.zeros(1, np.int64)
    program = counted_program(one, one, np.ones(1), np.array([2]), np.ones(1, np.int64), np.array([3]), 3)

    assert isinstance(branch(program, nodes=10), Infeasible)


def test_a_round_without_jobs_has_an_answer() -> None:
    none = np.zeros(0, np.int64)

    def outcome(need: int) -> object:
        program = counted_program(none, none, np.zeros(0), none, none, np.array([3]), need)
        return branch(program, nodes=10)

    assert isinstance(outcome(0), Optimal)
    assert isinstance(outcome(3), Infeasible)
