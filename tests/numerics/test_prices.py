"""The largest total above floors, computed from prices, compared with the plain program in HiGHS."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.model.arrays import FloatArray
from fairlead.numerics.levels import Gangs, raise_in_step, raise_in_step_then_total
from fairlead.numerics.prices import largest_total
from fairlead.numerics.solve import LinearProgram, Optimal, solve


@dataclass(frozen=True)
class Problem:
    rate: FloatArray  # t,g
    gpus: FloatArray  # g
    capacity: FloatArray  # t
    floor: FloatArray  # g
    value: FloatArray  # g

    def by_prices(self) -> FloatArray | None:
        return largest_total(self.rate, self.gpus, self.capacity, self.floor, self.value)

    def total(self, part: FloatArray) -> float:
        return float((self.gpus * self.value) @ (self.rate * part).sum(axis=0))

    def check_rows(self, part: FloatArray) -> None:
        assert (part >= 0).all()
        assert not part[self.rate <= 0].any()
        assert (part.sum(axis=0) <= 1 + 1e-8).all()
        assert (part @ self.gpus <= self.capacity * (1 + 1e-7)).all()
        assert ((self.rate * part).sum(axis=0) >= self.floor - 1e-8).all()


def plain_total(p: Problem) -> float | None:
    """The total of the program with a row for every floor, gang and type; None if the floors cannot be met."""
    types, groups = p.rate.shape
    kind, group = np.nonzero(p.rate > 0)
    cells, rate = len(kind), p.rate[kind, group]
    outcome = solve(
        LinearProgram(
            cost=-(p.gpus * p.value)[group] * rate,
            low=np.zeros(cells),
            high=np.full(cells, np.inf),
            row_low=np.concatenate((p.floor, np.full(groups + types, -np.inf))),
            row_high=np.concatenate((np.full(groups, np.inf), np.ones(groups), p.capacity)),
            start=np.arange(0, 3 * cells + 1, 3),
            index=np.column_stack((group, groups + group, 2 * groups + kind)).ravel(),
            value=np.column_stack((rate, np.ones(cells), p.gpus[group])).ravel(),
        )
    )
    return -outcome.objective if isinstance(outcome, Optimal) else None


def distinct_groups(groups: int, types: int, plenty: float, seed: int, nowhere: float = 0.0) -> Problem:
    """Random distinct groups. `plenty` is GPUs per gang; floors are two thirds of what all groups can have at once."""
    rng = np.random.default_rng(seed)
    rate = rng.uniform(0.1, 1.0, (types, groups)) * (rng.random((types, groups)) >= nowhere)
    rate[rng.integers(0, types, groups), np.arange(groups)] = 1.0
    gpus, value = rng.choice([1.0, 2.0, 4.0, 8.0], groups), rng.uniform(0.2, 2.0, groups)
    capacity = np.ceil(gpus.sum() * plenty / types * rng.uniform(0.7, 1.3, types))
    gangs = Gangs(np.ones(groups, np.bool_), rate, gpus, np.ones(groups), capacity)
    raised = raise_in_step(gangs, 1.0 / value)
    assert raised is not None
    return Problem(rate, gpus, capacity, raised.floor * (2 / 3), value)


@pytest.mark.parametrize("plenty", [0.1, 0.5, 1.0, 2.0])
@pytest.mark.parametrize(("groups", "types"), [(40, 2), (300, 1), (300, 3), (300, 6), (1000, 4)])
def test_the_total_is_as_large_as_a_plain_program_finds(groups: int, types: int, plenty: float) -> None:
    p = distinct_groups(groups, types, plenty, seed=types)

    part = p.by_prices()

    assert part is not None
    p.check_rows(part)
    assert p.total(part) == pytest.approx(plain_total(p), rel=1e-7)


@pytest.mark.parametrize(("plenty", "nowhere"), [(0.3, 0.0), (0.6, 0.3), (1.2, 0.5)])
def test_two_thousand_distinct_jobs_have_the_total_of_a_plain_program(plenty: float, nowhere: float) -> None:
    p = distinct_groups(2048, 3, plenty, seed=7, nowhere=nowhere)

    part = p.by_prices()

    assert part is not None
    p.check_rows(part)
    assert p.total(part) == pytest.approx(plain_total(p), rel=1e-7)


@st.composite
def tied_problems(draw: st.DrawFn) -> Problem:
    """Few jobs with many ties, types without GPUs, floors that may be out of reach."""
    groups, types = draw(st.integers(1, 6)), draw(st.integers(1, 4))
    rates = st.sampled_from((0.0, 0.25, 0.5, 0.5, 1.0))
    rate = np.array([[draw(rates) for _ in range(groups)] for _ in range(types)])
    capacity = np.array([draw(st.sampled_from((0.0, 1.0, 3.0, 12.0))) for _ in range(types)])
    rate[0], capacity[0] = 1.0, max(capacity[0], 1.0)
    rate[capacity <= 0] = 0.0
    gpus = np.array([draw(st.sampled_from((1.0, 1.0, 2.0, 8.0))) for _ in range(groups)])
    floor = np.array([draw(st.sampled_from((0.0, 0.1, 0.3, 0.9))) for _ in range(groups)])
    value = np.array([draw(st.sampled_from((0.01, 1.0, 1.0, 5.0))) for _ in range(groups)])
    return Problem(rate, gpus, capacity, floor, value)


@settings(max_examples=150)
@given(tied_problems())
def test_a_total_among_many_ties_is_the_largest(p: Problem) -> None:
    """With ties the method may prove nothing, but a result that it returns is right."""
    part = p.by_prices()

    if part is not None:
        p.check_rows(part)
        assert p.total(part) == pytest.approx(plain_total(p), rel=1e-6)


def test_a_program_without_an_interior_overflows_without_a_warning() -> None:
    """Warnings are errors in this test."""
    rate = np.array([[0.25, 0.33], [0.33, 0.5], [0.0, 1.0], [1.0, 0.25]])
    gpus, capacity, value = np.array([1.0, 4.0]), np.array([3.0, 1.0, 1.0, 8.0]), np.array([1.0, 0.5])
    gangs = Gangs(np.ones(2, np.bool_), rate, gpus, np.ones(2), capacity)

    both = raise_in_step_then_total(gangs, 1.0 / value, value)

    assert both is not None
    held = Problem(rate, gpus, capacity, both[0] / value * (1 - 1e-6), value)
    assert held.total(both[1]) == pytest.approx(plain_total(held), rel=1e-5)


def test_floors_that_cannot_be_met_have_no_total() -> None:
    one = Problem(np.ones((1, 2)), np.ones(2), np.ones(1), np.full(2, 0.6), np.ones(2))

    assert plain_total(one) is None
    assert one.by_prices() is None


@pytest.mark.parametrize("plenty", [0.2, 0.9, 3.0])
def test_the_combined_solve_gives_the_level_and_total_of_two_separate_solves(plenty: float) -> None:
    """With many GPUs the first job at full speed sets the level, with few the types do."""
    p = distinct_groups(500, 3, plenty, seed=3, nowhere=0.2)
    gangs = Gangs(np.ones(500, np.bool_), p.rate, p.gpus, np.ones(500), p.capacity)

    both, level = raise_in_step_then_total(gangs, 1.0 / p.value, p.value), raise_in_step(gangs, 1.0 / p.value)

    assert both is not None
    assert level is not None
    assert both[0] == pytest.approx(level.level, rel=1e-6)
    floor = level.floor * (1 - 1e-6)
    held = Problem(p.rate, p.gpus, p.capacity, floor, p.value)
    held.check_rows(both[1])
    assert p.total(both[1]) == pytest.approx(plain_total(held), rel=1e-5)
