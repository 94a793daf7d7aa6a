"""JSON log lines: one for each decision and change, with documented fields, and nothing else on standard error."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlead.service.store.followed import FollowedRecord
from fairlead.service.telemetry.follower import LogFollower
from fairlead.service.telemetry.log_lines import FIELDS, MOST_JOBS, LogLines, line_of
from serving import World, world
from waiting import wait_for


@pytest.fixture
def here(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as made:
        yield made


def follow(here: World, lines: list[dict[str, Any]]) -> LogFollower:
    return LogFollower(here.service.directory, here.service.reads, LogLines(here.service.reads, lines.append))


def test_jobs_and_changes_get_a_line_each_and_secrets_none(here: World) -> None:
    here.submit(name="earlier")
    here.take()
    lines: list[dict[str, Any]] = []
    follower = follow(here, lines)
    follower.start()
    wait_for(lambda: follower.after > 0, "the follower")

    id_ = here.submit(name="x", tenant="vision", env={"KEY": "hunter2"}, run="echo hunter3")
    created = here.client.post("/v1/tokens", json={"name": "ci", "role": "viewer"}, headers=here.admin).json()
    here.client.put("/v1/tenants/vision", json={"weight": 2}, headers=here.admin)
    here.take()
    wait_for(lambda: {line["event"] for line in lines} >= {"arrived", "tenant_set", "change"}, "lines")
    follower.stop()
    wait_for(lambda: not follower.is_running, "its end")

    arrived = [line for line in lines if line["event"] == "arrived"]
    assert [(line["id"], line["tenant"], line["gpus"]) for line in arrived] == [(id_, "vision", 1)]
    actions = {line["action"]: line for line in lines if line["event"] == "change"}
    assert actions["token.create"]["target"] == created["id"]
    assert actions["tenant.set"]["detail"]["weight"] == 2
    text = json.dumps(lines)
    assert "hunter" not in text
    assert created["token"] not in text
    assert created["token"].split("_")[2] not in text


def test_a_restart_repeats_no_line_and_leaves_none_out(here: World) -> None:
    lines: list[dict[str, Any]] = []
    first = follow(here, lines)
    first.start()
    wait_for(lambda: (here.service.directory.followers / "log.json").exists(), "the first cursor")
    here.submit()
    here.take()
    wait_for(lambda: lines, "a line")
    first.stop()
    wait_for(lambda: not first.is_running, "its end")
    here.submit()
    here.take()
    second = follow(here, lines)
    second.start()
    wait_for(lambda: len(lines) >= 2, "another line")
    second.stop()
    wait_for(lambda: not second.is_running, "its end")

    assert [line["event"] for line in lines] == ["arrived", "arrived"]
    assert len({line["seq"] for line in lines}) == 2


def test_a_large_decision_is_one_bounded_line() -> None:
    start = {f"j{k}": {"n1": 1} for k in range(500)}
    body = {"cause": "round", "stop": ["j0", "j900"], "start": start, "solver": "optimal"}

    line = line_of(FollowedRecord(7, 1.5, "decision", body))

    assert line == {
        "time": "1970-01-01T00:00:01.500Z",
        "level": "info",
        "event": "decision",
        "seq": 7,
        "started": 499,
        "started_jobs": [f"j{k}" for k in range(1, MOST_JOBS + 1)],
        "stopped": 1,
        "stopped_jobs": ["j900"],
        "moved": 1,
        "moved_jobs": ["j0"],
        "cause": "round",
        "solver": "optimal",
    }


def test_what_a_process_and_its_children_print_becomes_messages() -> None:
    script = (
        "import subprocess, sys\n"
        "from fairlead.service.telemetry.log_lines import stderr_as_json\n"
        "with stderr_as_json() as output:\n"
        "    print('fairlead: it begins', file=sys.stderr)\n"
        "    output.write({'event': 'x'})\n"
        "    subprocess.run(['sh', '-c', 'printf \"one\\\\033[1m\\\\ntwo\" >&2'])\n"
        "print('plain again', file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=os.environ)

    *lines, last = done.stderr.splitlines()
    events = [json.loads(line) for line in lines]
    assert sorted(one.get("message", "") for one in events) == ["", "it begins", "one\\x1b[1m", "two"]
    assert last == "plain again"


def test_the_documentation_lists_every_kind_of_line() -> None:
    page = (Path(__file__).parents[2] / "docs" / "operations.md").read_text(encoding="utf-8")
    section = page.partition("## Log lines")[2].partition("\n## ")[0]
    listed = {
        name for names in re.findall(r"^\| (`.*?`) \|", section, re.MULTILINE) for name in re.findall(r"`(\w+)`", names)
    }

    assert listed == {*FIELDS, "change", "message"}
