"""`fairlead what-if` and `fairlead snapshot` on files and state directories."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from in_process import Fairlead

from fairlead.model.events import Arrived
from fairlead.model.jobs import JobSpec
from serving import world

TRACE = "id,tenant,model,arrival_s,gpus,steps\n" + "".join(
    f"j{i},{'xy'[i % 2]},resnet50,{300 * i},{1 + i % 2},{20000 + 9000 * i}\n" for i in range(8)
)
JOB = "name: mine\ntenant: x\nmodel: resnet50\nresources: {accelerators: V100:2}\nsteps: 30000\nrun: python train.py\n"


@pytest.fixture
def fairlead(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Fairlead:
    return Fairlead(monkeypatch, capsys)


@pytest.fixture
def journal(tmp_path: Path, fairlead: Fairlead) -> Path:
    (tmp_path / "jobs.csv").write_text(TRACE)
    (tmp_path / "job.yaml").write_text(JOB)
    path = tmp_path / "run.jsonl"
    fairlead.summary(
        *f"--cluster v100:2,k80:4 --trace {tmp_path / 'jobs.csv'} --policy las --round 5m --journal {path}".split()
    )
    return path


def answer(fairlead: Fairlead, *words: object) -> dict[str, Any]:
    code, out, err = fairlead("what-if", *words, "-o", "json")
    assert code == 0, err
    document: dict[str, Any] = json.loads(out)
    return document


def mean(scenario: dict[str, Any], figure: str) -> float:
    return float(scenario["overall"][figure]["mean"])


def test_scenarios_are_columns_beside_what_happens_anyway(journal: Path, fairlead: Fairlead) -> None:
    words = ("--policy", "srtf", "--policy", "fifo", "--scenario", "add=4xv100 weight=x=2 name=larger")
    document = answer(fairlead, "--from", f"{journal}@25m", *words)

    assert [one["name"] for one in document["scenarios"]] == ["as it is", "srtf", "fifo", "larger"]
    as_it_is, _, _, larger = document["scenarios"]
    assert mean(larger, "wait_mean_s") < mean(as_it_is, "wait_mean_s")
    assert {"x", "y"} == set(as_it_is["tenants"])
    assert as_it_is["arrivals_per_hour"] is None
    whole = fairlead.summary("--from", f"{journal}@25m")
    assert whole["jobs_finished"] == mean(as_it_is, "finished") == 8


def test_single_options_make_one_scenario(journal: Path, fairlead: Fairlead) -> None:
    job = journal.with_name("job.yaml")
    words = ("--remove", "k80-1", "--cancel", "j3", "--submit", job, "--load", "0", "--quota", "y:v100=1+0")
    _, changed = answer(fairlead, "--from", f"{journal}@25m", *words)["scenarios"]

    assert changed["name"] == f"quota=y:v100=1+0 remove=k80-1 submit={job} cancel=j3 load=0.0"
    assert mean(changed, "jobs") == 6  # of those that had arrived one had ended and one is cancelled
    assert changed["submitted_start_in_s"]["mine"] >= 0
    assert changed["arrivals_per_hour"] == 0


def test_the_table_fits_a_terminal_of_80_columns(journal: Path, fairlead: Fairlead) -> None:
    words = ("--policy", "srtf", "--policy", "fifo", "--add", "4xv100", "--load", "1.2", "--seeds", "3")
    code, out, _ = fairlead("what-if", "--from", f"{journal}@25m", *words, "--horizon", "3h")

    assert code == 0
    assert max(len(line) for line in out.splitlines()) <= 80
    assert "mean JCT" in out
    assert "Tenant y" in out
    assert " - " in out  # a range over seeds


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        (["--policy", "lass"], 2, "did you mean"),
        (["--policy", "fft:kapa=2"], 2, "kapa"),
        (["--add", "h100"], 2, "[NODESx]GPUSxTYPE"),
        (["--add", "8xh100"], 2, "no speed on h100"),
        (["--weight", "x"], 2, "TENANT=WEIGHT"),
        (["--weight", "z=2"], 3, 'no tenant "z"'),
        (["--quota", "x=4"], 2, "TENANT:TYPE=OWN"),
        (["--cancel", "j99"], 3, 'no job "j99"'),
        (["--remove", "v100-7"], 3, 'no node "v100-7"'),
        (["--load", "-1"], 2, "from 0 to 100"),
        (["--horizon", "soon"], 2, "soon"),
        (["--scenario", "polcy=fft"], 2, '"polcy" is not a change'),
        (["--scenario", "fft"], 2, "CHANGE=VALUE"),
        (["--scenario", "policy=srtf", "--policy", "srtf"], 2, "two scenarios are called"),
    ],
)
def test_a_wrong_change_is_named(
    words: list[str], code: int, complaint: str, journal: Path, fairlead: Fairlead
) -> None:
    ended, out, err = fairlead("what-if", "--from", f"{journal}@25m", *words)
    assert (ended, out) == (code, "")
    assert complaint in err


def test_a_running_service_is_asked_and_left_alone(
    tmp_path: Path, fairlead: Fairlead, monkeypatch: pytest.MonkeyPatch
) -> None:
    with world(tmp_path / "service") as here:
        for i in range(6):
            here.happen(Arrived(1.8e9 + i, JobSpec(f"ann-{i}", "vision", "fast", 1.8e9 + i, 2, 4000.0)))
        here.log.commit(here.log.taken)
        monkeypatch.setenv("FAIRLEAD_URL", str(here.client.base_url))
        monkeypatch.setenv("FAIRLEAD_TOKEN", here.admin["Authorization"].removeprefix("Bearer "))
        before = here.service.directory.events.read_bytes()

        live = answer(fairlead, "--load", "0", "--seeds", "1", "--horizon", "2h")
        file = tmp_path / "now.snapshot"
        assert fairlead("snapshot", file, "--anonymise")[0] == 0
        directory = answer(
            fairlead, "--from", here.service.directory.path, *("--load", "0", "--seeds", "1", "--horizon", "2h")
        )
        assert here.service.directory.events.read_bytes() == before

    moved = answer(fairlead, "--from", file, "--load", "0", "--seeds", "1", "--horizon", "2h")
    figures = [{**document["scenarios"][1]["overall"]} for document in (live, directory, moved)]
    assert figures[0] == figures[1] == figures[2]
    assert figures[0]["finished"]["mean"] == 6
    assert "vision" not in file.read_text()
    for verb in ("replay", "audit"):
        code, _, err = fairlead(verb, file)
        assert code == 2
        assert "this is a snapshot" in err


def test_members_may_not_read_the_whole_state(tmp_path: Path) -> None:
    from fairlead.service.store.tokens import Role

    with world(tmp_path) as here:
        for role, tenant in ((Role.MEMBER, "a"), (Role.VIEWER, None)):
            assert here.client.get("/v1/snapshot", headers=here.token(role, tenant)).status_code == 403
