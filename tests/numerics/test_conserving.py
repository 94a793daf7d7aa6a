"""FFT's row (7): a round uses as many GPUs as any round can, and costs the least of those that do."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.numerics import division
from fairlead.numerics.conserving import GAP, assign_conserving
from fairlead.numerics.packing import most_gpus
from fairlead.numerics.solve import LinearProgram, Optimal, columns_from_entries, solve
from gang_rounds import Round, check_sound, random_round

STAYING = 1e-5  # what the preference for the held types may add up to


def mixed_round(seed: int) -> Round:
    """12 GPUs or fewer of two types and nine jobs, whose widths do not divide the GPUs evenly."""
    random = np.random.default_rng(seed)
    case = random_round(12, 2, 9, seed)
    Y = np.array([(6, 6), (7, 5), (8, 4), (5, 3)][seed % 4])
    return case._replace(Y=Y, d=random.choice([1, 2, 3, 4, 5], 9), runs=random.random((9, 2)) < 0.8)


def best_of_all(case: Round) -> tuple[int, float]:
    """(GPUs, cost) of the round that uses the most GPUs and of those costs the least, by trying all."""
    best = (0, 0.0)

    def extend(j: int, room: tuple[int, ...], cost: float) -> None:
        nonlocal best
        if j == len(case.d):
            used = int(case.Y.sum()) - sum(room)
            best = min(best, (used, cost), key=lambda pair: (-pair[0], pair[1]))
            return
        extend(j + 1, room, cost)
        for i in np.flatnonzero(case.runs[j]).tolist():
            if room[i] >= case.d[j]:
                left = (*room[:i], room[i] - int(case.d[j]), *room[i + 1 :])
                extend(j + 1, left, cost + float(case.c[j, i]))

    extend(0, tuple(case.Y.tolist()), 0.0)
    return best


def used_and_cost(case: Round, type_of: np.ndarray) -> tuple[int, float]:
    ran = np.flatnonzero(type_of >= 0)
    return int(case.d[ran].sum()), float(case.c[ran, type_of[ran]].sum())


@settings(max_examples=100)
@given(seed=st.integers(0, 100_000), listed=st.booleans())
def test_no_round_uses_more_gpus_and_none_that_uses_as_many_is_cheaper(seed: int, listed: bool) -> None:
    """Both by enumeration and by the program, which decides larger rounds."""
    case = mixed_round(seed)
    with pytest.MonkeyPatch.context() as patch:
        if not listed:
            patch.setattr(division, "TABLE", 0)
        type_of, _ = assign_conserving(*case, gap=0.0)

    check_sound(case, type_of)
    gpus, cost = best_of_all(case)
    assert used_and_cost(case, type_of) == pytest.approx((gpus, cost), abs=STAYING)


def one_type(c: list[float], d: list[int], gpus: int) -> Round:
    many = len(d)
    return Round(np.array(c)[:, None], np.ones((many, 1), np.bool_), np.array(d), np.array([gpus]), np.full(many, -1))


def test_a_gpu_is_not_left_idle_however_much_dearer_the_jobs_that_use_it_are() -> None:
    """A bonus of 6 per GPU, more than any cost of a GPU, would prefer 0 - 3 x 6 to 10 + 10 - 4 x 6."""
    case = one_type([0.0, 10.0, 10.0], [3, 2, 2], gpus=4)

    type_of, how = assign_conserving(*case)

    assert type_of.tolist() == [-1, 0, 0]
    assert how == "optimal"


@pytest.mark.parametrize(
    ("gpus", "types", "jobs"), [(512, 4, 200), (512, 4, 500), (2048, 4, 1000), (2048, 8, 1000), (1000, 8, 4000)]
)
def test_a_large_round_uses_all_gpus_at_a_cost_within_the_gap_of_its_bound(gpus: int, types: int, jobs: int) -> None:
    """The bound is that of the linear program; the cheapest round is somewhere between the two."""
    case = random_round(gpus, types, jobs, seed=1)

    type_of, how = assign_conserving(*case)

    check_sound(case, type_of)
    used, cost = used_and_cost(case, type_of)
    ran = np.flatnonzero(type_of >= 0)
    assert used == min(int(case.Y.sum()), int(case.d.sum()))
    assert how in ("optimal", "close")
    assert cost - bound(case, used) <= 1.1 * GAP * np.abs(case.c[ran, type_of[ran]]).sum()


def bound(case: Round, K: int) -> float:
    """The linear program with (7) as a row, written independently."""
    jobs, types = np.nonzero(case.runs)
    cells, many, width = np.arange(len(jobs)), len(case.d), case.d[jobs].astype(np.float64)
    last = many + len(case.Y)
    start, index, value = columns_from_entries(
        row=np.concatenate((jobs, many + types, np.full(len(jobs), last))),
        column=np.concatenate((cells, cells, cells)),
        value=np.concatenate((np.ones(len(cells)), width, width)),
        columns=len(cells),
    )
    low, high = np.append(np.full(last, -np.inf), float(K)), np.concatenate((np.ones(many), case.Y, [np.inf]))
    program = LinearProgram(
        case.c[jobs, types], np.zeros(len(cells)), np.ones(len(cells)), low, high, start, index, value
    )
    outcome = solve(program)
    assert isinstance(outcome, Optimal)
    return outcome.objective


def test_a_linear_program_that_is_stopped_leaves_no_gpu_idle_either() -> None:
    for seed in range(30):
        case = mixed_round(seed)

        type_of, how = assign_conserving(*case, iterations=0)

        check_sound(case, type_of)
        assert how == "packed"
        assert used_and_cost(case, type_of)[0] == best_of_all(case)[0]


def test_jobs_that_fit_nowhere_and_rounds_without_jobs() -> None:
    assert assign_conserving(*one_type([1.0, 1.0], [5, 2], gpus=4))[0].tolist() == [-1, 0]
    assert assign_conserving(*one_type([], [], gpus=4))[0].tolist() == []
    assert assign_conserving(*one_type([1.0], [2], gpus=0))[0].tolist() == [-1]


def test_of_two_equal_choices_the_held_type_is_kept() -> None:
    case = Round(np.ones((2, 2)), np.ones((2, 2), np.bool_), np.array([1, 1]), np.array([1, 1]), np.array([1, 0]))

    assert assign_conserving(*case)[0].tolist() == [1, 0]


def test_the_same_round_is_decided_the_same_way_again() -> None:
    case = random_round(512, 4, 200, 1)

    assert np.array_equal(assign_conserving(*case)[0], assign_conserving(*case)[0])


# ---- K ---------------------------------------------------------------------------------------------------------------


@settings(max_examples=100)
@given(seed=st.integers(0, 100_000))
def test_k_is_the_most_that_can_be_packed(seed: int) -> None:
    case = mixed_round(seed)

    packing = most_gpus(case.runs, case.d, case.Y)

    kinds = np.arange(len(packing.count))
    width = np.array([case.d[packing.kind == k][0] for k in kinds])
    assert packing.gpus == best_of_all(case)[0] == int(width @ packing.count.sum(axis=1))
    assert (width @ packing.count <= case.Y).all()
    assert (packing.count.sum(axis=1) <= np.bincount(packing.kind)).all()
    assert not any(packing.count[k][~case.runs[packing.kind == k][0]].any() for k in kinds)


def test_the_widest_gang_stays_out_where_narrower_ones_fill_the_gpus() -> None:
    """4 + 3 = 7, and nothing fits next to the 5."""
    assert most_gpus(np.ones((3, 1), np.bool_), np.array([5, 4, 3]), np.array([7])).gpus == 7


def test_a_gpu_that_no_sum_of_widths_reaches_does_not_count() -> None:
    packing = most_gpus(np.ones((4, 2), np.bool_), np.array([4, 4, 4, 4]), np.array([6, 9]))

    assert packing.gpus == 12
    assert packing.reach.tolist() == [4, 8]
