"""Tables that go into a pipe or a file are at most 80 columns wide, whatever they contain."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from in_process import Fairlead
from rich.cells import cell_len

import fairlead.cli
from fairlead.cli.output import PIPED_COLUMNS, print_table
from serving import World, world

LONG = "a-name-that-somebody-made-longer-than-half-of-a-line-and-without-any-space"
TRACE = "# fairlead: trace/1\nid,tenant,model,arrival_s,gpus,steps\n" + "".join(
    f"job-{n},{LONG if n else 'vision'},resnet50,{60 * n},2,9000\n" for n in range(6)
)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("api")) as made:
        made.submit(model=LONG)
        made.submit(name=LONG[:40])
        made.take()
        yield made


@pytest.fixture
def fairlead_here(here: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Fairlead:
    monkeypatch.setenv("FAIRLEAD_URL", str(here.client.base_url))
    monkeypatch.setenv("FAIRLEAD_TOKEN", here.admin["Authorization"].removeprefix("Bearer "))
    return Fairlead(monkeypatch, capsys)


def assert_narrow(out: str) -> None:
    table = [line for line in out.splitlines() if set(line) & set("│┃━─")]  # sentences below it may be longer
    wide = [line for line in table if cell_len(line) > PIPED_COLUMNS]
    assert table
    assert not wide


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.text(max_size=90), min_size=5, max_size=5), max_size=3), st.integers(0, 5))
def test_any_words_fit(rows: list[list[str]], left: int) -> None:
    with redirect_stdout(io.StringIO()) as out:
        print_table("A table", ["one", "two words", "a much longer heading", "", "five"], rows, left)

    assert_narrow(out.getvalue())


def test_all_cells_of_a_table_that_is_divided_are_printed() -> None:
    row = [f"{LONG}{n}" for n in range(6)]
    with redirect_stdout(io.StringIO()) as out:
        print_table("A table", [f"column {n}" for n in range(6)], [row], 6)

    letters = re.sub(r"[^a-z0-9-]", "", out.getvalue())
    assert_narrow(out.getvalue())
    assert all(f"column {n}" in out.getvalue() for n in range(6))
    assert letters.count("made") >= 6


@pytest.mark.parametrize(
    "words",
    [
        "queue",
        "queue --all",
        "queue --start",
        "status",
        "status j1",
        "nodes",
        "tenants",
        "share",
        "audit",
        "token list",
    ],
)
def test_tables_about_a_service_fit(fairlead_here: Fairlead, words: str) -> None:
    code, out, err = fairlead_here(*words.split())

    assert (code, err) == (0, "")
    assert_narrow(out)


@pytest.mark.parametrize(
    "words",
    [
        "policies",
        "rates list",
        "trace stats {trace}",
        "audit {journal}",
        "simulate {world} --policy oef-coop",
        "compare {world} --policies fifo,las",
    ],
)
def test_tables_about_files_fit(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trace, journal = tmp_path / "jobs.csv", tmp_path / "run.jsonl"
    trace.write_text(TRACE)
    run = f"--cluster v100:4,k80:4 --trace {trace}"
    fairlead = Fairlead(monkeypatch, capsys)
    if "journal" in words:
        fairlead("simulate", *run.split(), "--policy", "fifo", "--journal", journal)

    code, out, _ = fairlead(*words.format(trace=trace, journal=journal, world=run).split())

    assert code == 0
    assert_narrow(out.replace(str(tmp_path), "DIR"))


def test_only_one_module_makes_tables() -> None:
    """`top` draws a screen on a terminal; everything else goes through `cli/output.py`."""
    folder = Path(fairlead.cli.__file__).parent
    makers = {path.name for path in folder.glob("*.py") if "rich.table" in path.read_text()}

    assert makers == {"output.py", "operate.py"}
