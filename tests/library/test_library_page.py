"""The snippets of docs/library.md run, and so do the examples that it names."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

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


@pytest.mark.parametrize(("name", "sizes"), [("oef_totals.py", ["3"]), ("fft_jct.py", ["12", "1"])])
def test_an_example_draws_its_figure_in_under_thirty_lines(name: str, sizes: list[str], tmp_path: Path) -> None:
    script, target = DOCS / "examples" / name, tmp_path / "figure.png"

    done = subprocess.run(
        [sys.executable, str(script), *sizes, str(target)], capture_output=True, text=True, check=False, cwd=tmp_path
    )

    assert done.returncode == 0, done.stderr
    assert target.stat().st_size > 0
    assert "1.0" in done.stdout  # relative to itself
    code = [line for line in script.read_text(encoding="utf-8").splitlines() if line.strip()]
    assert len(code) < 30
