"""Parsing and formatting of durations."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.model.errors import InputError
from fairlead.model.units import format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90.0),
        (90, 90.0),
        ("0", 0.0),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        ("30s", 30.0),
        ("250ms", 0.25),
        ("5m", 300.0),
        ("1h30m", 5400.0),
        ("1h 30m", 5400.0),
        (" 2D ", 172_800.0),
        ("1w", 604_800.0),
        (".5h", 1800.0),
    ],
)
def test_seconds_and_parts_are_understood(text: str | float, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "h", "1x", "5 minutes", "1m30", "s30", "1,5h", "--", "1h-30m", "m5m"])
def test_other_text_is_refused_and_quoted(text: str) -> None:
    with pytest.raises(InputError, match="is not understood") as caught:
        parse_duration(text)
    assert f'"{text}"' in str(caught.value)


@pytest.mark.parametrize("text", ["-1", "nan", "inf", "-inf", "1e400", -0.5, float("nan")])
def test_negative_and_infinite_durations_are_refused(text: str | float) -> None:
    with pytest.raises(InputError, match="finite number that is not negative"):
        parse_duration(text)


@given(st.integers(0, 10**9))
def test_any_number_of_seconds_reads_back(seconds: int) -> None:
    assert parse_duration(f"{seconds}s") == parse_duration(str(seconds)) == seconds


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (float("inf"), "-"),
        (0.0, "0s"),
        (45.0, "45s"),
        (61.0, "1m 01s"),
        (13_920.0, "3h 52m"),
        (90_000.0, "1d 01h"),
    ],
)
def test_the_two_largest_units_are_shown(seconds: float | None, text: str) -> None:
    assert format_duration(seconds) == text
