"""Programs of one choice per job, against the whole linear program in one solve."""

from __future__ import annotations

import numpy as np
import pytest

from fairlead.numerics.one_choice import SMALL, ChoiceProgram, Chosen, choose
from fairlead.numerics.solve import NO_LIMIT, Limit, Optimal, solve

TINY = 1e-6


def random_program(
    seed: int, jobs: int = 700, types: int = 6, *, decimals: int = 9, load: float = 3.0
) -> ChoiceProgram:
    """Gangs on types, with a second row for every type; `decimals` of 0 make nearly all choices equal."""
    random = np.random.default_rng(seed)
    runs = random.random((jobs, types)) < 0.9
    job, kind = np.nonzero(runs)
    width = random.choice([1, 2, 4, 8], jobs)[job].astype(np.float64)
    worth = random.lognormal(0.0, 2.0, jobs)[job] * random.uniform(0.5, 2.0, len(job)) * width
    high = np.repeat(width.sum() / types / load / types, types)
    return ChoiceProgram(
        job=job,
        cost=-np.round(worth, decimals),
        start=np.arange(0, 2 * len(job) + 1, 2),
        row=np.column_stack((kind, types + kind)).ravel(),
        amount=np.column_stack((width, np.ceil(width / 4))).ravel(),
        low=np.full(2 * types, -np.inf),
        high=np.concatenate((high, high / 2)),
    )


def assert_optimal(program: ChoiceProgram, chosen: Chosen | None) -> None:
    """The same objective as in one solve, a feasible x, and prices that prove it."""
    assert len(program.cost) > SMALL, "the program would be solved at once"
    whole = solve(program.linear())
    assert isinstance(whole, Optimal)
    assert chosen is not None
    scale = max(abs(whole.objective), 1.0)
    assert chosen.objective == pytest.approx(whole.objective, abs=TINY * scale)
    used = program.used(chosen.x)
    assert (used <= program.high + TINY * np.maximum(program.high, 1.0)).all()
    assert (used >= program.low - TINY * np.maximum(np.abs(program.low), 1.0)).all()
    assert (np.bincount(program.job, chosen.x) <= 1 + TINY).all()
    assert (chosen.x >= 0).all()
    alone = np.zeros(int(program.job.max()) + 1)
    np.minimum.at(alone, program.job, program.net(chosen.price))
    bound = np.where(chosen.price > 0, program.low, program.high)
    paid = chosen.price != 0
    assert float(bound[paid] @ chosen.price[paid] + alone.sum()) == pytest.approx(whole.objective, abs=TINY * scale)


@pytest.mark.parametrize("seed", range(12))
def test_the_optimum_is_that_of_the_whole_program(seed: int) -> None:
    program = random_program(seed, load=(0.2, 1.0, 3.0, 30.0)[seed % 4])
    assert_optimal(program, choose(program, NO_LIMIT))


@pytest.mark.parametrize("seed", range(4))
def test_many_equal_choices_do_not_matter(seed: int) -> None:
    program = random_program(seed, decimals=0)
    assert_optimal(program, choose(program, NO_LIMIT))


def test_a_common_bonus_per_unit_does_not_matter() -> None:
    """As in FFT, where every GPU in use has a bonus above all costs."""
    program = random_program(1)
    cost = -program.cost - 1e5 * program.amount[::2]
    bonus = ChoiceProgram(program.job, cost, program.start, program.row, program.amount, program.low, program.high)
    assert_optimal(bonus, choose(bonus, NO_LIMIT))


def test_a_row_may_demand_that_jobs_run_although_it_costs() -> None:
    program = random_program(2)
    low = program.low.copy()
    low[:3] = program.high[:3] / 2
    costly = ChoiceProgram(program.job, -program.cost, program.start, program.row, program.amount, low, program.high)
    assert_optimal(costly, choose(costly, NO_LIMIT))


def test_a_type_without_capacity_is_not_used() -> None:
    program = random_program(3)
    program.high[2] = 0.0
    chosen = choose(program, NO_LIMIT)
    assert_optimal(program, chosen)
    assert chosen is not None
    assert program.used(chosen.x)[2] <= TINY


def test_few_jobs_are_fractional() -> None:
    """A vertex: at most as many jobs are divided as there are shared rows."""
    program = random_program(4)
    chosen = choose(program, NO_LIMIT)
    assert chosen is not None
    divided = np.unique(program.job[(chosen.x > TINY) & (chosen.x < 1 - TINY)])
    assert 0 < len(divided) <= len(program.high)


def test_the_same_program_has_the_same_answer() -> None:
    one, two = choose(random_program(5), NO_LIMIT), choose(random_program(5), NO_LIMIT)
    assert one is not None
    assert two is not None
    assert np.array_equal(one.x, two.x)


def test_without_a_solution_or_within_a_small_limit_there_is_no_answer() -> None:
    program = random_program(6)
    low = program.low.copy()
    low[0] = 2 * program.high[0]
    beyond = ChoiceProgram(
        program.job,
        program.cost,
        program.start,
        program.row,
        program.amount,
        low,
        np.where(low > 0, np.inf, program.high),
    )
    beyond.low[0] = 1e9
    assert choose(beyond, NO_LIMIT) is None
    assert choose(program, Limit(iterations=1)) is None
