"""The page of the four papers, from a tiny run of every study."""

from __future__ import annotations

import ast
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import fairlead
from fairlead.cli.main import app
from fairlead.cli.reproduce import print_study
from fairlead.model.errors import FairleadError, InputError
from fairlead.studies.papers.claim_tables import Claim, Study, Table
from fairlead.studies.papers.costs import COSTS
from fairlead.studies.papers.fft import experiment as fft
from fairlead.studies.papers.hare import experiment as hare
from fairlead.studies.papers.hops import experiment as hops
from fairlead.studies.papers.hops import jobs as hops_jobs
from fairlead.studies.papers.oef import experiment as oef
from fairlead.studies.papers.reproduction_page import page, section
from fairlead.studies.papers.results import NAMES, StudyResults, find_results, measures, study_digest
from fairlead.studies.papers.run_all import (
    STUDIES,
    StudyProgress,
    costs_of,
    label,
    parts_of,
    run_studies,
    scale_of,
    study_of,
)
from fairlead.studies.papers.verdicts import Verdict, VerdictWord
from fairlead.studies.runs.store import Store
from waiting import PATIENCE_S, wait_for

DOCS = Path(__file__).parents[2] / "docs"
JUDGED = ("oef", "hare", "fft", "hops")  # studies whose every line with a paper's number has a verdict
TINY: dict[str, Any] = {
    "oef": oef.OefScale(mixes=2, lies=1, seeds=1, jobs=60),
    "hare": hare.HareScale(seeds=1, sweeps=False, intervals=10),
    "fft": fft.FftScale(jobs=16, seeds=1, large_jobs=0),
    "hops": hops.HopsScale(small_seeds=1, large_seeds=1, large_jobs=5, priorities=(), arrivals_per_h=()),
}


def quiet(_: StudyProgress) -> None:
    pass


def store_in(folder: Path) -> Store:
    return Store(folder, "--results")


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[list[StudyResults], Path]]:
    keep = tmp_path_factory.mktemp("results")
    patch = pytest.MonkeyPatch()
    small = replace(hare.headlines()[0], jobs=8, rounds=(2, 5))
    patch.setattr(hare, "headlines", lambda: [small])
    patch.setattr(hare, "ROOM_GIB", (1.0,))
    patch.setattr(hops_jobs, "workload", lambda seed, jobs, rate, mix, w=hops_jobs.workload: w(seed, 5, rate, mix))
    try:
        yield run_studies(TINY, 1, quiet, store_in(keep)), keep
    finally:
        patch.undo()


