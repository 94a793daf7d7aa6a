"""The snippets of docs/library.md run, and so do the examples that it names."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from daemons import running

DOCS = Path(__file__).parents[2] / "docs"
SNIPPETS = re.findall(
    r"^```python\n(.*?)^```", (DOCS / "library.md").read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
)


def of_the_service(snippet: str) -> bool:
    return "fairlead.connect" in snippet


def test_the_snippets_run_in_the_order_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    names: dict[str, object] = {}
    for snippet in SNIPPETS:
        if not of_the_service(snippet):
            exec(compile(snippet, "docs/library.md", "exec"), names)

    assert "\\toprule" in capsys.readouterr().out
    for file in ("jobs.csv", "jobs.json", "tenants.tex", "comparison.html"):
        assert (tmp_path / file).stat().st_size > 0, file


@pytest.mark.slow
def test_the_snippets_about_a_service_run_against_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with running(tmp_path) as service:
        client = service.client()
        monkeypatch.setenv("FAIRLEAD_URL", client.url)
        monkeypatch.setenv("FAIRLEAD_TOKEN", client.token or "")
        names: dict[str, object] = {"fairlead": __import__("fairlead")}
        for snippet in filter(of_the_service, SNIPPETS):
            exec(compile(snippet, "docs/library.md", "exec"), names)

    lines = capsys.readouterr().out.splitlines()
    printed = " ".join(lines).split()
    assert printed[0] in ("submitted", "waiting", "running", "finished")
    assert printed[1] == "finished"
    assert "hello" in printed
    assert lines[-1] == "(['finished', 'finished'], ['0.1\\n'])"


def test_the_notebook_draws_a_figure_of_each_of_two_papers_in_under_thirty_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its cells run in order, with smaller sizes, in this process: a kernel would only add ways to fail."""
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    drawn: list[int] = []

    def show() -> None:
        drawn.append(len(pyplot.gcf().axes))
        pyplot.close()

    monkeypatch.setattr(pyplot, "show", show)
    notebook = json.loads((DOCS / "examples" / "papers.ipynb").read_text(encoding="utf-8"))
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    sizes = "mixes, jobs, seeds = 20, 60, 1"
    names: dict[str, Any] = {}
    assert sizes in cells[0]
    for number, cell in enumerate(cells):
        assert len(cell.splitlines()) < 30
        exec(compile(cell.replace(sizes, "mixes, jobs, seeds = 3, 12, 1"), f"cell {number}", "exec"), names)

    assert drawn == [1, 1]
    assert names["gains"]["oef-coop"].mean() > names["gains"]["equal-share"].mean() == 1
    assert names["times"]["fft"].tolist() == [1.0]
    assert "<table>" in eval(cells[-1], names)._repr_html_()
