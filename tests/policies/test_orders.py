"""The simple orders, LAS and equal shares: which jobs go first, and where."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from building import Scene, granted, job, run_checked, setup, start, stop
from fairlead.model.allocation import Grants
from fairlead.model.view import View
from fairlead.policies import ROUND_POLICIES
from fairlead.policies.equal_share import equal_share
from fairlead.policies.las import las
from fairlead.policies.orders import fifo, fifo_sticky, srtf
from fairlead.rounds.look import look

V_AND_K = "v100:1,k80:1"


def table(allocate: Callable[[View, None], tuple[Grants, None]], view: View) -> list[list[int]]:
    """GPUs by job and type."""
    return granted(view, allocate(view, None)[0])


def line(allocate: Callable[[View, None], tuple[Grants, None]], view: View) -> list[int]:
    """GPUs by job, on the only type."""
    return [gpus for (gpus,) in table(allocate, view)]


def test_fifo_gives_each_job_its_fastest_type_with_room() -> None:
    scene = Scene([job("a", model="fast"), job("b", model="fast"), job("c", model="fast")], V_AND_K)

    assert table(fifo, scene.view()) == [[1, 0], [0, 1], [0, 0]]


def test_fifo_passes_over_a_job_that_does_not_fit() -> None:
    assert line(fifo, Scene([job("a", 3), job("b", 2), job("c", 1)], "v100:4").view()) == [
        3,
        0,
        1,
    ]


def test_fifo_moves_a_job_up_when_a_faster_type_comes_free(tmp_path: Path) -> None:
    jobs = [job("a", samples=400.0, model="fast"), job("b", samples=10_000.0, model="fast")]

    _, checked = run_checked(setup(jobs, V_AND_K), tmp_path / "journal")

    assert checked.jobs["b"].end_s == 360.0 + (10_000.0 - 360.0) / 4.0


def test_fifo_sticky_stays_where_it_started(tmp_path: Path) -> None:
    jobs = [job("a", samples=400.0, model="fast"), job("b", samples=10_000.0, model="fast")]

    _, checked = run_checked(setup(jobs, V_AND_K, "fifo-sticky"), tmp_path / "journal")

    assert checked.jobs["b"].end_s == 10_000.0


def test_fifo_sticky_does_not_hand_out_what_is_held() -> None:
    scene = Scene([job("a"), job("b"), job("c")], V_AND_K, held={"c": ((0, 1),)})

    assert table(fifo_sticky, scene.view()) == [[0, 1], [0, 0], [1, 0]]


def test_srtf_starts_the_shortest_first() -> None:
    scene = Scene([job("a", samples=300.0), job("b", samples=100.0), job("c", samples=200.0)], "v100:2")

    assert line(srtf, scene.view()) == [0, 1, 1]


def test_srtf_counts_what_remains_on_the_fastest_type() -> None:
    """1,000 samples at 4 per second take less time than 300 at 1."""
    scene = Scene([job("a", samples=300.0), job("b", samples=1000.0, model="fast")], "v100:1")

    assert line(srtf, scene.view()) == [0, 1]


def test_srtf_counts_what_was_done() -> None:
    state = Scene([job("a", samples=300.0), job("b", samples=200.0)], "v100:1").state()
    start(state, "a", ((0, 1),), 0.0, rate=1.0)
    state.pass_time(150.0)

    view = look(state, ROUND_POLICIES["srtf"], 360.0)

    assert view.done is not None
    assert view.done.tolist() == [150.0, 0.0]
    assert line(srtf, view) == [1, 0]


def test_srtf_puts_jobs_of_unknown_length_last() -> None:
    scene = Scene([replace(job("a"), steps=None), job("b", samples=1e9)], "v100:1")

    assert line(srtf, scene.view()) == [0, 1]


def test_las_puts_the_least_served_queue_first() -> None:
    """a has had more than a GPU-hour."""
    state = Scene([job("a"), job("b")], "v100:1").state()
    start(state, "a", ((0, 1),), 0.0)
    stop(state, "a", 3600.0, 0.0)

    assert line(las, look(state, ROUND_POLICIES["las"], 360.0)) == [0, 1]


def test_las_goes_by_arrival_inside_a_queue() -> None:
    state = Scene([job("a"), job("b")], "v100:1").state()
    start(state, "a", ((0, 1),), 0.0)
    stop(state, "a", 3599.0, 0.0)

    assert line(las, look(state, ROUND_POLICIES["las"], 360.0)) == [1, 0]


def test_las_counts_gpus_times_time() -> None:
    """Four GPUs reach the second queue in a quarter of an hour."""
    answer = las(Scene([job("a", 4), job("b")], "v100:4").view(), None)[0].answer

    assert answer.holds_until_s == 900.0


def test_las_is_blind_to_what_a_job_gains() -> None:
    """`even` takes the V100, from which only `fast` would benefit."""
    scene = Scene([job("a", model="even"), job("b", model="fast")], "k80:1,v100:1")

    assert table(las, scene.view()) == [[0, 1], [1, 0]]


def test_las_takes_a_new_job_before_an_old_one(tmp_path: Path) -> None:
    jobs = [job("old", samples=20_000.0), job("new", samples=100.0, at=5000.0)]

    _, checked = run_checked(setup(jobs, "v100:1", "las"), tmp_path / "journal")

    assert checked.jobs["new"].first_start_s == 5040.0


def test_equal_share_gives_every_job_the_same_part_of_every_type() -> None:
    shares = equal_share(Scene([job("a"), job("b"), job("c"), job("d")], "v100:2,k80:1").view(), None)[0]

    assert shares.gpus == pytest.approx(np.tile([0.5, 0.25], (4, 1)))


def test_equal_share_follows_weights_up_to_the_gang() -> None:
    shares = equal_share(Scene([job("a", weight=1.0), job("b", 2, weight=3.0)], "v100:2").view(), None)[0]

    assert shares.gpus.ravel().tolist() == [0.5, 1.5]
