"""Progress without a terminal: plain lines on standard error, none for a quick command."""

from __future__ import annotations

import re

import pytest

from fairlead.cli import output
from waiting import wait_for


def test_a_long_run_prints_how_far_it_is(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "EVERY_S", 0.01)
    printed: list[str] = []

    def two_lines() -> bool:
        out, err = capsys.readouterr()
        assert out == ""
        printed.append(err)
        return len(re.findall(r"(?m)^comparing: 4 of 9 done, .+ so far, about .+ left$", "".join(printed))) >= 2

    with output.show_progress("comparing") as report:
        report(2, 9)
        report(4, 9)
        wait_for(two_lines, "two lines of progress")


def test_a_quick_run_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with output.progress("simulating", 3) as report:
        report(3)

    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("reports", "text"),
    [
        ([], "20s so far"),
        ([(0, 9)], "0 of 9 done, 20s so far"),
        ([(0, 9), (3, 9)], "3 of 9 done, 20s so far, about 40s left"),
        ([(6, 9), (8, 9)], "8 of 9 done, 20s so far, about 10s left"),  # six were done before
    ],
)
def test_time_left_counts_only_what_was_done_since(reports: list[tuple[int, int]], text: str) -> None:
    assert output.progress_text(reports, 20.0) == text
