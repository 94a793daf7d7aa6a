"""`fairlead simulate --from`: a run continues from a journal or from a service's state."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import pytest
from in_process import Fairlead

import fairlead as library
from building import THREE
from checker import check_journal
from fairlead.cli.world import WorldOptions
from fairlead.library.continuing import FIXED, SETTINGS
from fairlead.library.continuing import WORLD as WORLD_OPTIONS
from fairlead.model.cluster import parse_short_form
from fairlead.policies import REGISTRY, ROUND_POLICIES
from fairlead.rounds.journal import Header
from fairlead.service.store.directory import make, open_directory

TRACE = "id,tenant,model,arrival_s,gpus,steps\n" + "".join(
    f"j{i},{'xy'[i % 2]},resnet50,{300 * i},{1 + i % 2},{20000 + 9000 * i}\n" for i in range(8)
)
HIDDEN = "--length-error 0.3 --server-factors 0.7:1 --sensing three-layer --sensing-noise 0.1"
WORLD = f"--mtbf 2h --repair 10m {HIDDEN} --seed 3"


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


def test_the_library_continues_as_the_command_does(journal: Path, fairlead: Fairlead) -> None:
    printed = fairlead.summary("--from", f"{journal}@25m", "--policy", "gavel", "--round", "10m", "--until", "3h")

    run = library.simulate(from_=f"{journal}@25m", policy="gavel", round="10m", until="3h")

    timings = {"cpu_s", "wall_s", "decision_s"}
    summary = json.loads(json.dumps(run.summary))
    assert {k: v for k, v in summary.items() if k not in timings} == {
        k: v for k, v in printed.items() if k not in timings
    }
    assert run.jobs["id"].tolist() == [f"j{i}" for i in range(8)]
    with pytest.raises(library.FairleadError, match="--sensing: this is fixed by the run that --from continues"):
        library.simulate(from_=f"{journal}@25m", sensing="types")


def test_a_limit_on_pre_emption_applies_from_there_and_stays_in_the_journal(
    journal: Path, tmp_path: Path, fairlead: Fairlead
) -> None:
    limited = tmp_path / "limited.jsonl"
    words = ("--from", f"{journal}@25m", "--preemption-limit", "10gpu-s/h")

    summary = fairlead.summary(*words, "--journal", limited)

    assert json.loads(limited.read_text().splitlines()[0])["settings"]["preemption_gpu_s"] == 10.0
    assert '"PreemptionLimit"' in limited.read_text()
    assert "PreemptionLimit" not in journal.read_text()
    assert summary["jobs_finished"] == 8
    check_journal(limited)  # recounts what every hour cost


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


def test_a_time_after_the_end_of_a_journal_is_refused_if_jobs_were_active(
    journal: Path, tmp_path: Path, fairlead: Fairlead
) -> None:
    part = tmp_path / "part.jsonl"
    fairlead.summary("--from", f"{journal}@25m", "--policy", "fifo", "--until", "30m", "--journal", part)

    code, out, err = fairlead("simulate", "--from", f"{part}@900d")

    assert (code, out) == (2, "")
    assert "the journal ends at 30m 00s, when jobs were active, and does not show" in err


OWN = """
from dataclasses import replace
from fairlead.policies.las import POLICY
MINE = replace(POLICY, name="mine")
"""


def test_a_journal_of_a_policy_of_the_users_own_is_continued(tmp_path: Path, fairlead: Fairlead) -> None:
    (tmp_path / "jobs.csv").write_text(TRACE)
    (tmp_path / "own.py").write_text(OWN)
    mine, run = f"{tmp_path / 'own.py'}:MINE", tmp_path / "run.jsonl"
    options = ["--cluster", "v100:2,k80:4", "--trace", tmp_path / "jobs.csv", "--journal", run]
    fairlead.summary(*options, "--policy", mine)

    assert fairlead("simulate", "--from", f"{run}@25m")[0] == 2
    try:
        summary = fairlead.summary("--from", f"{run}@25m", "--policy-file", mine)
    finally:
        for policies in (REGISTRY, ROUND_POLICIES):
            policies.pop("mine", None)
    assert (summary["policy"], summary["jobs_finished"]) == ("mine", 8)


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
        ("--from {folder}/run.jsonl@1h --journal {folder}/run.jsonl", "cannot be written over"),
        ("--policy las --cluster v100:2", "--trace: missing"),
        ("--policy las --cluster v100:2 --trace x --until 5", "need --from"),
        ("--policy las --cluster v100:2 --trace x --policy-file mine.py:MINE", "need --from"),
        ("--from {folder}/run.jsonl@900d", "no job is active, and none arrives later; choose an earlier time"),
    ],
)
def test_a_wrong_option_is_named(options: str, complaint: str, journal: Path, fairlead: Fairlead) -> None:
    code, out, err = fairlead("simulate", *options.format(folder=journal.parent).split())
    assert (code, out) == (2, "")
    assert complaint in err


def test_every_option_of_the_world_is_used_or_refused() -> None:
    names = {field.name.rstrip("_") for field in fields(WorldOptions)}
    assert names - {*SETTINGS, *WORLD_OPTIONS, *FIXED} == {"skip_impossible"}  # which applies to --trace
