"""The two files: what is refused, what migrates, what a full disk leaves behind."""

from __future__ import annotations

import math
import sqlite3
import stat
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from building import THREE
from fairlead.engines.local.files import LocalReader
from fairlead.engines.requests import Cancel, Command, Hold, SetTenant, Submit
from fairlead.model.cluster import parse_short_form
from fairlead.model.decision import Cause, Decision
from fairlead.model.events import Arrived, NodeDown, TenantSet
from fairlead.model.jobs import JobSpec
from fairlead.rounds.journal import Header
from fairlead.service.store import changes, request_queue
from fairlead.service.store.database import (
    DiskFullError,
    Kind,
    StoreError,
    create,
    is_full,
    migrate,
    open_reader,
    open_writer,
)
from fairlead.service.store.directory import StateDirectory, describe_differences, is_new, make, open_directory
from fairlead.service.store.log import open_log
from fairlead.service.store.reads import Reads
from fairlead.service.store.tables import EVENTS, REQUESTS
from fairlead.service.store.writer import Writer

ONE = Kind("things", 7, ("CREATE TABLE things (name TEXT)",))
TWO = Kind(
    "things", 7, (*ONE.migrations, "ALTER TABLE things ADD COLUMN size INTEGER; INSERT INTO things VALUES ('b', 2)")
)


def header(cluster: str = "v100:4") -> Header:
    return Header(parse_short_form(cluster), THREE, None, "fifo", {}, {}, {}, {"unmeasured": True})


@pytest.fixture
def directory(tmp_path: Path) -> StateDirectory:
    directory = open_directory(tmp_path / "state")
    make(directory, header())
    return directory


def submission(tenant: str = "t") -> request_queue.Submission:
    return request_queue.Submission(
        "train", JobSpec("new", tenant, "mine", 0.0, 1, None), Command("true", env={"A": "b"})
    )


# ---- migrations ---------------------------------------------------------------------------------------------------


def test_a_new_file_has_the_newest_tables(tmp_path: Path) -> None:
    create(tmp_path / "x", TWO)

    connection = open_writer(tmp_path / "x", TWO)
    assert [tuple(row) for row in connection.execute("SELECT * FROM things")] == [("b", 2)]
    assert connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    assert connection.execute("PRAGMA synchronous").fetchone()[0] == 2
    connection.close()


def test_an_older_file_is_brought_up_to_date_and_keeps_its_rows(tmp_path: Path) -> None:
    create(tmp_path / "x", ONE)
    before = open_writer(tmp_path / "x", ONE)
    before.execute("INSERT INTO things VALUES ('a')")
    before.close()

    migrate(tmp_path / "x", TWO)
    connection = open_writer(tmp_path / "x", TWO)
    assert [tuple(row) for row in connection.execute("SELECT * FROM things")] == [("a", None), ("b", 2)]
    connection.close()


def test_a_migration_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    create(tmp_path / "x", ONE)
    bad = Kind("things", 7, (*ONE.migrations, "INSERT INTO things VALUES ('half'); SELECT nonsense FROM nowhere"))

    with pytest.raises(StoreError, match="from schema 1 to 2"):
        migrate(tmp_path / "x", bad)
    connection = open_writer(tmp_path / "x", ONE)
    assert connection.execute("SELECT count(*) FROM things").fetchone()[0] == 0
    connection.close()


def test_a_newer_file_is_refused(tmp_path: Path) -> None:
    create(tmp_path / "x", TWO)
    with pytest.raises(StoreError, match=r"newer Fairlead \(schema 2, this one knows up to 1\).*restore a backup"):
        open_writer(tmp_path / "x", ONE)


def test_a_file_of_another_kind_is_refused(directory: StateDirectory) -> None:
    with pytest.raises(StoreError, match="not Fairlead's file of events"):
        open_writer(directory.requests, EVENTS)


