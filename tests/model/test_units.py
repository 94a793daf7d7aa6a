"""Parsing and formatting of durations and sizes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.model.errors import InputError
from fairlead.model.units import (
    format_bytes,
    format_duration,
    format_number,
    parse_bytes,
    parse_duration,
    parse_memory,
)


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


@pytest.mark.parametrize(
    ("text", "size"),
    [("500000", 500_000), ("12 b", 12), ("100MiB", 100 << 20), (" 2 tib ", 2 << 40), ("1.5GB", 1_500_000_000)],
)
def test_sizes_are_understood_with_and_without_units(text: str, size: int) -> None:
    assert parse_bytes(text, "--max-log") == size


@pytest.mark.parametrize("text", ["", "MiB", "-1", "1e3", "5 kb5", "9" * 400])
def test_other_sizes_are_refused_with_the_name_of_the_option(text: str) -> None:
    with pytest.raises(InputError, match=r"--max-log .* is not understood"):
        parse_bytes(text, "--max-log")


@pytest.mark.parametrize(("text", "gib"), [(8, 8.0), ("0.5", 0.5), ("8GiB", 8.0), ("512 MiB", 0.5), ("1.5TiB", 1536.0)])
def test_memory_is_in_gib_unless_it_has_a_unit(text: str | float, gib: float) -> None:
    assert parse_memory(text) == gib


@pytest.mark.parametrize("text", ["", "8 apples", 0, "0MiB", "-1", "inf"])
def test_memory_that_is_none_is_refused(text: str | float) -> None:
    with pytest.raises(InputError, match=r"memory .* is not understood"):
        parse_memory(text)


@given(st.integers(0, 1023), st.sampled_from(["bytes", "KiB", "MiB", "GiB", "TiB"]))
def test_a_formatted_size_has_its_largest_unit(count: int, unit: str) -> None:
    size = count * 1024 ** ["bytes", "KiB", "MiB", "GiB", "TiB"].index(unit)
    assert format_bytes(size) == (f"{count} {unit}" if count and unit != "bytes" else f"{size} bytes")


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0.0, "0"), (0.01234, "0.0123"), (8.71e-5, "0.0000871"), (999.7, "1,000"), (45678.2, "45,678")],
)
def test_numbers_have_significant_digits_and_never_an_exponent(value: float | None, text: str) -> None:
    assert format_number(value) == text
