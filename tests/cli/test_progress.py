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
        return len(re.findall(r"(?m)^comparing: 4 of 9 done, .+ so far.*$", "".join(printed))) >= 2

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
        ([(0, 9, 0.0)], "0 of 9 done, 20s so far"),
        ([(0, 9, 0.0), (3, 9, 20.0)], "3 of 9 done, 20s so far, about 40s left"),
        ([(6, 9, 0.0), (8, 9, 20.0)], "8 of 9 done, 20s so far, about 10s left"),  # six were done before
        ([(0, None, 0.0), (8, None, 20.0)], "8 done, 20s so far"),  # the total is not known
    ],
)
def test_time_left_counts_only_what_was_done_since(reports: list[output.Reported], text: str) -> None:
    assert output.progress_text(reports, 20.0) == text


def test_time_left_counts_down_until_the_next_part_ends() -> None:
    reports = [(0, 5, 0.0), (4, 5, 20.0)]

    texts = [output.progress_text(reports, spent_s) for spent_s in (20.0, 22.0, 24.0, 60.0)]

    assert [text.partition("so far")[2] for text in texts] == [
        ", about 5s left",
        ", about 3s left",
        ", about 1s left",
        "",
    ]
