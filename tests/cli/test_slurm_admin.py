"""`fairlead slurm` where there is no Slurm: it says so, and prints what does not need one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from in_process import Fairlead


@pytest.fixture
def fairlead(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Fairlead:
    monkeypatch.setenv("PATH", str(tmp_path))
    return Fairlead(monkeypatch, capsys)


def test_the_doctor_says_that_the_commands_are_missing(fairlead: Fairlead) -> None:
    code, out, _ = fairlead("slurm", "doctor", "--shadow")

    assert code == 1
    assert "missing  commands: squeue, sinfo, scontrol not found; install Slurm's client commands here" in out


def test_setup_prints_a_plug_in_for_a_partition_and_a_user_without_slurm(fairlead: Fairlead) -> None:
    words = ("slurm", "setup", "--print", "--partition", "gpu", "--user", "nobody", "-o", "json")

    code, out, err = fairlead(*words)

    assert code == 0
    assert "scontrol is not installed" in err
    parts = json.loads(out)
    assert list(parts) == ["conf", "lua", "accounts", "undo"]
    assert 'local STEERED = "gpu"' in parts["lua"]
    assert (
        fairlead("slurm", "setup", "--print", "--partition", "gpu", "--user", "nobody", "--part", "lua")[1]
        == parts["lua"]
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("doctor --shadow --leases", "choose one of them"),
        ("setup", "call it with --print"),
        ("setup --print --user no-such-user", 'this machine has no user "no-such-user"'),
        ("leave --print --yes", "leave one of them out"),
    ],
)
def test_words_that_contradict_each_other_are_not_ignored(fairlead: Fairlead, words: str, message: str) -> None:
    code, _, err = fairlead("slurm", *words.split())

    assert code == 2
    assert message in err


def test_leaving_without_slurm_fails_with_the_reason(fairlead: Fairlead) -> None:
    code, _, err = fairlead("slurm", "leave", "--print")

    assert code == 1
    assert "scontrol is not installed on this machine" in err
