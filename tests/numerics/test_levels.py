"""The method for thousands of distinct jobs, compared with plain linear programs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.numerics.interior import Program, solve_division
from fairlead.numerics.levels import Gangs, raise_in_step, raise_level, raise_total
from fairlead.numerics.solve import LinearProgram, Optimal, columns_from_entries, solve


@dataclass(frozen=True)
class Problem:
    rate: FloatArray  # g,t
    width: IntArray  # g
    count: IntArray  # g
    capacity: IntArray  # t
    rise: FloatArray  # g  growth of the floor with the level

    @property
    def gangs(self) -> Gangs:
        return Gangs.of(self.rate, self.width, self.count, self.capacity)

    def speeds(self, shares: FloatArray) -> FloatArray:
        """g  fractions of full speed"""
        return np.asarray((self.rate * shares).sum(axis=1) / np.maximum(self.rate.max(axis=1), 1e-300) / self.width)


def minimum(cost: FloatArray, rows: FloatArray, low: FloatArray, high: FloatArray) -> float:
    row, column = np.nonzero(rows)
    start, index, value = columns_from_entries(row, column, rows[row, column], len(cost))
    n = len(cost)
    outcome = solve(LinearProgram(cost, np.zeros(n), np.full(n, np.inf), low, high, start, index, value))
    assert isinstance(outcome, Optimal)
    return outcome.objective


def oracle_rows(p: Problem) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Speed rows, gang rows and type rows over x_gt (GPUs of one job) and a level at the end."""
    groups, types = p.rate.shape
    speed, gang = np.zeros((groups, groups * types + 1)), np.zeros((groups, groups * types + 1))
    room = np.zeros((types, groups * types + 1))
    for g in range(groups):
        for t in range(types):
            top = max(float(p.rate[g].max()), 1e-300)
            speed[g, g * types + t] = p.rate[g, t] / top / p.width[g]
            gang[g, g * types + t] = 1.0
            room[t, g * types + t] = p.count[g]
    return speed, gang, room


def highest_level(p: Problem) -> float:
    speed, gang, room = oracle_rows(p)
    speed[:, -1] = -np.where(p.rate.max(axis=1) > 0, p.rise, 0.0)
    rows = np.vstack((speed, gang, room))
    low = np.concatenate((np.zeros(len(speed)), np.full(len(gang) + len(room), -np.inf)))
    high = np.concatenate((np.full(len(speed), np.inf), p.width, p.capacity))
    return -minimum(-np.eye(rows.shape[1])[-1], rows, low, high)


