"""One round as a program in which GPUs have a price: compared with its bound and with all possibilities."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.model.arrays import IntArray
from fairlead.numerics import division
from fairlead.numerics.gangs import CLOSE, Effort, assign
from fairlead.numerics.solve import LinearProgram, Optimal, columns_from_entries, solve
from gang_rounds import Round, check_sound, random_round


def bound(case: Round) -> float:
    """The cost, without the bonus, of the linear program with the bonus, written independently."""
    jobs, types = np.nonzero(case.runs)
    cost, width = case.c[jobs, types], case.d[jobs].astype(np.float64)
    cells, many = np.arange(len(jobs)), len(case.d)
    start, index, value = columns_from_entries(
        row=np.concatenate((jobs, many + types)),
        column=np.concatenate((cells, cells)),
        value=np.concatenate((np.ones(len(cells)), width)),
        columns=len(cells),
    )
    program = LinearProgram(
        cost=cost - (1.0 + (np.abs(cost) / width).max()) * width,
        low=np.zeros(len(cells)),
        high=np.ones(len(cells)),
        row_low=np.full(many + len(case.Y), -np.inf),
        row_high=np.concatenate((np.ones(many), case.Y)),
        start=start,
        index=index,
        value=value,
    )
    outcome = solve(program)
    assert isinstance(outcome, Optimal)
    return float(cost @ outcome.x)


@pytest.mark.parametrize(
    ("gpus", "types", "jobs"), [(512, 4, 200), (512, 4, 500), (2048, 4, 1000), (2048, 8, 1000), (1000, 8, 4000)]
)
@pytest.mark.parametrize("seed", [1, 2])
def test_a_large_round_costs_at_most_half_a_percent_more_than_its_bound(
    gpus: int, types: int, jobs: int, seed: int
) -> None:
    """The cost is without the bonus, relative to the sum of |c| over all grants."""
    case = random_round(gpus, types, jobs, seed)

    type_of, how = decided(case)

    check_sound(case, type_of)
    ran = np.flatnonzero(type_of >= 0)
    granted = case.c[ran, type_of[ran]]
    assert how in ("rounded", "settled")
    assert granted.sum() - bound(case) <= 0.005 * np.abs(granted).sum()


def bonus(case: Round) -> float:
    """More than any GPU costs."""
    return float(1.0 + (np.abs(case.c) / case.d[:, None])[case.runs].max(initial=0.0))


def decided(case: Round, effort: Effort | None = None) -> tuple[IntArray, str]:
    return assign(*case, bonus(case), effort)


def worth(case: Round, type_of: IntArray) -> float:
    """The objective with its bonus."""
    return float(sum(case.c[j, i] - bonus(case) * case.d[j] for j, i in enumerate(type_of) if i >= 0))


def by_trying_all(case: Round) -> float:
    best = 0.0
    for types in product(*([-1, *np.flatnonzero(row).tolist()] for row in case.runs)):
        used = np.bincount([i for i in types if i >= 0], [d for i, d in zip(types, case.d, strict=True) if i >= 0], 2)
        if (used <= case.Y).all():
            best = min(best, worth(case, np.array(types)))
    return best


def small_round(seed: int) -> Round:
    case = random_round(8, 2, 6, seed)
    return case._replace(Y=np.array([5, 3]), d=np.minimum(case.d, 4))


@settings(max_examples=60)
@given(seed=st.integers(0, 10_000))
def test_a_small_exact_round_is_the_best_of_all(seed: int) -> None:
    case = small_round(seed)

    type_of, _ = decided(case, Effort(exact=True))

    check_sound(case, type_of)
    best = by_trying_all(case)
    # Even `exact` accepts a solution that is `CLOSE` to the bound, relative to the sum of |c| without the bonus.
    assert worth(case, type_of) <= best + CLOSE * np.abs(case.c).sum() + 1e-4 * abs(best)


@settings(max_examples=60)
@given(seed=st.integers(0, 10_000))
def test_enumerating_all_ways_to_divide_a_few_gpus_agrees_with_the_program(seed: int) -> None:
    case = random_round(36, 3, 30, seed)

    listed, _ = decided(case, Effort(exact=True))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(division, "TABLE", 0)
        solved, _ = decided(case, Effort(exact=True, nodes=10_000))

    check_sound(case, listed)
    check_sound(case, solved)
    granted = listed >= 0
    # The program may stop at half of `CLOSE`.
    close = CLOSE * np.abs(case.c[granted, listed[granted]]).sum()
    assert worth(case, listed) <= worth(case, solved) + 1e-4
    assert worth(case, solved) <= worth(case, listed) + close


@settings(max_examples=60)
@given(seed=st.integers(0, 10_000))
def test_a_small_rounded_round_is_sound_and_no_better_than_the_best(seed: int) -> None:
    case = small_round(seed)

    plain, _ = decided(case, Effort(settle=0))
    usual, _ = decided(case)

    check_sound(case, plain)
    check_sound(case, usual)
    best = by_trying_all(case)
    assert best - 1e-5 <= worth(case, usual) <= worth(case, plain) + 1e-5


def test_equal_widths_need_no_rounding() -> None:
    """The program is then a transportation problem, whose vertices are whole."""
    case = random_round(400, 4, 300, 3)
    case = case._replace(d=np.full(300, 4))

    type_of, how = decided(case)

    check_sound(case, type_of)
    assert how == "rounded"
    ran = np.flatnonzero(type_of >= 0)
    assert case.c[ran, type_of[ran]].sum() == pytest.approx(bound(case), abs=1e-3)


def test_a_solve_that_gives_up_falls_back_to_the_greedy_order() -> None:
    """Cost per GPU: 2 and 3 on the first type before 4 on the second."""
    case = Round(
        c=np.array([[3.0, 9.0], [4.0, 8.0], [9.0, 9.0]]),
        runs=np.ones((3, 2), dtype=np.bool_),
        d=np.array([1, 2, 1]),
        Y=np.array([3, 2]),
        held=np.full(3, -1),
    )

    type_of, how = decided(case, Effort(iterations=0))

    assert how == "greedy"
    assert type_of.tolist() == [0, 0, 1]


def test_the_same_round_is_decided_the_same_way_again() -> None:
    case = random_round(512, 4, 200, 1)

    assert np.array_equal(decided(case)[0], decided(case)[0])
