"""The user's configuration: defaults of options, and where each value comes from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fairlead.cli.main import main
from fairlead.traces.configuration import VARIABLE


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("FAIRLEAD_URL", "FAIRLEAD_TOKEN", "FAIRLEAD_CREDENTIALS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv(VARIABLE, str(tmp_path / "config.yaml"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "config.yaml"


def call(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr("sys.argv", ["fairlead", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def test_a_default_counts_as_if_it_had_been_typed_and_what_is_typed_wins(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config.write_text("defaults:\n  trace generate: {jobs: 7, cluster: 'v100:2', model: [resnet50=1]}\n")

    for words, jobs in (([], 7), (["--jobs", "3"], 3)):
        assert call(monkeypatch, "trace", "generate", "--out", "jobs.csv", "-o", "json", *words) == 0
        assert json.loads(capsys.readouterr().out)["jobs"] == jobs
    assert {line.split(",")[2] for line in Path("jobs.csv").read_text().splitlines()[-3:]} == {"resnet50"}


def test_the_configuration_is_shown_with_its_origins(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config.write_text("aliases: {GRID: v100}\ndefaults:\n  simulate: {round: 5m}\n")
    monkeypatch.setenv("FAIRLEAD_TOKEN", "fl_secret")

    assert call(monkeypatch, "config", "show", "--origin", "-o", "json") == 0

    printed = capsys.readouterr().out
    shown = {row["setting"]: (row["value"], row["origin"]) for row in json.loads(printed)}
    assert shown["url"] == ("http://127.0.0.1:7411", "default")
    assert shown["token"] == ("set", "FAIRLEAD_TOKEN")
    assert shown["alias GRID"] == ("v100", str(config))
    assert shown["simulate --round"] == ("5m", f"{config} line 3")
    assert "fl_secret" not in printed


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("  simulate: {rounds: 5m}", 'line 2: fairlead simulate has no option "--rounds"; did you mean "round"?'),
        ("  simulat: {round: 5m}", 'there is no command "simulat"; did you mean "simulate"?'),
        ("  trace make: {jobs: 5}", 'there is no command "trace make"'),
        ("  compare: {audit: maybe}", 'audit is "maybe"; wanted true or false'),
    ],
)
def test_a_mistake_in_the_configuration_is_named_with_its_line(
    config: Path, text: str, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config.write_text(f"defaults:\n{text}\n")

    assert call(monkeypatch, "config", "show") == 2
    assert message in " ".join(capsys.readouterr().err.split())
