"""Ticks and names of charts, whatever the numbers are."""

from __future__ import annotations

import math
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg

from fairlead.studies.report.axes import MANY, log_range, log_ticks, tick_text
from fairlead.studies.report.comparison_figures import _legend_below
from fairlead.studies.report.figure_files import new_figure
from fairlead.studies.report.labels import Area, place_labels


@given(low=st.floats(1e-6, 1e9), ratio=st.floats(1.02, 1e9))
def test_an_axis_has_three_to_a_dozen_ticks_inside_that_differ_in_words(low: float, ratio: float) -> None:
    high = low * ratio
    ticks = log_ticks(low, high)

    assert 3 <= len(ticks) <= MANY + 3
    assert all(low * (1 - 1e-6) <= tick <= high * (1 + 1e-6) for tick in ticks)
    assert len({tick_text(tick) for tick in ticks}) == len(ticks)


def test_ticks_are_round_numbers() -> None:
    assert log_ticks(9.4, 16.6) == [10, 11, 12, 13, 14, 15, 16]
    assert log_ticks(0.6, 30) == [1, 3, 10, 30]
    assert log_ticks(0.02, 500) == [0.1, 1, 10, 100]


@given(st.lists(st.floats(1e-6, 1e9), max_size=5))
def test_all_values_are_inside_the_axis_with_room_at_both_ends(values: list[float]) -> None:
    low, high = log_range(values)

    assert 0 < low < high
    assert all(low < value < high for value in values)


def test_a_legend_of_many_long_names_stays_inside_the_figure() -> None:
    figure = new_figure(1, 1, "")
    for k in range(24):
        figure.axes[0].plot([0, 1], [k, k], label=f"gavel-hierarchical-{k}")
    _legend_below(figure)
    figure.set_canvas(FigureCanvasAgg(figure))
    figure.draw_without_rendering()

    box = figure.legends[0].get_window_extent()

    assert box.x0 >= 0
    assert box.x1 <= figure.bbox.x1


def test_names_of_points_that_coincide_do_not_cover_each_other_and_stay_inside() -> None:
    area = Area(560, 385, 7.4, 16)
    names = [f"policy-{k}" for k in range(9)]
    at = [(0.92, 0.92)] * 9
    whiskers = [(x, x, y, y) for x, y in at]

    spots = place_labels(names, at, whiskers, area)

    centres = [(0.92 * 560 + spot.dx, 0.92 * 385 + spot.dy) for spot in spots]
    wide, high = 7.4 * len("policy-0"), 16.0
    assert all(wide / 2 <= x <= 560 - wide / 2 and high / 2 <= y <= 385 - high / 2 for x, y in centres)
    assert not [
        pair
        for pair in combinations(centres, 2)
        if abs(pair[0][0] - pair[1][0]) < wide - 1e-6 and abs(pair[0][1] - pair[1][1]) < high - 1e-6
    ]
    assert all(spot.far for spot in spots if math.hypot(spot.dx, spot.dy) > wide)
