"""When the loop wakes up."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.rounds.loop import boundaries, next_boundary

NEVER = -math.inf


@pytest.mark.parametrize(
    ("due_s", "last_s", "wakes_s"),
    [
        (0.0, NEVER, 0.0),
        (1.0, NEVER, 360.0),
        (360.0, NEVER, 360.0),
        (360.0, 360.0, 720.0),  # once a round
        (100.0, 360.0, 720.0),
        (1000.0, 360.0, 1080.0),
        (math.inf, 360.0, math.inf),
    ],
)
def test_it_wakes_at_the_first_boundary_at_or_after_the_due_time_and_once_a_round(
    due_s: float, last_s: float, wakes_s: float
) -> None:
    assert next_boundary(due_s, last_s, 360.0) == wakes_s


@given(st.floats(0.01, 1e4), st.integers(1, 200))
def test_the_thousandth_round_begins_at_a_multiple_however_it_was_reached(round_s: float, rounds: int) -> None:
    time_s = 0.0
    for _ in range(rounds):
        time_s = next_boundary(time_s, time_s, round_s)

    assert time_s == rounds * round_s


@given(st.floats(0.0, 1e9), st.floats(0.01, 1e4))
def test_it_never_wakes_in_the_past(due_s: float, round_s: float) -> None:
    wakes_s = next_boundary(due_s, NEVER, round_s)

    assert due_s <= wakes_s <= due_s + round_s * (1 + 1e-6)


def test_boundaries_count_the_left_end_and_not_the_right() -> None:
    assert boundaries(0.0, 900.0, 360.0) == 3
    assert boundaries(360.0, 720.0, 360.0) == 1
    assert boundaries(361.0, 719.0, 360.0) == 0
