"""The page of the four papers, from a tiny run of every study."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fairlead.cli.main import app
from fairlead.cli.reproduce import print_study
from fairlead.studies import reproduce_fft, reproduce_hare, reproduce_hops, reproduce_oef
from fairlead.studies.claims import Claim, Study, Table, page
from fairlead.studies.reproduce_all import STUDIES, Found, run_studies

TINY: dict[str, Any] = {
    "oef": reproduce_oef.Scale(mixes=2, lies=1, seeds=1, jobs=60),
    "hare": reproduce_hare.Scale(seeds=1, sweeps=False, intervals=10),
    "fft": reproduce_fft.Scale(jobs=16, seeds=1, large_jobs=0),
    "hops": reproduce_hops.Scale(small_seeds=1, large_seeds=1, large_jobs=5, priorities=(), arrivals_per_h=()),
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Found], Path]:
    keep = tmp_path_factory.mktemp("results")
    patch = pytest.MonkeyPatch()
    small = replace(reproduce_hare.headlines()[0], jobs=8, rounds=(2, 5))
    patch.setattr(reproduce_hare, "headlines", lambda: [small])
    patch.setattr(reproduce_hare, "ROOM_GIB", (1.0,))
    patch.setattr(reproduce_hops, "workload", lambda seed, jobs, rate, w=reproduce_hops.workload: w(seed, 5, rate))
    try:
        return run_studies(TINY, 1, lambda *_: None, keep), keep
    finally:
        patch.undo()


def test_the_page_holds_every_claim_with_the_paper_s_number_and_ours(found: tuple[list[Found], Path]) -> None:
    studies = [one.study for one in found[0]]

    lines = page(studies, "fairlead reproduce all").splitlines()

    assert [study.name for study in studies] == list(STUDIES)
    for study in studies:
        assert any(claim.paper for table in study.tables for claim in table.claims)
        for table in study.tables:
            assert f"`{study.command}`, {table.seeds}." in lines
            for claim in table.claims:
                paper = [claim.paper or "-"] if table.has_paper else []
                assert f"| {' | '.join([claim.claim, *paper, *claim.ours])} |" in lines
                assert all(cell and "nan" not in cell for cell in claim.ours)


def test_kept_results_are_not_repeated_and_give_the_same_page(found: tuple[list[Found], Path]) -> None:
    told: list[tuple[object, ...]] = []

    again = run_studies(TINY, 1, lambda *said: told.append(said), found[1])

    assert told == []
    assert page([one.study for one in again], "x") == page([one.study for one in found[0]], "x")


def test_results_of_another_scale_are_not_taken(found: tuple[list[Found], Path], tmp_path: Path) -> None:
    kept = json.loads((found[1] / "fft.json").read_text())
    kept["scale"]["seeds"] = 7
    (tmp_path / "fft.json").write_text(json.dumps(kept))
    told: list[tuple[object, ...]] = []

    run_studies({"fft": TINY["fft"]}, 1, lambda *said: told.append(said), tmp_path)

    assert [said[2] for said in told] == [1, 2, 3, 4]


def test_no_word_of_a_table_breaks_at_80_columns(
    found: tuple[list[Found], Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for one in found[0]:
        print_study(one.study)
        text = capsys.readouterr().out
        words = set(text.split())
        assert max(len(line) for line in text.splitlines()) <= 80
        for table in one.study.tables:
            assert {word for row in table.rows for cell in row for word in cell.split()} <= words


def test_the_command_writes_the_page_and_one_study_still_gives_json(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tiny = TINY["oef"]
    monkeypatch.setattr(reproduce_oef, "QUICK", tiny)
    for name in ("hare", "fft", "hops"):
        monkeypatch.delitem(STUDIES, name)
    out = tmp_path / "page.md"

    written = CliRunner().invoke(app, ["reproduce", "all", "--quick", "--out", str(out), "--jobs", "1"])
    told = CliRunner().invoke(app, ["reproduce", "oef", "--quick", "-o", "json"])

    assert written.exit_code == 0, written.output
    assert "reproduce oef: 4 of 4 parts done" in written.stderr
    assert written.stdout == ""
    assert "Written by `fairlead reproduce all --quick`." in out.read_text()
    said = json.loads(told.stdout)
    assert said["scale"] == asdict(tiny)
    assert said["claims"][0]["claims"][0]["ours"]
    assert "dynamic run" in said["parts"]


def test_a_sentence_stands_below_the_table_of_its_claim() -> None:
    table = Table("t", "seed 0", ("ours",), (Claim("a | b", "2x", ("1x",), "half as many."), Claim("c", "", ("3",))))
    text = page([Study("oef", "P", True, "w", "r", (table,), ("what the full run gave",))], "c")

    assert "| a \\| b | 2x | 1x |\n| c | - | 3 |" in text
    assert "- *a | b:* half as many." in text
    assert "not from the quick one" in text
