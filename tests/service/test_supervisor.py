"""Who keeps the scheduler going: what it waits for, and when it gives up."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from daemons import wait_for
from fairlead.service.process.scheduler import FULL, Plan
from fairlead.service.process.supervisor import Patience, Supervisor
from fairlead.service.store.directory import StateDirectory

PATIENCE = Patience(deaths=3, first_pause_s=0.001, longest_pause_s=0.01)


def supervisor(path: Path, said: list[str], command: list[str]) -> Supervisor:
    made = Supervisor(StateDirectory(path), Plan(), said.append, PATIENCE)
    made._command = command
    return made


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ([sys.executable, "-c", "raise SystemExit(1)"], "died 3 times in a row; its last words are above"),
        (["/nowhere/python"], r"died 3 times in a row; it could not be started \(.*No such file"),
    ],
    ids=["dies", "cannot be started"],
)
def test_it_gives_up_after_short_lives_in_a_row(tmp_path: Path, command: list[str], why: str) -> None:
    said: list[str] = []
    keeper = supervisor(tmp_path, said, command)
    keeper.start()
    wait_for(lambda: bool(said), 20)
    keeper.stop()

    assert len(said) == 1
    assert re.search(why, said[0])
    assert not keeper.state()["ready"]


def test_a_full_disk_is_waited_for(tmp_path: Path) -> None:
    said: list[str] = []
    keeper = supervisor(tmp_path, said, [sys.executable, "-c", f"raise SystemExit({FULL})"])
    keeper.start()
    wait_for(lambda: keeper.state()["restarts"] > PATIENCE.deaths, 20)
    keeper.stop()

    assert said == []