@pytest.fixture
def tiny_oef(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The command has only one study, which is small."""
    monkeypatch.setattr(oef, "QUICK", TINY["oef"])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("hare", "fft", "hops"):
        monkeypatch.delitem(STUDIES, name)
    return TINY["oef"]


# ---- the page ------------------------------------------------------------------------------------------------------


def test_the_page_holds_every_claim_with_the_paper_s_number_ours_and_a_verdict(
    measured: tuple[list[StudyResults], Path],
) -> None:
    studies = [study_of(one) for one in measured[0]]

    lines = page(studies, "fairlead reproduce all").splitlines()

    assert [study.name for study in studies] == list(STUDIES)
    for study in studies:
        assert any(claim.paper for table in study.tables for claim in table.claims)
        for table in study.tables:
            assert f"`{study.command}`, {table.seeds}." in lines
            assert "seed" in table.seeds
            for claim, row in zip(table.claims, table.rows, strict=True):
                assert f"| {' | '.join(row)} |" in lines
                assert all(cell and "nan" not in cell for cell in row[1:])
                if study.name in JUDGED:
                    assert bool(claim.verdict) == bool(claim.paper), claim.claim


def test_every_number_of_ours_shows_its_spread(measured: tuple[list[StudyResults], Path]) -> None:
    """A number is the mean and (smallest..largest), a count of cases, or a dash."""
    cells = [
        cell for one in measured[0] for table in study_of(one).tables for claim in table.claims for cell in claim.ours
    ]

    assert cells
    for cell in cells:
        assert cell == "-" or ".." in cell or " of " in cell, cell


def test_a_reason_is_below_the_table_of_its_claim() -> None:
    table = Table(
        "t",
        "seed 0",
        ("ours",),
        (Claim("a | b", "2x", ("1x",), "half as many.", Verdict(VerdictWord.MISSED)), Claim("c", "", ("3",))),
    )
    text = page([Study("oef", "P", True, "w", "r", (table,), ("what the full run gave",))], "c")

    assert "| a \\| b | 2x | 1x | missed |\n| c | - | 3 | - |" in text
    assert "- *a | b:* half as many." in text
    assert "**1 claims:** missed 1. Missed: a | b." in text
    assert "not from the quick run" in text


def test_the_page_in_the_documents_is_what_the_kept_results_give() -> None:
    """Anyone who changes a claim or a sentence must generate the page again:

    `fairlead reproduce all --results docs/reproduction --accept-older --out docs/reproduction.md`.
    """
    store = store_in(DOCS / "reproduction")
    kept = [find_results(store, name, scale_of(name, False), "full", older=True)[0] for name in NAMES]
    there = [one for one in kept if one.parts]
    text = (DOCS / "reproduction.md").read_text(encoding="utf-8")

    assert {one.name for one in there} >= set(JUDGED)
    for one in there:
        assert section(study_of(one)) in text, f"docs/reproduction.md is not what {one.name}-full.json gives"
    if len(there) == len(NAMES):
        assert text == page([study_of(one) for one in there], "fairlead reproduce all")


def test_no_word_of_a_table_breaks_at_80_columns(
    measured: tuple[list[StudyResults], Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for one in measured[0]:
        study = study_of(one)
        print_study(study)
        text = capsys.readouterr().out
        words = set(text.split())
        assert max(len(line) for line in text.splitlines()) <= 80
        for table in study.tables:
            assert {word for row in table.rows for cell in row for word in cell.split()} <= words


# ---- results that are kept -----------------------------------------------------------------------------------------


def test_kept_results_are_not_repeated_and_give_the_same_page(measured: tuple[list[StudyResults], Path]) -> None:
    progress: list[StudyProgress] = []

    again = run_studies(TINY, 1, progress.append, store_in(measured[1]))

    assert progress == []
    assert page([study_of(one) for one in again], "x") == page([study_of(one) for one in measured[0]], "x")


def test_results_of_two_scales_are_stored_next_to_each_other(measured: tuple[list[StudyResults], Path]) -> None:
    other = replace(TINY["fft"], seeds=7)

    assert not find_results(store_in(measured[1]), "fft", other, label("fft", other))[0].parts
    assert label("fft", fft.FULL) == "full"
    assert len({label("fft", scale) for scale in (other, TINY["fft"], fft.FULL, fft.QUICK)}) == 4


def change(path: Path, how: Callable[[dict[str, Any]], None]) -> None:
    read = json.loads(path.read_text())
    how(read)
    path.write_text(json.dumps(read))


@pytest.mark.parametrize(
    ("what", "message"),
    [
        (lambda read: read["scale"].update(seeds=7), "another scale"),
        (lambda read: read.update(code="abc"), "measured by other code"),
        (lambda read: read.update(fairlead="reproduction/0"), "another version"),
    ],
    ids=["scale", "code", "kind"],
)
def test_results_of_something_else_are_not_used_and_that_is_reported(
    measured: tuple[list[StudyResults], Path], tmp_path: Path, what: Callable[[dict[str, Any]], None], message: str
) -> None:
    name = f"oef-{label('oef', TINY['oef'])}.json"
    (tmp_path / name).write_text((measured[1] / name).read_text())
    change(tmp_path / name, what)
    progress: list[StudyProgress] = []
    remarks: list[str] = []

    run_studies({"oef": TINY["oef"]}, 1, progress.append, store_in(tmp_path), remarks.append)

    assert [one.done for one in progress] == [1, 2, 3, 4, 5, 6]
    assert len(remarks) == 1
    assert message in remarks[0]


def test_results_of_other_code_are_used_on_request(measured: tuple[list[StudyResults], Path], tmp_path: Path) -> None:
    name = f"oef-{label('oef', TINY['oef'])}.json"
    (tmp_path / name).write_text((measured[1] / name).read_text())
    change(tmp_path / name, lambda read: read.update(code="abcdef", version="0.0.7"))
    progress: list[StudyProgress] = []
    remarks: list[str] = []

    (one,) = run_studies({"oef": TINY["oef"]}, 1, progress.append, store_in(tmp_path), remarks.append, older=True)

    assert progress == []
    assert "used anyway" in remarks[0]
    assert "Measured by Fairlead 0.0.7, sources abcdef" in section(study_of(one))


def test_results_of_another_scale_keep_it_when_they_are_used_on_request(
    measured: tuple[list[StudyResults], Path], tmp_path: Path
) -> None:
    """A part that is missing is measured at the scale of the others."""
    name = f"oef-{label('oef', TINY['oef'])}.json"
    (tmp_path / "oef-full.json").write_text((measured[1] / name).read_text())
    change(tmp_path / "oef-full.json", lambda read: read["parts"].pop("dynamic run with one liar"))
    progress: list[StudyProgress] = []
    remarks: list[str] = []

    (one,) = run_studies({"oef": oef.FULL}, 1, progress.append, store_in(tmp_path), remarks.append, older=True)

    assert one.scale == TINY["oef"]
    assert [now.part for now in progress] == ["dynamic run with one liar"]
    assert "another scale" in remarks[0]
    whole = next(other for other in measured[0] if other.name == "oef")
    assert one.parts["dynamic run with one liar"] == whole.parts["dynamic run with one liar"]


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / f"oef-{label('oef', TINY['oef'])}.json"
    path.write_text('{"fairlead": "reproduction/1"}')

    with pytest.raises(InputError, match=r"does not hold a study's results.*remove it"):
        run_studies({"oef": TINY["oef"]}, 1, quiet, store_in(tmp_path))


def test_parts_that_are_done_are_kept_when_a_study_stops_in_the_middle(
    measured: tuple[list[StudyResults], Path], tmp_path: Path
) -> None:
    def stop(now: StudyProgress) -> None:
        if now.done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_studies({"oef": TINY["oef"]}, 1, stop, store_in(tmp_path))
    progress: list[StudyProgress] = []
    (one,) = run_studies({"oef": TINY["oef"]}, 1, progress.append, store_in(tmp_path))

    assert [now.done for now in progress] == [3, 4, 5, 6]
    assert progress[0].left_s > 0
    assert progress[-1].left_s == 0
    whole = next(other for other in measured[0] if other.name == "oef")
    assert list(one.parts) == list(whole.parts)
    assert one.parts["broken promises, RTX 3070/3080/3090"] == whole.parts["broken promises, RTX 3070/3080/3090"]


def test_in_processes_the_numbers_are_the_same_and_a_failure_is_alone(
    measured: tuple[list[StudyResults], Path], tmp_path: Path
) -> None:
    """There is nothing to tell of no seeds."""
    with pytest.raises(FairleadError, match="reproduce fft failed: trace 1, all 4 GPUs wide: IndexError"):
        run_studies({"oef": TINY["oef"], "fft": replace(TINY["fft"], seeds=0)}, 2, quiet, store_in(tmp_path))

    one, _ = find_results(store_in(tmp_path), "oef", TINY["oef"], label("oef", TINY["oef"]))
    whole = next(other for other in measured[0] if other.name == "oef")
    assert without_timings(one.parts) == without_timings(whole.parts)


def without_timings(value: Any) -> Any:
    return {k: without_timings(v) for k, v in value.items() if k != "decision_ms"} if isinstance(value, dict) else value


def test_the_digest_covers_all_that_a_study_imports_of_the_studies() -> None:
    root = Path(fairlead.__file__).parent
    for name in NAMES:
        todo, seen = [f"papers.{name}.experiment"], set()
        while todo:
            module = todo.pop()
            seen.add(module)
            tree = ast.parse((root / "studies" / f"{module.replace('.', '/')}.py").read_text())
            imported = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
            todo += [m.removeprefix("fairlead.studies.") for m in imported if m.startswith("fairlead.studies.")]
            todo = [m for m in todo if m not in seen]
        assert all(measures(name, Path("studies") / f"{module.replace('.', '/')}.py") for module in seen), seen
        assert measures(name, Path("rounds/decide.py"))
        assert not measures(name, Path("studies/papers") / name / "claims.py")
        assert not measures(name, Path("cli/reproduce.py"))
    assert not measures("oef", Path("policies/hops_planner.py"))
    assert len({study_digest(name) for name in NAMES}) == len(NAMES)


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_every_part_of_a_study_has_a_cost(name: str, quick: bool) -> None:
    """Parts are functions, so that they are counted without measuring them."""
    scale = scale_of(name, quick)
    costs = costs_of(name, scale)

    assert list(costs) == list(parts_of(name, scale))
    assert min(costs.values()) > 0
    assert name not in COSTS or len(COSTS[name](scale)) == len(costs)


# ---- the command ---------------------------------------------------------------------------------------------------


def test_the_command_writes_the_page_and_one_study_still_gives_json(tiny_oef: Any, tmp_path: Path) -> None:
    out = tmp_path / "page.md"

    written = CliRunner().invoke(app, ["reproduce", "all", "--quick", "--out", str(out), "--jobs", "1"])
    progress = CliRunner().invoke(app, ["reproduce", "oef", "--quick", "-o", "json"])

    assert written.exit_code == 0, written.output
    assert "reproduce oef: 3 of 6 parts done (dynamic run), about " in written.stderr
    assert "reproduce oef: 6 of 6 parts done" in written.stderr
    assert written.stdout == ""
    assert "Written by `fairlead reproduce all --quick`." in out.read_text()
    message = json.loads(progress.stdout)
    assert message["scale"] == asdict(tiny_oef)
    assert message["claims"][0]["claims"][0]["ours"]
    assert "dynamic run" in message["parts"]


def test_all_gives_json_too_and_finds_its_results_again(tiny_oef: Any, tmp_path: Path) -> None:
    asked = ["reproduce", "all", "--quick", "-o", "json", "--jobs", "1"]

    first = CliRunner().invoke(app, asked)
    again = CliRunner().invoke(app, asked)
    fresh = CliRunner().invoke(app, [*asked, "--fresh"])

    assert json.loads(first.stdout)["studies"][0]["fairlead"] == "reproduction/1"
    assert json.loads(first.stdout)["studies"][0]["claims"][0]["claims"][0]["verdict"]
    assert again.stdout == first.stdout
    assert again.stderr == ""
    assert "6 of 6 parts done" in fresh.stderr
    assert list((tmp_path / "cache" / "fairlead" / "reproduce").iterdir())


def test_only_wants_names_that_there_are(tiny_oef: Any) -> None:
    refused = CliRunner().invoke(app, ["reproduce", "all", "--quick", "--only", "oef,eof"])

    assert isinstance(refused.exception, InputError)
    assert '--only "eof" is not known; did you mean "oef"?' in str(refused.exception)


def test_an_interrupted_command_says_where_it_goes_on(tmp_path: Path) -> None:
    """A real process and a real Ctrl-C, after the first part of two studies, so that much is left to interrupt."""
    command = [sys.executable, "-m", "fairlead", "reproduce", "all", "--quick", "--only", "fft,oef", "--results"]
    heed = partial(
        signal.signal, signal.SIGINT, signal.SIG_DFL
    )  # a shell in the background makes its children ignore it
    with subprocess.Popen([*command, str(tmp_path)], stderr=subprocess.PIPE, text=True, preexec_fn=heed) as running:
        wait_for(lambda: any(tmp_path.glob("*-quick.json")) or running.poll() is not None, "the first part")
        running.send_signal(signal.SIGINT)
        _, message = running.communicate(timeout=PATIENCE_S)

    assert running.returncode == 130
    assert f"finished parts are kept in {tmp_path}" in message
    assert all(json.loads(kept.read_text())["parts"] for kept in tmp_path.glob("*-quick.json"))
