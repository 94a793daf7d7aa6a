"""`fairlead simulate --from`: a run continues from a journal or from a service's state."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from building import THREE
from checker import check_journal
from fairlead.cli.main import main
from fairlead.cli.simulate_from import _FIXED, _SETTINGS, _WORLD
from fairlead.cli.world import WorldOptions
from fairlead.model.cluster import parse_short_form
from fairlead.rounds.journal import Header
from fairlead.service.store.directory import make, open_directory

TRACE = "id,tenant,model,arrival_s,gpus,steps\n" + "".join(
    f"j{i},{'xy'[i % 2]},resnet50,{300 * i},{1 + i % 2},{20000 + 9000 * i}\n" for i in range(8)
)
HIDDEN = "--length-error 0.3 --server-factors 0.7:1 --sensing three-layer --sensing-noise 0.1"
WORLD = f"--mtbf 2h --repair 10m {HIDDEN} --seed 3"


class Fairlead:
    """The command in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys

    def __call__(self, *words: object) -> tuple[int, str, str]:
        """Exit code, stdout, stderr."""
        self._capsys.readouterr()
        self._monkeypatch.setattr("sys.argv", ["fairlead", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), *self._capsys.readouterr()

    def summary(self, *words: object) -> dict[str, Any]:
        code, out, err = self("simulate", *words, "-o", "json")
        assert code == 0, err
        summary: dict[str, Any] = json.loads(out)
        return summary


@pytest.fixture
def fairlead(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Fairlead:
    return Fairlead(monkeypatch, capsys)


@pytest.fixture
def journal(tmp_path: Path, fairlead: Fairlead) -> Path:
    (tmp_path / "jobs.csv").write_text(TRACE)
    path = tmp_path / "run.jsonl"
    options = f"--cluster v100:2,k80:4 --trace {tmp_path / 'jobs.csv'} --policy las --round 5m --journal {path} {WORLD}"
    fairlead.summary(*options.split())
    return path


def test_the_same_policy_continues_as_it_did(journal: Path, tmp_path: Path, fairlead: Fairlead) -> None:
    """With the later arrivals, true lengths and faults of the journal, and with its policy's memory."""
    again = tmp_path / "again.jsonl"
    fairlead.summary("--from", f"{journal}@25m", "--journal", again)

    mine, theirs = (path.read_text().splitlines() for path in (again, journal))
    assert mine[0] == theirs[0]
    assert len(mine) == len(theirs)
    assert [line for line in mine if '"decision"' in line] == [line for line in theirs if '"decision"' in line]


def test_another_policy_takes_over(journal: Path, tmp_path: Path, fairlead: Fairlead) -> None:
    other = tmp_path / "other.jsonl"
    summary = fairlead.summary("--from", f"{journal}@25m", "--policy", "gavel", "--journal", other)

    assert summary["policy"] == "gavel"
    assert summary["jobs_finished"] == 8
    assert "begins from run.jsonl at 25m 00s" in summary["assumptions"][0]
    checked = check_journal(other)
    assert checked.header["begins"]["time_s"] == 1500.0
    assert fairlead("replay", other)[0] == 0
    assert fairlead("audit", other)[0] == 0
    assert fairlead.summary("--from", f"{other}@40m")["jobs_finished"] == 8


def test_a_trace_replaces_later_arrivals(journal: Path, tmp_path: Path, fairlead: Fairlead) -> None:
    later = tmp_path / "later.csv"
    later.write_text("id,tenant,model,arrival_s,gpus,steps\nearly,x,resnet50,0,1,5\nnew,x,resnet50,9000,1,50\n")
    assert fairlead.summary("--from", f"{journal}@25m", "--trace", later)["jobs_total"] == 7
    assert fairlead.summary("--from", f"{journal}@25m", "--until", "26m")["jobs_finished"] < 6


def test_a_service_is_read_and_left_alone(tmp_path: Path, fairlead: Fairlead) -> None:
    settings = {"round_s": 60.0, "when": "events", "min_run_s": 60.0, "scatter": False}
    cluster = parse_short_form("v100:4,k80:2")
    make(
        open_directory(tmp_path / "state"), Header(cluster, THREE, None, "fifo", {}, settings, {}, {"unmeasured": True})
    )
    later = tmp_path / "later.csv"
    later.write_text("id,tenant,model,arrival_s,gpus,steps\na,x,even,0,1,500\nb,x,fast,10,2,500\n")
    before = {path.name: path.read_bytes() for path in (tmp_path / "state").glob("*.db")}

    summary = fairlead.summary("--from", tmp_path / "state", "--trace", later, "--policy", "srtf")

    assert summary["jobs_finished"] == 2
    assert {path.name: path.read_bytes() for path in (tmp_path / "state").glob("*.db")} == before


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ("--from nowhere.jsonl", "no such file or directory"),
        ("--from {folder}/jobs.csv", "not a journal record"),
        ("--from {folder}", "no state directory of a service"),
        ("--from {folder}@5m", "a time needs a journal"),
        ("--from {folder}/run.jsonl@soon", "soon"),
        ("--from {folder}/run.jsonl --cluster v100:2", "--cluster: this is fixed by the run"),
        ("--from {folder}/run.jsonl --sensing table", "--sensing: this is fixed by the run"),
        ("--from {folder}/run.jsonl --policy hare", "single tasks"),
        ("--from {folder}/run.jsonl --journal {folder}/run.jsonl", "cannot be written over"),
        ("--policy las --cluster v100:2", "--trace: missing"),
        ("--policy las --cluster v100:2 --trace x --until 5", "need --from"),
    ],
)
def test_a_wrong_option_is_named(options: str, complaint: str, journal: Path, fairlead: Fairlead) -> None:
    code, out, err = fairlead("simulate", *options.format(folder=journal.parent).split())
    assert (code, out) == (2, "")
    assert complaint in err


def test_every_option_of_the_world_is_used_or_refused() -> None:
    names = {field.name for field in fields(WorldOptions)}
    assert names - {*_SETTINGS, *_WORLD, *_FIXED} == {"skip_impossible"}  # which applies to --trace
