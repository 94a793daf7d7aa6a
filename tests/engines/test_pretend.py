"""The runner that pretends, and the files in which it remembers."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from fairlead.engines.leases import Condition, Lease
from fairlead.engines.local.files import read_json
from fairlead.engines.pretend.runner import OLD_FILE, RECORD, PretendReader, PretendRunner
from fairlead.engines.requests import Command
from fairlead.model.errors import InputError
from fairlead.model.handshake import CHECKPOINTED
from fairlead.service.store.archived_leases import remove_leases


@pytest.mark.parametrize(
    ("run", "seconds"),
    [
        ("sleep 2", 2.0),
        (" sleep  2.5 ", 2.5),
        ("sleep .5", 0.5),
        ("sleep 3.", 3.0),
        ("sleep 1.2.3", 0.0),
        ("sleep .", 0.0),
    ],
)
def test_only_a_sleep_of_so_many_seconds_takes_time(tmp_path: Path, run: str, seconds: float) -> None:
    runner = PretendRunner(tmp_path, lambda: 100.0)
    runner.launch(Lease("a", 1, (), Command(run)))

    assert read_json(tmp_path / "leases" / "a" / "1" / RECORD)["ends_s"] == 100.0 + seconds


def test_a_launch_that_was_cut_off_can_be_repeated(tmp_path: Path) -> None:
    lease = Lease("a", 1, (), Command("sleep 5"))
    (tmp_path / "leases" / "a" / "1").mkdir(parents=True)
    runner = PretendRunner(tmp_path, lambda: 0.0)

    assert runner.numbers("a") == []
    assert runner.look([lease.key]).sights[lease.key].condition is Condition.NEVER_CLAIMED
    runner.launch(lease)
    assert runner.numbers("a") == [1]


def test_nothing_remains_of_leases_that_are_removed_with_their_jobs(tmp_path: Path) -> None:
    runner = PretendRunner(tmp_path, lambda: 0.0)
    leases = [Lease(f"j{number}", 1, (), Command("true")) for number in range(3)]
    for lease in leases:
        runner.launch(lease)
        runner.look([lease.key])

    remove_leases(tmp_path, [lease.job for lease in leases])
    runner.look([])

    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not runner.jobs()
    assert runner.recall(leases[0].key) is None
    assert runner.revoke(leases[0].key)


def test_leases_of_an_earlier_version_are_taken_over(tmp_path: Path) -> None:
    leases = [Lease(id_, 1, (), Command("sleep 5")) for id_ in ("a", "b", "c")]
    records = [{"lease": asdict(lease), "ends_s": 5.0, "boot": "this"} for lease in leases]
    lines = [{"fairlead": "pretended/1"}, *records[:2], {"stop": ["b", 1], "at_s": 1.0}, records[2]]
    content = "".join(f"{json.dumps(line)}\n" for line in lines)
    (tmp_path / OLD_FILE).write_text(content[:-7])  # the last line was cut off

    sights = PretendRunner(tmp_path, lambda: 2.0, "this").look([lease.key for lease in leases]).sights

    assert [sights[lease.key].condition for lease in leases] == [
        Condition.RUNNING,
        Condition.ENDED,
        Condition.NEVER_CLAIMED,
    ]
    assert PretendReader(tmp_path, lambda: 2.0, "this").exit_code(("b", 1)) == CHECKPOINTED
    assert not (tmp_path / OLD_FILE).exists()


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / OLD_FILE).write_text('{"fairlead": "pretended/9"}\n')

    with pytest.raises(InputError, match=r"does not begin with .*pretended/1"):
        PretendRunner(tmp_path)
