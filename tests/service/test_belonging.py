"""Files of a state directory that do not belong together, or from which commits are gone, are noticed at the start."""

from __future__ import annotations

import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from fairlead.engines.requests import Command
from fairlead.model.events import Arrived
from fairlead.model.jobs import JobSpec
from fairlead.service.store import request_queue
from fairlead.service.store.backup import copy_database
from fairlead.service.store.belonging import continue_or_renew, read_files
from fairlead.service.store.commits import FencedError, begin_epoch, mark_of, read_mark
from fairlead.service.store.database import StoreError, open_writer
from fairlead.service.store.directory import StateDirectory, make, open_directory
from fairlead.service.store.incarnations import Incarnations, begin_incarnation, job_id, parse_job_id
from fairlead.service.store.log import Log, open_log
from fairlead.service.store.restore import restore
from fairlead.service.store.tables import EVENTS, REQUESTS
from fairlead.service.store.writer import Writer
from serving import header

JOB = request_queue.Submission("train", JobSpec("new", "t", "mine", 0.0, 1, None), Command("true"))


class Store:
    """Both files as the two processes of a service write them."""

    def __init__(self, directory: StateDirectory) -> None:
        self.directory = directory
        self.writer = Writer(open_writer(directory.requests, REQUESTS))
        self.events = open_writer(directory.events, EVENTS)
        self.log: Log = open_log(self.events)

    def submit(self, jobs: int = 1) -> list[str]:
        return [self.writer.write_now(lambda c: request_queue.submit(c, "ann", JOB)) for _ in range(jobs)]

    def take(self, id_: str) -> None:
        parsed = parse_job_id(id_)
        assert parsed is not None
        arrived = Arrived(time.time(), replace(JOB.spec, id=id_))
        self.log.event(arrived)
        self.log.state.fold(arrived)
        self.log.commit(parsed[1])


@contextmanager
def opened(directory: StateDirectory) -> Iterator[Store]:
    store = Store(directory)
    yield store
    store.writer.close()
    store.events.close()


@pytest.fixture
def directory(tmp_path: Path) -> StateDirectory:
    directory = open_directory(tmp_path / "state")
    make(directory, header())
    return directory


def crashed_copy(directory: StateDirectory, name: str, without: str = "nothing") -> StateDirectory:
    """The directory as a crash leaves it, while its files are open; some may be missing."""
    shutil.copytree(directory.path, directory.path.parent / name, ignore=shutil.ignore_patterns(without, "*-shm"))
    return StateDirectory(directory.path.parent / name)


def test_a_start_after_a_clean_end_or_a_kill_continues(directory: StateDirectory) -> None:
    with opened(directory) as store:
        for id_ in store.submit(3):
            store.take(id_)
        assert continue_or_renew(directory, ["j1", "j2"]) is None
    assert continue_or_renew(directory, ["j1", "j2"]) is None
    with opened(directory) as store:
        assert store.submit() == ["j4"]


@pytest.mark.parametrize("name", ["requests.db", "events.db"])
def test_a_deleted_write_ahead_log_is_refused(directory: StateDirectory, name: str) -> None:
    with opened(directory) as store:
        for id_ in store.submit(20):
            store.take(id_)
        damaged = crashed_copy(directory, "damaged", without=f"{name}-wal")

    with pytest.raises(StoreError, match=rf"(has 0 changes, but 20 were acknowledged.*{name}-wal is gone|is older)"):
        continue_or_renew(damaged, [])


@pytest.mark.parametrize("name", ["requests.db", "events.db"])
def test_one_older_file_beside_a_newer_one_is_refused(directory: StateDirectory, tmp_path: Path, name: str) -> None:
    with opened(directory) as store:
        store.take(store.submit()[0])
        copy_database(directory.path / name, tmp_path / name)
        for id_ in store.submit(5):
            store.take(id_)
    (tmp_path / name).rename(directory.path / name)

    with pytest.raises(StoreError, match=r"older") as refusal:
        continue_or_renew(directory, [])
    assert "nothing was changed" in str(refusal.value).lower()
    assert "fairlead restore" in str(refusal.value)


def test_an_older_copy_of_both_files_is_refused(directory: StateDirectory, tmp_path: Path) -> None:
    with opened(directory) as store:
        store.take(store.submit()[0])
        for path in (directory.events, directory.requests):
            copy_database(path, tmp_path / path.name)
        store.take(store.submit()[0])
    for path in (directory.events, directory.requests):
        (tmp_path / path.name).rename(path)

    with pytest.raises(StoreError, match=r"requests.db has 1 changes, but 2 were acknowledged.*fairlead restore"):
        continue_or_renew(directory, [])


def test_files_of_two_stores_are_refused(directory: StateDirectory, tmp_path: Path) -> None:
    other = open_directory(tmp_path / "other")
    make(other, header())
    shutil.copyfile(other.events, directory.events)

    with pytest.raises(StoreError, match=r"is of store \w+ and events.db of \w+"):
        continue_or_renew(directory, [])


def test_files_that_were_put_back_by_hand_are_refused(directory: StateDirectory) -> None:
    mark_of(directory.events).unlink()

    with pytest.raises(StoreError, match=r"events.mark is missing.*put back by hand.*fairlead restore"):
        continue_or_renew(directory, [])


