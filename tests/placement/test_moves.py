"""Pins, and moves that gain less than they cost."""

from __future__ import annotations

import numpy as np
import pytest

from building import Scene, granted, grants, job
from fairlead.placement.moves import drop_idle_moves, fill_gaps, settle, settle_spots


def on_k80(restart_s: float, model: str = "fast") -> Scene:
    """One job on a K80; a V100, four times as fast for `fast`, is free."""
    return Scene([job("a", model=model)], "v100:1,k80:1", held={"a": ((1, 1),)}, restart_s=restart_s)


def without_idle_moves(scene: Scene, wanted: list[list[int]]) -> list[list[int]]:
    view = scene.view()
    return granted(view, drop_idle_moves(view, grants(wanted)))


@pytest.mark.parametrize(("restart_s", "moves"), [(179.0, True), (180.0, False)])
def test_a_move_must_pay_off_while_the_job_is_certain_to_stay(restart_s: float, moves: bool) -> None:
    """2 x (360 - r) samples on the V100 against 360 on the P100: even at r = 180."""
    scene = Scene([job("a", model="fast")], "v100:1,p100:1", held={"a": ((1, 1),)}, restart_s=restart_s)
    assert without_idle_moves(scene, [[1, 0]]) == ([[1, 0]] if moves else [[0, 1]])


def test_a_restart_longer_than_a_round_does_not_keep_a_job_from_gpus_four_times_as_fast() -> None:
    """It is left alone for two restarts, in which it processes 4 r samples there against 2 r here."""
    assert without_idle_moves(on_k80(1000.0), [[1, 0]]) == [[1, 0]]


def test_a_move_that_gains_nothing_is_dropped_even_if_it_is_free() -> None:
    assert without_idle_moves(on_k80(0.0, "even"), [[1, 0]]) == [[0, 1]]


def test_a_job_moves_for_nothing_where_another_is_granted_its_gpus() -> None:
    scene = Scene([job("a"), job("b")], "v100:1,k80:1", held={"a": ((1, 1),)})

    assert without_idle_moves(scene, [[1, 0], [0, 1]]) == [[1, 0], [0, 1]]


def test_a_grant_that_mixes_types_is_not_treated_as_a_move() -> None:
    """It holds two V100 and is granted two more K80: half of the grant must not vanish."""
    scene = Scene([job("a", 2, widths=(2, 4), relaxed=True)], "k80:2,v100:2", held={"a": ((1, 2),)})

    assert without_idle_moves(scene, [[2, 2]]) == [[2, 2]]


def test_pinned_jobs_keep_what_they_hold_and_the_last_entry_is_dropped() -> None:
    scene = Scene([job("a"), job("b"), job("c")], "v100:2", held={"c": ((0, 1),)})
    view = scene.view()

    settled = settle(view, grants([[1], [1], [0]], order=[1, 0, 2]), np.array([False, False, True]))

    assert granted(view, settled) == [[0], [1], [1]]


def test_without_pins_grants_are_left_as_they_are() -> None:
    wanted = grants([[1], [0]])

    assert settle(Scene([job("a"), job("b")]).view(), wanted, np.zeros(2, dtype=bool)) is wanted


def test_a_job_that_can_neither_move_nor_stay_returns_its_gpus() -> None:
    """`a` wants the node of `b`, which is pinned, and `c` gets the node on which `a` is."""
    scene = Scene([job("a"), job("b"), job("c")], "v100:2x1", held={"a": ((0, 1),), "b": ((1, 1),)})

    changed = settle_spots(scene.view(), (((1, 1),), ((1, 1),), ((0, 1),)), np.array([False, True, False]))

    assert changed == {0: (), 2: ((0, 1),)}


def test_gpus_that_a_dropped_move_leaves_go_to_a_job_that_runs_before_one_that_waits() -> None:
    """`c` runs on the V100 that `a` was wanted on and stays there; `b`, which arrived earlier, waits."""
    scene = Scene([job("a"), job("b"), job("c")], "v100:1,k80:1", held={"a": ((1, 1),), "c": ((0, 1),)})
    view = scene.view()

    more = fill_gaps(view, grants([[1, 0], [0, 0], [0, 0]]), grants([[0, 1], [0, 0], [0, 0]]))

    assert granted(view, more) == [[0, 0], [0, 0], [1, 0]]


def test_gpus_that_a_dropped_move_leaves_go_to_a_job_that_was_wanted_before_one_that_was_not() -> None:
    """`a` stays on the K80 on which `c` was wanted, so `c` gets the V100, although `b` arrived earlier."""
    view = Scene([job("a"), job("b"), job("c")], "v100:1,k80:1", held={"a": ((1, 1),)}).view()

    more = fill_gaps(view, grants([[1, 0], [0, 0], [0, 1]]), grants([[0, 1], [0, 0], [0, 0]]))

    assert granted(view, more) == [[0, 0], [0, 0], [1, 0]]
