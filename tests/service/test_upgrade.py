"""Upgrades of the state directory: from a kept one of schema 1, interrupted anywhere, only shown, and refused."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from old_states import unpack

from daemons import Service, insist
from fairlead.engines.requests import Submit
from fairlead.model.cluster import parse_short_form
from fairlead.model.public_job import PHASE_NAMES
from fairlead.service.client import Client
from fairlead.service.process.daemon import changes_at_start
from fairlead.service.store.database import StoreError, open_reader, open_writer, schema_of
from fairlead.service.store.directory import StateDirectory, is_new, make, open_directory, read_directory
from fairlead.service.store.identity import identity_of
from fairlead.service.store.log import open_log
from fairlead.service.store.request_queue import drained, read_after
from fairlead.service.store.tables import CHANGES, EVENTS, REQUESTS, SCHEMA
from fairlead.service.store.tokens import Role, new_token, store_token
from fairlead.service.store.upgrade import planned, upgrade
from leftovers import end_leases
from serving import header
from waiting import wait_for

PHASES = {"finished": 17, "failed": 3, "cancelled": 1, "held": 1, "running": 3, "waiting": 4}
SAME_CLUSTER = parse_short_form("v100:6,k80:4")


@pytest.fixture
def old(tmp_path: Path) -> StateDirectory:
    return StateDirectory(unpack(tmp_path))


def contents(directory: StateDirectory) -> dict[str, bytes]:
    """All files with data. SQLite may add an empty write-ahead log, and a scratch file, to a file that is read."""
    files = (path for path in directory.path.rglob("*") if path.is_file() and not path.name.endswith("-shm"))
    found = {str(path.relative_to(directory.path)): path.read_bytes() for path in files}
    return {name: body for name, body in found.items() if body or not name.endswith("-wal")}


def check_upgraded(directory: StateDirectory) -> None:
    """Everything of schema 1 is there, and both files are of one store."""
    with (
        closing(open_writer(directory.requests, REQUESTS)) as requests,
        closing(open_writer(directory.events, EVENTS)) as events,
    ):
        assert schema_of(requests) == schema_of(events) == SCHEMA
        identity = identity_of(requests)
        assert identity is not None
        assert identity == identity_of(events)
        assert identity.incarnation == 1
        log = open_log(events)
        phases = Counter(PHASE_NAMES[phase] for phase in log.state.phase[: log.state.jobs].tolist())
        assert phases == PHASES
        assert log.policy == ("las", {})
        assert drained(requests, log.taken) == ["k80-1"]
        waiting = [request.spec.id for _, request in read_after(requests, log.taken) if isinstance(request, Submit)]
        assert waiting == ["j36", "j37", "j38", "j39", "j40"]
        assert requests.execute("SELECT count(*) FROM tokens").fetchone()[0] == 2
    assert json.loads(directory.marker.read_text()) == {"fairlead": f"state/{SCHEMA}"}
    assert planned(directory) == []


def test_both_files_have_every_schema_and_each_is_described() -> None:
    assert len(REQUESTS.migrations) == len(EVENTS.migrations) == SCHEMA
    assert sorted(CHANGES) == list(range(2, SCHEMA + 1))


def test_a_directory_of_schema_1_is_upgraded_and_keeps_everything(old: StateDirectory) -> None:
    assert not is_new(old)
    lines = upgrade(old)

    assert lines[0].startswith(f"the state directory is upgraded from schema 1 to {SCHEMA}")
    assert lines[1:] == [f"schema {schema}: {CHANGES[schema]}" for schema in range(2, SCHEMA + 1)]
    check_upgraded(old)
    assert upgrade(old) == []


def test_a_new_directory_needs_no_upgrade(tmp_path: Path) -> None:
    directory = open_directory(tmp_path / "state")
    make(directory, header())

    assert planned(directory) == []
    with closing(open_reader(directory.requests)) as requests, closing(open_reader(directory.events)) as events:
        assert identity_of(requests) == identity_of(events) is not None


def test_a_check_shows_the_upgrade_and_writes_nothing(old: StateDirectory) -> None:
    before = contents(old)
    lines = changes_at_start(old.path, SAME_CLUSTER)

    assert lines[0].startswith(f"the state directory is upgraded from schema 1 to {SCHEMA}")
    assert contents(old) == before


def test_an_old_directory_can_be_read_without_an_upgrade(old: StateDirectory) -> None:
    before = contents(old)
    stored, state = read_directory(old.path)

    assert (stored.policy, state.jobs) == ("las", 29)
    assert contents(old) == before


KILLED = """
import os, shutil, signal, sys
from pathlib import Path
from fairlead.service.store.directory import StateDirectory
from fairlead.service.store.tokens import Role, new_token, store_token
from fairlead.service.store.upgrade import upgrade

