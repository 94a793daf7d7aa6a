"""Pins, and moves that earn less than they cost."""

from __future__ import annotations

import numpy as np
import pytest

from building import Scene, job
from fairlead.placement.moves import drop_idle_moves, settle


def on_k80(restart_s: float, model: str = "fast") -> Scene:
    """One job on a K80; a V100, four times as fast for `fast`, is free."""
    return Scene([job("a", model=model)], "v100:1,k80:1", held={"a": ((1, 1),)}, restart_s=restart_s)


@pytest.mark.parametrize(("restart_s", "moves"), [(269.0, True), (270.0, False)])
def test_a_move_must_earn_its_cost_within_a_round(restart_s: float, moves: bool) -> None:
    """4 x (360 - r) samples there against 360 here: even at r = 270."""
    gpus = drop_idle_moves(on_k80(restart_s).view(), np.array([[1, 0]]))

    assert gpus.tolist() == ([[1, 0]] if moves else [[0, 1]])


def test_a_move_that_gains_nothing_is_dropped_even_if_it_is_free() -> None:
    assert drop_idle_moves(on_k80(0.0, "even").view(), np.array([[1, 0]])).tolist() == [[0, 1]]


def test_a_job_moves_for_nothing_where_another_is_granted_its_gpus() -> None:
    scene = Scene([job("a"), job("b")], "v100:1,k80:1", held={"a": ((1, 1),)})

    assert drop_idle_moves(scene.view(), np.array([[1, 0], [0, 1]])).tolist() == [[1, 0], [0, 1]]


def test_a_grant_that_mixes_types_is_not_taken_for_a_move() -> None:
    """It holds two V100 and is granted two more K80: half of the grant must not vanish."""
    scene = Scene([job("a", 2, widths=(2, 4), relaxed=True)], "k80:2,v100:2", held={"a": ((1, 2),)})

    assert drop_idle_moves(scene.view(), np.array([[2, 2]])).tolist() == [[2, 2]]


def test_pinned_jobs_keep_what_they_hold_and_the_last_in_line_gives_way() -> None:
    scene = Scene([job("a"), job("b"), job("c")], "v100:2", held={"c": ((0, 1),)})
    wanted = np.array([[1], [1], [0]])

    settled = settle(scene.view(), wanted, np.array([1, 0, 2]), np.array([False, False, True]))

    assert settled.tolist() == [[0], [1], [1]]


def test_without_pins_grants_are_left_as_they_are() -> None:
    wanted = np.array([[1], [0]])

    assert settle(Scene([job("a"), job("b")]).view(), wanted, np.arange(2), np.zeros(2, dtype=bool)) is wanted