def largest_total(p: Problem, floor: FloatArray, value: FloatArray) -> float:
    speed, gang, room = oracle_rows(p)
    rows = np.vstack((speed, gang, room))
    low = np.concatenate((floor, np.full(len(gang) + len(room), -np.inf)))
    high = np.concatenate((np.full(len(speed), np.inf), p.width, p.capacity))
    return -minimum(-((p.count * value) @ speed), rows, low, high)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Few jobs with many ties, or many jobs without any."""
    groups, types = draw(st.integers(1, 6)), draw(st.integers(1, 4))
    rates = draw(st.sampled_from((st.sampled_from((0.0, 0.5, 1.0, 1.0, 2.0, 12.0)), st.floats(0.1, 10.0))))
    rate = np.array([[draw(rates) for _ in range(types)] for _ in range(groups)])
    rate[0, 0] = max(rate[0, 0], 1.0)
    return Problem(
        rate=rate,
        width=np.array([draw(st.sampled_from((1, 1, 2, 8))) for _ in range(groups)]),
        count=np.array([draw(st.integers(1, 6)) for _ in range(groups)]),
        capacity=np.array([draw(st.integers(1, 12)) for _ in range(types)]),
        rise=np.array([draw(st.sampled_from((0.01, 0.5, 1.0, 3.0, 70.0))) for _ in range(groups)]),
    )


@settings(max_examples=150)
@given(problems())
def test_the_level_and_then_the_total_are_as_high_as_plain_programs_find(p: Problem) -> None:
    gangs = p.gangs
    rise = p.rise[gangs.alive]
    raised = raise_in_step(gangs, rise)
    assert raised is not None

    value = np.arange(1.0, len(p.rise) + 1)
    part = raise_total(gangs, raised, value[gangs.alive])

    shares = gangs.shares(part)
    floor = np.zeros(len(p.rise))
    floor[gangs.alive] = raised.floor * (1 - 1e-7)
    assert raised.level == pytest.approx(highest_level(p), rel=1e-6)
    assert p.count * value @ p.speeds(shares) == pytest.approx(largest_total(p, floor, value), rel=1e-4)
    assert (p.speeds(shares)[gangs.alive] >= raised.floor * (1 - 1e-5) - 1e-8).all()


@settings(max_examples=100)
@given(problems())
def test_shares_keep_to_gangs_to_types_and_to_where_a_job_runs(p: Problem) -> None:
    raised = raise_in_step(p.gangs, p.rise[p.gangs.alive])
    assert raised is not None

    shares = p.gangs.shares(raised.part)

    assert (shares >= 0).all()
    assert (shares.sum(axis=1) <= p.width + 1e-8).all()
    assert (p.count @ shares <= p.capacity + 1e-7).all()
    assert not shares[p.rate <= 0].any()


ONE_TYPE = Problem(
    np.ones((5, 1)), np.array([1, 1, 8, 1, 1]), np.array([1, 1, 4, 1, 1]), np.array([1]), np.full(5, 0.01)
)


@settings(max_examples=60)
@given(problems(), st.floats(0.3, 3.0))
@example(ONE_TYPE, 3.0)  # its second step has floors close to nothing
def test_a_level_with_curved_floors_is_the_one_at_which_the_plain_program_just_fits(p: Problem, bend: float) -> None:
    """Floors are (rise x level)^bend, at most 1 at the highest level of the search."""
    gangs = p.gangs
    rise = p.rise[gangs.alive]

    def need(level: float) -> tuple[FloatArray, FloatArray]:
        return (rise * level) ** bend, bend * rise**bend * level ** (bend - 1)

    most = 1.0 / float(rise.max())
    raised = raise_level(gangs, need, most)
    assert raised is not None

    full = np.ones(len(p.rise))
    full[gangs.alive] = need(raised.level)[0]
    fits = highest_level(Problem(p.rate, p.width, p.count, p.capacity, full))
    assert fits >= 1 - 1e-6
    if raised.level < most * (1 - 1e-6):
        assert fits == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("types", [2, 3, 8])
def test_prices_prove_the_level_of_two_thousand_distinct_jobs(types: int) -> None:
    """Weak duality: at any prices, the GPUs for all floors of a level cost at least as much as the cluster, or the level is
    too low.

    As long as no gang is at its limit, a speed of k z costs each gang at least min_t p_t / r_t times that speed.
    """
    rng = np.random.default_rng(types)
    n = 2048
    rate = rng.uniform(0.1, 1.0, (types, n))
    rate /= rate.max(axis=0)
    gpus, capacity, rise = rng.choice([1.0, 2.0, 4.0], n), rng.uniform(50.0, 100.0, types), rng.uniform(0.5, 2.0, n)

    division = solve_division(
        Program(rate, gpus, capacity, np.zeros(n), rise, np.zeros(types), np.zeros_like(rate), 1.0)
    )

    assert division is not None
    cheapest = (division.price[:, None] / rate).min(axis=0)
    assert division.level == pytest.approx(division.price @ capacity / (cheapest @ (gpus * rise)), rel=1e-6)
    assert (rate * division.part).sum(axis=0) == pytest.approx(rise * division.level, rel=1e-6)
    assert (division.part @ gpus <= capacity * (1 + 1e-6)).all()


def test_floors_that_cannot_be_met_have_no_division() -> None:
    one = np.ones((1, 1))

    assert (
        solve_division(Program(one, np.ones(1), np.ones(1), np.full(1, 2.0), np.zeros(1), np.zeros(1), one, -1.0))
        is None
    )
