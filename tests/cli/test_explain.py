"""`fairlead explain`: the documented example, other places to start from, and the table of reasons."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from in_process import Fairlead

from fairlead.model.outcomes import Reason
from serving import world

PAGE = (Path(__file__).parents[2] / "docs" / "questions.md").read_text(encoding="utf-8")


@pytest.fixture
def fairlead(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Fairlead:
    return Fairlead(monkeypatch, capsys)


@pytest.fixture
def journal(fairlead: Fairlead, tmp_path: Path) -> Path:
    """The run of the documented example."""
    (tmp_path / "jobs.csv").write_text(_block("csv"), encoding="utf-8")
    path = tmp_path / "run.jsonl"
    command = re.search(r"`fairlead (simulate [^`]*--journal run.jsonl)`", PAGE)
    assert command is not None
    words = [str(tmp_path / word) if word in ("jobs.csv", "run.jsonl") else word for word in command[1].split()]
    assert fairlead(*words)[0] == 0
    return path


def _block(kind: str) -> str:
    found = re.search(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    return found[1]


def test_the_documented_example_prints_what_the_page_shows(fairlead: Fairlead, journal: Path) -> None:
    code, out, err = fairlead("explain", "small", "--from", f"{journal}@10m")

    assert code == 0, err
    assert out == _block("text")


def test_the_page_has_every_reason_in_order() -> None:
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| [^|]+ \|$", PAGE, re.MULTILINE)
    assert rows == [reason.code for reason in Reason]


def test_json_has_every_field_and_remedies_can_be_left_out(fairlead: Fairlead, journal: Path) -> None:
    _, out, _ = fairlead("explain", "small", "--from", f"{journal}@10m", "--no-remedies", "-o", "json")
    answer = json.loads(out)

    assert (answer["code"], answer["remedies"], answer["expected_s"]) == ("Order", [], None)
    assert answer["holders"][0]["job"] == "big"
    _, text, _ = fairlead("explain", "small", "--from", f"{journal}@10m", "--no-remedies")
    assert text.splitlines()[-1] == "Not checked: remedies were not asked for."


def test_a_running_and_a_finished_job_are_explained(fairlead: Fairlead, journal: Path) -> None:
    _, running, _ = fairlead("explain", "big", "--from", f"{journal}@10m")
    assert "It has held 4 h100 for 10m 00s, its fastest type." in running
    assert "its owner allows h100" in running
    assert "finished" in fairlead("explain", "big", "--from", journal)[1].splitlines()[0]


def test_a_job_that_is_not_there_yet_is_an_error_with_a_suggestion(fairlead: Fairlead, journal: Path) -> None:
    code, _, err = fairlead("explain", "smal", "--from", f"{journal}@10m")
    assert code == 3
    assert 'there is no job "smal" at this time' in err
    assert "small" in err


def test_the_running_service_is_the_default_place(
    fairlead: Fairlead, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with world(tmp_path) as here:
        id_ = here.submit()
        monkeypatch.setenv("FAIRLEAD_URL", str(here.client.base_url))
        monkeypatch.setenv("FAIRLEAD_TOKEN", here.admin["Authorization"].removeprefix("Bearer "))
        assert "Submitted" in json.loads(fairlead("explain", id_, "-o", "json")[1])["code"]
        here.take()
        code, out, err = fairlead("explain", id_, "--no-remedies")

    assert code == 0, err
    assert out.splitlines()[:2] == [
        f"Job {id_} of tenant default: waiting, Undecided.",
        "The next decision will consider it.",
    ]


def test_a_run_of_single_tasks_says_why_nothing_was_simulated(fairlead: Fairlead, tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text(_block("csv"), encoding="utf-8")
    path = str(tmp_path / "run.jsonl")
    words = ("--cluster", "h100:4,a100:4", "--trace", str(tmp_path / "jobs.csv"), "--policy", "hare")
    assert fairlead("simulate", *words, "--journal", path)[0] == 0

    answers = [fairlead("explain", id_, "--from", f"{path}@2m")[1] for id_ in ("big", "small", "other")]

    assert any("which pass from job to job" in answer for answer in answers)
    assert all("Nothing that was tried" not in answer for answer in answers)