# ---- what is refused ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["requests", "events"])
@pytest.mark.parametrize("damage", ["rubbish", "hole", "short", "empty"])
def test_a_damaged_file_is_refused_and_left_alone(directory: StateDirectory, name: str, damage: str) -> None:
    path, kind = (directory.requests, REQUESTS) if name == "requests" else (directory.events, EVENTS)
    body = bytearray(path.read_bytes())
    if damage == "rubbish":
        body[:] = b"not a database at all" * 100
    elif damage == "hole":
        body[4096:] = b"\xff" * (len(body) - 4096)
    elif damage == "short":
        del body[len(body) // 2 :]
    else:
        del body[:]
    path.write_bytes(body)
    for side in ("-wal", "-shm"):
        Path(f"{path}{side}").unlink(missing_ok=True)

    with pytest.raises(StoreError):
        open_writer(path, kind)
    assert path.read_bytes() == body


def test_a_missing_file_is_not_made_again(directory: StateDirectory) -> None:
    directory.events.unlink()
    with pytest.raises(StoreError, match=r"events.db is missing; restore"):
        is_new(directory)


def test_a_missing_marker_over_data_is_refused(directory: StateDirectory) -> None:
    connection = open_writer(directory.requests, REQUESTS)
    request_queue.submit(connection, "ann", submission())
    connection.close()
    directory.marker.unlink()

    with pytest.raises(StoreError, match=r"state.json is missing although requests.db contains data"):
        is_new(directory)


def test_a_first_start_that_was_cut_short_begins_again(directory: StateDirectory) -> None:
    directory.marker.unlink()

    assert is_new(directory)
    make(directory, header())
    assert not is_new(directory)


def test_a_marker_of_a_later_version_is_refused(directory: StateDirectory) -> None:
    directory.marker.write_text('{"fairlead": "state/9"}')
    with pytest.raises(StoreError, match=r"state.json was written by a newer Fairlead \(schema 9"):
        is_new(directory)


def test_a_difference_names_the_types_and_nodes() -> None:
    def lines(before: str, now: str) -> list[str]:
        return describe_differences(parse_short_form(before), parse_short_form(now))

    assert lines("v100:8,k80:4", "v100:8,k80:4") == []
    assert lines("v100:8", "v100:12,t4:4") == [
        "v100: 8 GPUs then, 12 now",
        "t4: 0 GPUs then, 4 now",
        "nodes only now: v100-3, t4-1",
    ]
    assert lines("v100:8,k80:4", "v100:8x8") == [
        "k80: 4 GPUs then, 0 now",
        "nodes only then: v100-2, k80-1",
        "other nodes: v100-1 (4 v100 then, 8 v100 now)",
    ]
    assert lines("v100:4,k80:4", "k80:4,v100:4") == []
    assert lines("v100:4", "v100:80")[1].endswith("v100-7 and 13 more")


def test_a_log_with_a_gap_is_refused(directory: StateDirectory) -> None:
    connection = open_writer(directory.events, EVENTS)
    connection.execute("INSERT INTO log VALUES (2, 0.0, 'node_down', '{}')")
    with pytest.raises(StoreError, match="record 2"):
        open_log(connection)
    connection.close()


def test_the_directory_is_closed_to_others_and_used_by_one(directory: StateDirectory) -> None:
    assert stat.S_IMODE(directory.path.stat().st_mode) == 0o700
    assert stat.S_IMODE(directory.requests.stat().st_mode) == 0o600

    directory.lock("service")
    with pytest.raises(StoreError, match="another fairlead uses"):
        directory.lock("service")


def test_a_path_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("")
    with pytest.raises(StoreError, match="cannot be used as state directory"):
        open_directory(tmp_path / "x")


# ---- requests -----------------------------------------------------------------------------------------------------


def test_requests_are_read_back_in_order(directory: StateDirectory) -> None:
    connection = open_writer(directory.requests, REQUESTS)
    first = request_queue.submit(connection, "ann", submission())
    request_queue.append(connection, "ann", Hold(first))
    second = request_queue.submit(connection, "ann", submission("u"))

    requests = request_queue.read_after(connection, 0)
    assert [number for number, _ in requests] == [1, 2, 3]
    assert isinstance(requests[0][1], Submit)
    assert (requests[0][1].spec.id, requests[0][1].command.env) == (first, {"A": "b"})
    assert requests[1][1] == Hold(first)
    assert second != first
    assert request_queue.read_after(connection, 3) == []
    assert request_queue.command_of(connection, second).run == "true"
    connection.close()


def test_a_full_disk_is_said_and_leaves_nothing_half_done(directory: StateDirectory) -> None:
    connection = open_writer(directory.requests, REQUESTS)
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages + 3}")
    writer = Writer(connection)
    large = request_queue.Submission("train", submission().spec, Command("true", env={"A": "x" * 3000}))

    taken: list[str] = []

    def until_full() -> None:
        while len(taken) < 50:
            taken.append(writer.write_now(lambda c: request_queue.submit(c, "ann", large)))

    with pytest.raises(DiskFullError, match="free some space"):
        until_full()
    reader = open_reader(directory.requests)
    assert [row[0] for row in reader.execute("SELECT id FROM jobs")] == taken
    assert reader.execute("SELECT count(*) FROM requests").fetchone()[0] == len(taken)

    writer.write_now(lambda c: c.execute(f"PRAGMA max_page_count = {pages + 300}").fetchone())
    assert writer.write_now(lambda c: request_queue.submit(c, "ann", large)) == f"j{len(taken) + 1}"
    reader.close()
    writer.close()