def test_a_mark_that_is_behind_after_a_power_cut_is_no_reason_to_refuse(directory: StateDirectory) -> None:
    before = mark_of(directory.requests).read_bytes()
    with opened(directory) as store:
        store.submit(3)
    mark_of(directory.requests).write_bytes(before)

    assert continue_or_renew(directory, []) is None


def test_what_is_left_can_be_accepted_and_ids_are_not_used_again(directory: StateDirectory) -> None:
    with opened(directory) as store:
        store.submit(2)
        store.events.execute("PRAGMA wal_checkpoint")
        requests = sqlite3.connect(directory.requests)
        requests.execute("PRAGMA wal_checkpoint")
        requests.close()
        store.submit(3)
        damaged = crashed_copy(directory, "damaged", without="requests.db-wal")
    with pytest.raises(StoreError, match="acknowledged"):
        continue_or_renew(damaged, [])

    done = restore(damaged.path, damaged.path)
    assert (done.incarnation, done.requests, done.replaced) == (2, 2, None)
    assert continue_or_renew(damaged, []) is None
    with opened(damaged) as store:
        assert store.submit(2) == ["j2-3", "j2-4"]


def test_a_copy_of_the_whole_directory_begins_a_new_incarnation(directory: StateDirectory) -> None:
    with opened(directory) as store:
        store.submit(2)
    copy = crashed_copy(directory, "copy")

    reason = continue_or_renew(copy, [])
    assert reason is not None
    assert "requests.db and events.db is a copy" in reason
    assert continue_or_renew(copy, []) is None
    with opened(copy) as store:
        assert store.submit() == ["j2-3"]
    moved = copy.path.rename(copy.path.with_name("moved"))
    assert continue_or_renew(StateDirectory(moved), []) is None


def test_leases_that_are_newer_than_the_files_begin_a_new_incarnation(directory: StateDirectory) -> None:
    with opened(directory) as store:
        store.submit(2)

    reason = continue_or_renew(directory, ["j1", "j7"])
    assert reason is not None
    assert "(j7)" in reason
    assert continue_or_renew(directory, ["j1", "j7"]) is None  # they are known to be unknown
    with opened(directory) as store:
        assert store.submit() == ["j2-3"]
    assert continue_or_renew(directory, ["j1", "j7", "j2-3"]) is None
    assert "j2-4" in (continue_or_renew(directory, ["j2-4"]) or "")


def test_a_new_incarnation_that_was_interrupted_is_completed(directory: StateDirectory) -> None:
    with (
        closing(open_writer(directory.requests, REQUESTS)) as requests,
        closing(sqlite3.connect(":memory:")) as nowhere,
        pytest.raises(sqlite3.OperationalError),
    ):
        begin_incarnation(requests, nowhere, 2)  # the process ends before events.db is written

    assert continue_or_renew(directory, []) is None
    files = read_files(directory)
    assert files.requests.identity == files.events.identity
    assert files.requests.identity.incarnation == 2


def test_ids_say_to_which_incarnation_a_job_belongs() -> None:
    assert [parse_job_id(job_id(*key)) for key in ((1, 7), (2, 7), (12, 345))] == [(1, 7), (2, 7), (12, 345)]
    assert [parse_job_id(text) for text in ("7", "j", "j0", "j2-", "k7", "j7x")] == [None] * 6
    store = Incarnations(((1, 0), (2, 40)), last=45)
    assert store.unknown(["j40", "j41", "j2-40", "j2-41", "j2-46", "j3-1", "notes"]) == [
        "j41",
        "j2-40",
        "j2-46",
        "j3-1",
    ]
    assert [store.lease_floor(id_) for id_ in ("j7", "j2-41")] == [1000, 0]
    assert store.strangers(["j40", "j41", "j2-41", "j2-44"], taken=43) == ["j41", "j2-44"]


def test_a_process_of_an_earlier_start_cannot_commit(directory: StateDirectory) -> None:
    reasons: list[str] = []
    first = Writer(open_writer(directory.requests, REQUESTS), fenced=reasons.append)
    first.write_now(lambda c: request_queue.submit(c, "ann", JOB))
    with closing(open_writer(directory.requests, REQUESTS)) as connection:
        begin_epoch(connection)  # a second service that got hold of a lock, by whatever means
    with pytest.raises(FencedError, match="another service has taken over"):
        first.write_now(lambda c: request_queue.submit(c, "ann", JOB))
    first.close()
    assert reasons

    assert read_files(directory).incarnations.last == 1
    events = open_writer(directory.events, EVENTS)
    log = open_log(events)
    begin_epoch(events)
    arrived = Arrived(time.time(), JOB.spec)
    log.event(arrived)
    log.state.fold(arrived)
    with pytest.raises(FencedError, match="another service has taken over"):
        log.commit(1)
    assert events.execute("SELECT count(*) FROM log").fetchone()[0] == 0
    events.close()


def test_the_mark_follows_every_commit_and_no_failed_one(directory: StateDirectory) -> None:
    def changes() -> int:
        mark = read_mark(directory.requests)
        assert mark is not None
        return mark.changes

    def fails(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO nowhere VALUES (1)")

    with opened(directory) as store:
        before = changes()
        store.submit(3)
        assert changes() == before + 3 == read_files(directory).requests.changes
        with pytest.raises(sqlite3.OperationalError, match="nowhere"):
            store.writer.write_now(fails)
        store.submit()
        assert changes() == read_files(directory).requests.changes
