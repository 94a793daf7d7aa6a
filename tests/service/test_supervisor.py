"""Who keeps the scheduler going: what it waits for, and when it gives up."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from fairlead.service.process.scheduler import FULL, SchedulerOptions
from fairlead.service.process.supervisor import Patience, Supervisor
from fairlead.service.store.directory import StateDirectory
from waiting import PATIENCE_S, wait_for

PATIENCE = Patience(deaths=3, first_pause_s=0.001, longest_pause_s=0.01)


def supervisor(path: Path, reasons: list[str], command: list[str], patience: Patience = PATIENCE) -> Supervisor:
    keeper = Supervisor(StateDirectory(path), SchedulerOptions(), reasons.append, patience)
    keeper._command = command
    return keeper


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ([sys.executable, "-c", "raise SystemExit(1)"], "died 3 times in a row; its last messages are above"),
        (["/nowhere/python"], r"died 3 times in a row; it could not be started \(.*No such file"),
    ],
    ids=["dies", "cannot be started"],
)
def test_it_gives_up_after_short_lives_in_a_row(tmp_path: Path, command: list[str], why: str) -> None:
    reasons: list[str] = []
    keeper = supervisor(tmp_path, reasons, command)
    keeper.start()
    wait_for(lambda: reasons, "the supervisor to give up")
    keeper.close()

    assert len(reasons) == 1
    assert re.search(why, reasons[0])
    assert not keeper.state().ready


def test_a_full_disk_is_waited_for(tmp_path: Path) -> None:
    reasons: list[str] = []
    keeper = supervisor(tmp_path, reasons, [sys.executable, "-c", f"raise SystemExit({FULL})"])
    keeper.start()
    wait_for(lambda: keeper.state().restarts > PATIENCE.deaths, "restarts")
    keeper.close()

    assert reasons == []


def test_a_life_that_was_never_ready_is_short_however_long_it_took(tmp_path: Path) -> None:
    """A start that fails slowly, as on a busy machine, fails all the same."""
    reasons: list[str] = []
    dies = [sys.executable, "-c", "raise SystemExit(1)"]
    keeper = supervisor(tmp_path, reasons, dies, replace(PATIENCE, short_life_s=0.0))
    keeper.start()
    wait_for(lambda: reasons, "the supervisor to give up")
    keeper.close()

    assert reasons == ["the scheduler died 3 times in a row; its last messages are above"]


def test_deaths_after_long_lives_are_not_counted_together(tmp_path: Path) -> None:
    reasons: list[str] = []
    lives = [sys.executable, "-c", "print('{\"ready\": true}')"]
    keeper = supervisor(tmp_path, reasons, lives, replace(PATIENCE, short_life_s=0.0))
    keeper.start()
    wait_for(lambda: keeper.state().restarts > PATIENCE.deaths, "restarts")
    keeper.close()

    assert reasons == []


def test_whoever_waits_for_a_scheduler_that_was_given_up_finds_the_reason(tmp_path: Path) -> None:
    reasons: list[str] = []
    keeper = supervisor(tmp_path, reasons, ["/nowhere/python"])
    keeper.start()

    assert not keeper.wait_until_ready(PATIENCE_S)
    assert len(reasons) == 1


def test_a_scheduler_that_is_stuck_after_its_first_decision_is_overdue(tmp_path: Path) -> None:
    """Before its first decision it had nothing to decide, so that no round was ever announced."""
    script = (
        "import time\n"
        "for message in ('{\"ready\": true}', '{\"due_in_s\": null}', '{\"decision_s\": 0.1}'):\n"
        "    print(message, flush=True)\n"
        "time.sleep(3600)\n"
    )
    keeper = supervisor(tmp_path, [], [sys.executable, "-c", script])
    keeper._late_s = 0.0
    keeper.start()
    wait_for(lambda: keeper.state().decision_overdue, "a decision to be overdue")
    keeper.kill()
    keeper.close()