@pytest.mark.parametrize(
    ("code", "full"),
    [(sqlite3.SQLITE_FULL, True), (sqlite3.SQLITE_IOERR_SHMSIZE, True), (sqlite3.SQLITE_IOERR_READ, False)],
)
def test_only_a_lack_of_room_is_called_full(code: int, full: bool) -> None:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = code
    assert is_full(error) == full


def test_a_change_that_fails_undoes_itself_alone(directory: StateDirectory) -> None:
    writer = Writer(open_writer(directory.requests, REQUESTS))

    def fails(connection: sqlite3.Connection) -> None:
        request_queue.append(connection, "ann", Cancel("j9"))
        raise ValueError("changed my mind")

    with pytest.raises(ValueError, match="changed my mind"):
        writer.write_now(fails)
    writer.write_now(lambda c: request_queue.append(c, "ann", Cancel("j1")))
    reader = open_reader(directory.requests)
    assert [request for _, request in request_queue.read_after(reader, 0)] == [Cancel("j1")]
    reader.close()
    writer.close()


def test_keys_of_long_ago_are_forgotten(directory: StateDirectory) -> None:
    connection = open_writer(directory.requests, REQUESTS)
    for key, time_s in (("old", 0.0), ("new", time.time())):
        connection.execute("INSERT INTO idempotency VALUES ('t', ?, '', 'j1', ?)", (key, time_s))
    changes.forget_old_keys(connection)

    assert [row[0] for row in connection.execute("SELECT key FROM idempotency")] == ["new"]
    connection.close()


# ---- what a decision writes ---------------------------------------------------------------------------------------


def test_requests_that_a_decision_answers_are_taken_with_it(directory: StateDirectory) -> None:
    """Otherwise a start after a kill would take them again, and jobs that were forgotten meanwhile would arrive twice."""
    writer, connection = open_writer(directory.requests, REQUESTS), open_writer(directory.events, EVENTS)
    request_queue.submit(writer, "x", submission())
    request_queue.append(writer, "x", SetTenant("t", 3.0))
    log = open_log(connection)
    inbox = request_queue.StoredInbox(writer, log, [], lambda timeout_s: False)
    requests = inbox.take(0.0)
    assert requests is not None
    submitted = requests[0]
    assert isinstance(submitted, Submit)
    for event in (
        Arrived(log.clock(), replace(submitted.spec, arrival_s=log.clock())),
        TenantSet(log.clock(), "t", 3.0),
    ):
        log.event(event)
        log.state.fold(event)
    nothing = np.array([], dtype=np.int64)
    log.decision(Decision(log.clock(), Cause.EVENT, nothing, nothing, (), math.inf, ""))

    after = open_log(connection)
    assert after.taken == 2
    with closing(Reads(directory, LocalReader(directory.path))) as reads:
        assert reads.taken() == 0, "no row shows what the requests have changed"
        assert reads.taken_and_waiting("t") == (0, 0)
        after.commit(2)
        assert reads.taken() == 2
        assert reads.taken_and_waiting("t") == (2, 1)
    assert connection.execute("SELECT weight FROM tenants").fetchone()[0] == 3.0
    writer.close()
    connection.close()


def test_a_node_that_only_a_decision_has_written_is_in_the_tables_after_the_next_commit(
    directory: StateDirectory,
) -> None:
    """No job is touched by it, and nothing else may happen for hours."""
    connection = open_writer(directory.events, EVENTS)
    log = open_log(connection)
    down, nothing = NodeDown(log.clock(), 0), np.array([], dtype=np.int64)
    log.event(down)
    log.state.fold(down)
    log.decision(Decision(log.clock(), Cause.EVENT, nothing, nothing, (), math.inf, ""))

    log.commit(log.taken)

    with closing(Reads(directory, LocalReader(directory.path))) as reads:
        assert [node.up for node in reads.nodes()] == [False]
    connection.close()
