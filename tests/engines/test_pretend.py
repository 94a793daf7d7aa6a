"""The runner that pretends, and the file in which it remembers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fairlead.engines.leases import Condition, Lease
from fairlead.engines.pretend.runner import PretendRunner
from fairlead.engines.requests import Command
from fairlead.model.errors import InputError


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
    runner = PretendRunner(tmp_path / "said", lambda: 100.0)
    runner.launch(Lease("a", 1, (), Command(run)))
    runner.close()

    head, said = map(json.loads, (tmp_path / "said").read_text().splitlines())

    assert head == {"fairlead": "pretended/1"}
    assert said["ends_s"] == 100.0 + seconds


def test_a_line_that_was_cut_off_spoils_none_of_those_that_follow(tmp_path: Path) -> None:
    leases = [Lease(id_, 1, (), Command("sleep 5")) for id_ in ("a", "b", "c")]
    path = tmp_path / "said"
    runner = PretendRunner(path, lambda: 0.0)
    for lease in leases[:2]:
        runner.launch(lease)
    runner.close()
    path.write_bytes(path.read_bytes()[:-7])

    again = PretendRunner(path, lambda: 0.0)
    again.launch(leases[2])
    again.close()
    last = PretendRunner(path, lambda: 0.0)
    seen = last.look([lease.key for lease in leases]).sights
    last.close()

    assert [seen[lease.key].condition for lease in leases] == [
        Condition.RUNNING,
        Condition.NEVER_CLAIMED,
        Condition.RUNNING,
    ]


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "said").write_text('{"fairlead": "pretended/9"}\n')

    with pytest.raises(InputError, match=r"does not begin with .*pretended/1"):
        PretendRunner(tmp_path / "said")
