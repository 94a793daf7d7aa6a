from __future__ import annotations

import json
from pathlib import Path

import pytest

from building import job, setup
from fairlead.cli.main import main
from fairlead.studies.runs.simulate import simulate

INSTANCE = '{"gpus": {"k80": 8, "v100": 8}, "tenants": [{"name": "a", "speedups": {"k80": 1, "v100": 7}}, {"name": "b", "weight": 2, "speedups": {"k80": 1, "v100": 2}}]}'


@pytest.fixture
def instance(tmp_path: Path) -> str:
    (tmp_path / "instance.json").write_text(INSTANCE)
    return str(tmp_path / "instance.json")


def fairlead(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["fairlead", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    return int(stopped.value.code or 0)


def test_allocate_prints_the_whole_contract(
    instance: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fairlead(monkeypatch, "allocate", "--policy", "oef-coop", instance, "-o", "json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert {"policy", "shares", "efficiency", "total", "prices", "audit", "status", "solve_s"} <= set(answer)
    assert answer["audit"]["max_envy"] <= 1e-6
    assert answer["audit"]["min_sharing_incentive"] >= 1 - 1e-6


def test_audit_reads_an_instance_with_a_rule_and_an_allocation(
    instance: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fairlead(monkeypatch, "audit", "--policy", "gavel", instance, "-o", "json") == 0
    direct = json.loads(capsys.readouterr().out)
    assert fairlead(monkeypatch, "allocate", "--policy", "gavel", instance, "-o", "json") == 0
    (tmp_path / "shares.json").write_text(capsys.readouterr().out)
    assert fairlead(monkeypatch, "audit", str(tmp_path / "shares.json"), "-o", "json") == 0
    again = json.loads(capsys.readouterr().out)
    assert again["max_envy"] == pytest.approx(direct["max_envy"])
    assert set(direct["lies"]) == {"exaggerate", "under-report"}


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("audit",), "choose a rule with --policy"),
        (("allocate", "--policy", "robin-hood"), 'rule of division "robin-hood" is not known'),
    ],
)
def test_a_wrong_request_ends_with_code_2_and_one_message(
    instance: str,
    arguments: tuple[str, ...],
    complaint: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert fairlead(monkeypatch, *arguments, instance) == 2
    assert complaint in capsys.readouterr().err


def test_a_watched_cluster_is_not_judged_by_the_promises_of_a_policy_that_only_advised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run, watched = tmp_path / "run.jsonl", tmp_path / "watched.jsonl"
    simulate(setup([job(id_, 2, samples=4000.0) for id_ in "abc"], "v100:2", "oef-coop"), run)
    header, *records = run.read_text().splitlines(keepends=True)
    watched.write_text(
        "".join([json.dumps(json.loads(header) | {"shadow": True}, separators=(",", ":")) + "\n", *records])
    )

    assert fairlead(monkeypatch, "audit", str(watched), "-o", "json") == 0
    report = json.loads(capsys.readouterr().out)
    assert fairlead(monkeypatch, "audit", str(watched)) == 0
    table = " ".join(capsys.readouterr().out.split())

    assert report["decided_by"] == "Slurm"
    assert {one["standing"] for one in report["promises"]} == {"not promised"}
    assert "Slurm decided, and oef-coop only advised: nothing was promised" in table


@pytest.mark.parametrize(("jobs", "measured"), [("a", False), ("abc", True)])
def test_an_audit_says_why_a_promise_about_shares_was_not_measured(
    jobs: str, measured: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three jobs on GPUs for one leave their tenants wanting more; one job does not."""
    run = tmp_path / "run.jsonl"
    simulate(setup([job(id_, 2, samples=4000.0, tenant=id_) for id_ in jobs], "v100:2", "oef-coop"), run)

    assert fairlead(monkeypatch, "audit", str(run)) == 0
    reason = "not measured: no decision left a tenant with fewer GPUs than it wanted"
    assert (reason not in " ".join(capsys.readouterr().out.split())) == measured


@pytest.mark.parametrize("verb", ["audit", "replay"])
def test_a_binary_file_is_not_a_journal(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.jsonl.gz"
    path.write_bytes(b"\x1f\x8b\x08\x00\xff\xfe\n\xff")
    assert fairlead(monkeypatch, verb, str(path)) == 2
    assert capsys.readouterr().err.startswith(f"fairlead: {path}")


@pytest.mark.parametrize("text", ["", "[]", '{"gpus": {"k80": NaN}}', "{", "\x00"])
def test_a_file_that_is_not_an_instance_is_refused_by_name(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    assert fairlead(monkeypatch, "allocate", "--policy", "gavel", str(path)) == 2
    assert capsys.readouterr().err.startswith(f"fairlead: {path}")
