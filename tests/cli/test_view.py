"""`fairlead view`: the page of a finished run has the numbers of the run."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from in_process import Fairlead

from fairlead.studies.compare.journal_runs import read_run

ROWS = "".join(f"j{i},{('vision', '<b>R&D</b>')[i % 2]},resnet50,{i * 300},{1 + i % 2},{30000}\n" for i in range(10))
CLUSTER = "v100:2,k80:2x2"


@pytest.fixture
def fairlead(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Fairlead:
    monkeypatch.chdir(tmp_path)
    Path("jobs.csv").write_text("id,tenant,model,arrival_s,gpus,steps\n" + ROWS, encoding="utf-8")
    return Fairlead(monkeypatch, capsys)


def numbers(page: Path) -> dict[str, Any]:
    found = re.search(r'id="numbers">(.*?)</script>', page.read_text(encoding="utf-8"))
    assert found is not None
    document: dict[str, Any] = json.loads(found[1])
    return document


@pytest.mark.parametrize("policy", ["oef-coop", "hare"])
def test_the_page_of_a_journal_has_the_numbers_of_its_run(fairlead: Fairlead, policy: str) -> None:
    summary = fairlead.summary(
        "--cluster", CLUSTER, "--trace", "jobs.csv", "--policy", policy, "--journal", "run.jsonl"
    )

    code, out, err = fairlead("view", "run.jsonl")

    assert (code, out) == (0, "report: run.html\n"), err
    shown = numbers(Path("run.html"))["runs"][0]["summary"]
    for name in ("jobs_finished", "makespan_s", "jct_s", "ftf", "gpu_utilisation", "tenants"):
        assert shown[name] == summary[name], name
    text = Path("run.html").read_text(encoding="utf-8")
    assert text.count('<th scope="row">j') == 10
    assert "<b>R&D" not in text
    assert "NaN" not in text.partition('<script type="application/json"')[0]


def test_the_lines_of_jobs_are_those_of_the_summary(fairlead: Fairlead) -> None:
    summary = fairlead.summary("--cluster", CLUSTER, "--trace", "jobs.csv", "--policy", "las", "--journal", "run.jsonl")

    run = read_run(Path("run.jsonl"))

    jct_s = [line.jct_s for line in run.jobs if line.jct_s is not None]
    ftf = [line.ftf for line in run.jobs if line.ftf is not None]
    assert sum(jct_s) / len(jct_s) == pytest.approx(summary["jct_s"]["mean"])
    assert max(ftf) == pytest.approx(summary["ftf"]["max"])
    assert run.jobs[0].arrived_s == 0.0
    (compared,) = run.comparison.answer.runs
    assert {one.promise for one in compared.promises} != set()


def test_a_run_in_which_nothing_has_finished_has_a_page(fairlead: Fairlead) -> None:
    fairlead.summary("--cluster", CLUSTER, "--trace", "jobs.csv", "--policy", "fifo", "--journal", "run.jsonl")
    lines = Path("run.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    end = next(k for k, line in enumerate(lines) if '"finished"' in line)
    Path("part.jsonl").write_text("".join(lines[:end]), encoding="utf-8")

    code, out, err = fairlead("view", "part.jsonl", "--report", "page.html")

    assert (code, out) == (0, "report: page.html\n"), err
    assert "never finished" in Path("page.html").read_text(encoding="utf-8")


def test_what_is_not_a_whole_journal_is_refused(fairlead: Fairlead) -> None:
    fairlead.summary("--cluster", CLUSTER, "--trace", "jobs.csv", "--policy", "fifo", "--journal", "run.jsonl")
    fairlead.summary("--from", "run.jsonl@1000", "--policy", "las", "--journal", "later.jsonl")

    assert "begins in the middle of a run" in fairlead("view", "later.jsonl")[2]
    assert "not the journal of a run" in fairlead("view", "jobs.csv")[2]
    assert "there is no such file" in fairlead("view", "none.jsonl")[2]