def killed_at(line, state):
    '''Upgrade in a process that is killed before it executes that line of ours, the lines counted as they run.'''
    pid = os.fork()
    if pid:
        return os.WIFSIGNALED(os.waitpid(pid, 0)[1])
    left = [line]
    def trace(frame, event, argument):
        if "/service/store/" not in frame.f_code.co_filename:
            return None
        if event == "line":
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace
    sys.settrace(trace)
    upgrade(StateDirectory(state))
    os._exit(0)

source, target, line = Path(sys.argv[1]), Path(sys.argv[2]), 1
while True:
    shutil.copytree(source, target / str(line))
    if not killed_at(line, target / str(line)):
        break
    line += int(sys.argv[3])
print(line)
"""


def test_an_upgrade_that_is_killed_anywhere_is_finished_by_the_next_start(old: StateDirectory, tmp_path: Path) -> None:
    kills = tmp_path / "kills"
    subprocess.run([sys.executable, "-c", KILLED, str(old.path), str(kills), "11"], check=True)

    states, halves = [StateDirectory(path) for path in kills.iterdir()], 0
    for state in states:
        with closing(open_reader(state.requests)) as requests:
            halves += schema_of(requests) == SCHEMA and bool(planned(state))
        upgrade(state)
        check_upgraded(state)
    assert len(states) > 10
    assert halves > 1  # killed between the two files, or before the marker


@pytest.mark.parametrize("name", ["requests.db", "events.db", "state.json"])
def test_a_newer_directory_is_refused_with_the_way_out(old: StateDirectory, name: str) -> None:
    if name == "state.json":
        old.marker.write_text('{"fairlead": "state/99"}')
    else:
        with closing(sqlite3.connect(old.path / name)) as connection:
            connection.execute("PRAGMA user_version = 99")
    before = contents(old)

    for attempt in (planned, upgrade):
        with pytest.raises(StoreError, match=rf"{name} was written by a newer Fairlead \(schema 99.*restore a backup"):
            attempt(old)
    assert contents(old) == before


def test_a_writer_does_not_open_a_file_that_was_not_upgraded(old: StateDirectory) -> None:
    with pytest.raises(StoreError, match="older schema; start the service"):
        open_writer(old.events, EVENTS)


@pytest.mark.slow
def test_a_service_starts_on_a_directory_of_schema_1_and_runs_its_jobs(old: StateDirectory, tmp_path: Path) -> None:
    shown, token = new_token("test", Role.ADMIN, None, time.time(), 86400.0)
    with closing(sqlite3.connect(old.requests, isolation_level=None)) as requests:
        store_token(requests, token)
    service = Service(tmp_path)
    service.start()
    try:
        client = Client(f"http://127.0.0.1:{service.port}", shown)
        for job in ("j24", "j25", "j26"):  # ran `sleep 60` before the machine went down
            insist(partial(client.post, f"/jobs/{job}/cancel"))
        wait_for(
            lambda: client.get("/jobs/j40")["phase"] == "finished", "a job that was acknowledged by the old service"
        )
        wait_for(lambda: not client.get("/jobs", phase="waiting")["jobs"], "the jobs that waited")
        wait_for(
            lambda: {job["phase"] for job in client.get("/jobs", phase="active")["jobs"]} == {"held"},
            "the end of all but the held one",
        )
        counts = client.get("/status")["jobs"]
        assert (counts["finished"], counts["failed"], counts["held"]) == (17 + 4 + 5, 3, 1)
        assert client.get("/jobs/j1")["exit_code"] == 0
        assert "upgraded from schema 1" in (tmp_path / "serve.log").read_text()
    finally:
        service.stop()
        end_leases(service.state)
