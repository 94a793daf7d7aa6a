"""What is old goes from the state directory into the archive, from which everything can be read again."""

from __future__ import annotations

import errno
import io
import json
import os
import sqlite3
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairlead.cli.archive import archive as archive_command
from fairlead.cli.output import Format
from fairlead.engines.clock import MachineClocks
from fairlead.engines.local.files import LocalReader, work_root
from fairlead.engines.requests import Cancel, Command, Drain
from fairlead.model.decision import Cause, Decision
from fairlead.model.errors import NotFoundError
from fairlead.model.events import Arrived, Cancelled, Event, Finished, Started
from fairlead.model.jobs import JobSpec
from fairlead.service.store import archive, request_queue
from fairlead.service.store.archive import ArchiveError, archived_jobs, segments
from fairlead.service.store.archived_leases import read_back_leases, remove_leases, write_leases
from fairlead.service.store.audit_file import audit_log, store_audit
from fairlead.service.store.backup import MANIFEST, back_up, copy_database
from fairlead.service.store.commits import FencedError, begin_epoch
from fairlead.service.store.database import open_writer
from fairlead.service.store.directory import StateDirectory, make, open_directory
from fairlead.service.store.log import Log, open_log
from fairlead.service.store.reads import Reads
from fairlead.service.store.restore import restore
from fairlead.service.store.retention import Retention, archive_old, keep_up
from fairlead.service.store.tables import EVENTS, REQUESTS
from fairlead.service.store.tokens import Role
from fairlead.studies.fairness.journal_audit import audit_journal
from fairlead.studies.journals.folding import state_at
from fairlead.studies.journals.replaying import replay_journal
from serving import World, header, world

DAY_S = 86400.0
RETENTION = Retention(10 * DAY_S, least_records=1, patience_s=0.0, rows=3, pause_s=0.0)


class Service:
    """The scheduler's side by hand: each job runs for an hour on its own, one a day."""

    def __init__(self, directory: StateDirectory) -> None:
        self.directory, self.now_s = directory, 0.0
        self.requests = open_writer(directory.requests, REQUESTS)
        self.events = open_writer(directory.events, EVENTS)
        self.log: Log = open_log(self.events, MachineClocks(lambda: self.now_s, lambda: self.now_s))

    def close(self) -> None:
        self.requests.close()
        self.events.close()

    def day(self, tenant: str = "t", *, forget: bool = True) -> str:
        self.now_s += DAY_S
        spec = JobSpec("new", tenant, "even", 0.0, 1, None)
        id_ = request_queue.submit(self.requests, "ann", request_queue.Submission("train", spec, Command("true")))
        self._fold(Arrived(self.now_s, JobSpec(id_, tenant, "even", self.now_s, 1, None)))
        at = np.array([self.log.state.jobs - 1])
        decision = Decision(self.now_s, Cause.EVENT, at[:0], at, (((0, 1),),), self.now_s, "by hand", None)
        self.log.decision(decision)
        self.log.state.fold(decision)
        self._fold(Started(self.now_s, at, np.ones(1), np.full(1, self.now_s)))
        self.log.commit(int(id_[1:]))
        self._leave_lease(id_)
        self.now_s += 3600.0
        self._fold(Finished(self.now_s, at, np.full(1, 3600.0)))
        self.log.commit(int(id_[1:]))
        if forget:
            self.log.forget(at)
        return id_

    def archive(self) -> list[archive.Segment]:
        return archive_old(self.directory, RETENTION, MachineClocks(lambda: self.now_s))

    def _fold(self, event: Event) -> None:
        self.log.event(event)
        self.log.state.fold(event)

    def _leave_lease(self, job: str) -> None:
        lease = self.directory.leases / job / "1"
        lease.mkdir(parents=True, exist_ok=True)
        (self.directory.leases / job / "checkpoints").mkdir(exist_ok=True)
        (lease / "log").write_text(f"output of {job}\n")


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    directory = open_directory(tmp_path / "state")
    make(directory, header())
    with closing(Service(directory)) as service:
        yield service


def test_old_jobs_leave_both_databases_and_the_leases(service: Service) -> None:
    ids = [service.day() for _ in range(30)]

    (segment,) = service.archive()

    kept = ids[-10:]
    assert [job["id"] for job in archived_jobs(service.directory, segment)] == ids[:-10]
    for file in (service.requests, service.events):
        assert [row["id"] for row in file.execute("SELECT id FROM jobs ORDER BY rowid")] == kept
    assert service.requests.execute("SELECT count(*) FROM requests").fetchone()[0] == len(kept)
    assert service.events.execute("SELECT min(seq) FROM log").fetchone()[0] == segment.last_seq + 1
    assert sorted(path.name for path in service.directory.leases.iterdir()) == sorted(kept)
    assert service.archive() == []


def test_a_segment_is_a_journal_that_can_be_audited_replayed_and_folded(service: Service) -> None:
    for _ in range(15):
        service.day()
    (first,) = service.archive()
    for _ in range(5):
        service.day()
    (second,) = service.archive()

    assert (first.first_seq, second.first_seq) == (1, first.last_seq + 1)
    journals = [service.directory.archive / f"{one.name}.journal.gz" for one in (first, second)]
    assert [state_at(path).forgotten for path in journals] == [first.jobs, first.jobs + second.jobs]
    hours = [sum(audit_journal(path).tenants["t"].gpu_hours.values()) for path in journals]
    assert hours == pytest.approx([first.jobs, second.jobs])
    assert replay_journal(journals[1]).not_compared == second.jobs  # the policy was set before


def test_leases_are_archived_without_checkpoints_which_stay(service: Service) -> None:
    old = service.day()
    (service.directory.leases / old / "checkpoints" / "step-1").write_text("weights")
    for _ in range(12):
        service.day()

    segment = service.archive()[0]

    with tarfile.open(service.directory.archive / f"{segment.name}.leases.tar.gz") as tar:
        assert f"{old}/1/log" in tar.getnames()
        content = tar.extractfile(f"{old}/1/log")
        assert content is not None
        assert content.read().decode() == f"output of {old}\n"
    assert [path.name for path in (service.directory.leases / old).iterdir()] == ["checkpoints"]
    remove_leases(service.directory.path, [old])  # again: nothing happens


def test_files_of_jobs_that_run_as_another_user_are_archived_before_they_are_removed(service: Service) -> None:
    outside = work_root(service.directory.path)
    old = service.day()
    for name in ("1/report/progress.json", "checkpoints/step-1"):
        (outside / "leases" / old / name).parent.mkdir(parents=True, exist_ok=True)
        (outside / "leases" / old / name).write_text(f"{name} of {old}")
    for _ in range(12):
        service.day()

    segment = service.archive()[0]

    with tarfile.open(service.directory.archive / f"{segment.name}.leases.tar.gz") as tar:
        assert {f"{old}/1/log", f"work/{old}/1/report/progress.json"} <= set(tar.getnames())
        content = tar.extractfile(f"work/{old}/1/report/progress.json")
        assert content is not None
        assert content.read().decode() == f"1/report/progress.json of {old}"
    assert [path.name for path in (outside / "leases" / old).iterdir()] == ["checkpoints"]


def test_a_file_that_its_owner_still_changes_does_not_hold_up_the_archive(tmp_path: Path) -> None:
    """Other processes of the tenant may write to the files of a job that has ended."""
    lease = tmp_path / "leases" / "j1" / "1"
    lease.mkdir(parents=True)
    (lease / "log").write_bytes(os.urandom(1 << 20))
    (lease / "removed").write_text("removed while the log is copied")

    class Output(io.BytesIO):
        """Once something of the log has been written, the files become others."""

        def write(self, data: Any, /) -> int:
            if self.tell() + len(data) > 1000:
                (lease / "log").write_bytes(b"short")
                (lease / "removed").unlink(missing_ok=True)
            return super().write(data)

    output = Output()
    digests = write_leases(output, tmp_path, ["j1"])
    (tmp_path / "archived").write_bytes(output.getvalue())

    assert list(digests) == ["j1/1/log"]
    assert read_back_leases(tmp_path / "archived", digests)
    assert not read_back_leases(tmp_path / "archived", {"j1/1/log": "of other bytes"})
    assert not read_back_leases(tmp_path / "archived", {**digests, "j1/1/exit.json": "missing"})


def test_a_start_after_archiving_continues_without_snapshots(service: Service) -> None:
    last = [service.day(forget=number < 20) for number in range(22)][-2:]
    service.archive()
    service.events.execute("DELETE FROM snapshots")

    again = open_log(service.events)

    assert [spec.id for spec in again.state.specs] == last
    assert again.state.forgotten == 20
    assert again.state.busy_gpu_s == service.log.state.busy_gpu_s


def test_the_audit_covers_the_whole_life_of_the_service(service: Service) -> None:
    for number in range(30):
        service.day("ab"[number % 2])
    before = audit_log(service.directory)
    store_audit(service.directory)
    service.archive()

    assert audit_log(service.directory) == before
    service.directory.audit_file.write_bytes(b"damaged")
    assert audit_log(service.directory) == before  # from the archive
    assert sum(before.tenants["a"].gpu_hours.values()) == pytest.approx(15.0)


def test_nothing_is_removed_if_the_archive_differs_from_the_log(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(15):
        service.day()
    write = archive._write_lines

    def loses_a_line(path: Path, lines: Iterator[str]) -> Path:
        kept = list(lines)
        return write(path, kept[:-1] if "journal" in path.name else kept)

    monkeypatch.setattr(archive, "_write_lines", loses_a_line)
    with pytest.raises(ArchiveError, match="differs from the log; nothing was removed"):
        service.archive()

    assert segments(service.directory) == []
    assert service.events.execute("SELECT count(*) FROM jobs").fetchone()[0] == 15
    assert service.events.execute("SELECT min(seq) FROM log").fetchone()[0] == 1


def test_requests_that_still_count_stay(service: Service) -> None:
    service.requests.execute("BEGIN")
    request_queue.append(service.requests, "ann", Drain("v100-0"))
    request_queue.append(service.requests, "ann", Drain("v100-1"))
    service.requests.execute("COMMIT")
    old = service.day()
    request_queue.append(service.requests, "ann", Cancel(old))
    service.requests.execute("UPDATE requests SET time_s = 0")
    for _ in range(12):
        service.day()

    service.archive()

    assert request_queue.drained(service.requests, 10**6) == ["v100-0", "v100-1"]
    assert service.requests.execute("SELECT count(*) FROM requests WHERE kind = 'cancel'").fetchone()[0] == 0


def archive_first_job(here: World) -> archive.Segment:
    """Twenty days after its job was cancelled."""
    here.happen(Cancelled(here.log.state.now_s, np.array([0])))
    here.log.commit(here.log.taken)
    here.log.forget(np.array([0]))
    later = MachineClocks(lambda: here.log.state.now_s + 20 * DAY_S)
    (segment,) = archive_old(here.service.directory, RETENTION, later)
    return segment


def test_the_api_answers_for_an_archived_job_where_it_is(tmp_path: Path) -> None:
    with world(tmp_path) as here:
        job = here.submit(tenant="a")
        kept = here.submit(tenant="a")
        here.take()
        segment = archive_first_job(here)

        for path in (f"/v1/jobs/{job}", f"/v1/jobs/{job}/logs"):
            answer = here.client.get(path, headers=here.admin)
            assert answer.status_code == 410
            assert answer.json()["error"]["code"] == "job_archived"
            assert "was cancelled on" in answer.json()["error"]["message"]
            assert segment.name in answer.json()["error"]["remedy"]
        hidden = here.client.get(f"/v1/jobs/{job}", headers=here.token(Role.MEMBER, "b"))
        assert hidden.status_code == 404
        assert [row["id"] for row in here.client.get("/v1/jobs", headers=here.admin).json()["jobs"]] == [kept]
        assert here.client.get("/v1/status", headers=here.admin).json()["jobs"]["archived"] == 1
        (tmp_path / "journal").write_text(here.client.get("/v1/journal", headers=here.admin).text)
    assert [spec.id for spec in state_at(tmp_path / "journal").specs] == [kept]


def test_events_that_are_archived_are_not_passed_over_without_a_word(tmp_path: Path) -> None:
    with world(tmp_path) as here:
        here.submit(tenant="a")
        here.take()
        segment = archive_first_job(here)

        answer = here.client.get("/v1/events?after=1", headers=here.admin)
        assert answer.status_code == 410
        assert answer.json()["error"]["code"] == "events_archived"
        assert f"up to {segment.last_seq}" in answer.json()["error"]["message"]
        assert f"after={segment.last_seq}" in answer.json()["error"]["remedy"]
        assert here.client.get("/v1/events?after=0&follow=true", headers=here.admin).status_code == 410

        nothing = here.client.get(f"/v1/events?after={segment.last_seq}", headers=here.admin)
        assert (nothing.status_code, nothing.text) == (200, "")
        assert nothing.headers["Fairlead-Last-Seq"] == str(segment.last_seq)
        here.submit(tenant="a")
        here.take()
        (line,) = here.client.get("/v1/events", headers=here.admin).text.splitlines()  # from the first one that is kept
        assert json.loads(line)["seq"] == segment.last_seq + 1


def test_upkeep_is_a_process_that_audits_and_archives(service: Service) -> None:
    ids = [service.day() for _ in range(12)]
    command = [sys.executable, "-m", "fairlead.service.process.upkeep", str(service.directory.path), "3600.0", "0"]

    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    assert sum(segment.jobs for segment in segments(service.directory)) == len(ids)
    assert service.directory.audit_file.exists()
    with closing(Reads(service.directory, LocalReader(service.directory.path))) as reads:
        assert reads.counts(None) == {"submitted": 0, "archived": 12}
        assert reads.by_tenant()["t"].gpu_hours == pytest.approx(12.0)
        assert list(reads.tenants()) == ["t"]


@pytest.mark.parametrize(("file", "moment"), [("requests", "INSERT ON archived"), ("events", "DELETE ON log")])
def test_a_removal_ends_when_a_later_service_takes_over(service: Service, file: str, moment: str) -> None:
    for _ in range(15):
        service.day()
    raised = "UPDATE facts SET value = 1 WHERE name = 'epoch'"
    getattr(service, file).execute(f"CREATE TRIGGER takes_over AFTER {moment} BEGIN {raised}; END")

    with pytest.raises(FencedError, match="another service has taken over"):
        service.archive()

    archived = service.requests.execute("SELECT count(*) FROM archived").fetchone()[0]
    assert archived == (RETENTION.rows if file == "requests" else 5)
    assert service.events.execute("SELECT count(*) FROM jobs").fetchone()[0] == 15


def test_upkeep_of_an_earlier_service_removes_nothing(service: Service) -> None:
    ids = [service.day() for _ in range(15)]
    begin_epoch(service.requests)

    with pytest.raises(FencedError, match="another service has taken over"):
        keep_up(service.directory, 3600.0, epoch=0)

    assert [row["id"] for row in service.events.execute("SELECT id FROM jobs ORDER BY position")] == ids
    assert segments(service.directory) == []


def contents(directory: StateDirectory) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.archive.iterdir()}


@pytest.mark.parametrize("linked", [True, False], ids=["linked", "copied"])
def test_a_backup_contains_the_archive_and_a_restore_puts_it_back(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, linked: bool
) -> None:
    if not linked:
        monkeypatch.setattr(os, "link", refuses)
    for _ in range(15):
        service.day()
    service.archive()
    at_backup, audit = contents(service.directory), audit_log(service.directory)
    manifest = back_up(service.directory.path, tmp_path / "backup")
    for _ in range(15):
        service.day()
    service.archive()
    later = contents(service.directory)
    service.close()

    restore(tmp_path / "backup", tmp_path / "elsewhere")
    done = restore(tmp_path / "backup", service.directory.path, overwrite=True)

    assert {f"archive/{name}" for name in at_backup} < set(manifest.digests)
    for path in (tmp_path / "elsewhere", service.directory.path):
        assert contents(StateDirectory(path)) == at_backup
        assert audit_log(StateDirectory(path)) == audit
    assert done.replaced is not None
    assert contents(StateDirectory(done.replaced)) == later


def refuses(*_: object) -> None:
    raise OSError(errno.EXDEV, "Invalid cross-device link")


def test_a_removal_that_had_begun_at_a_backup_continues_after_the_restore(service: Service, tmp_path: Path) -> None:
    """The jobs were gone from requests.db and not from events.db yet, as after a kill."""
    ids = [service.day() for _ in range(15)]
    copy_database(service.directory.events, tmp_path / "events.db")
    service.archive()
    back_up(service.directory.path, tmp_path / "backup")
    (tmp_path / "backup" / MANIFEST).unlink()
    (tmp_path / "events.db").rename(tmp_path / "backup" / "events.db")

    restore(tmp_path / "backup", tmp_path / "elsewhere")
    with closing(Service(StateDirectory(tmp_path / "elsewhere"))) as restored:
        restored.now_s = service.now_s
        restored.archive()
        for file in (restored.requests, restored.events):
            assert [row["id"] for row in file.execute("SELECT id FROM jobs ORDER BY rowid")] == ids[-10:]


def test_the_command_line_shows_an_archived_job(service: Service, capsys: pytest.CaptureFixture[str]) -> None:
    ids = [service.day() for _ in range(12)]
    (segment,) = service.archive()

    archive_command(ids[0], service.directory.path, Format.json)
    shown = json.loads(capsys.readouterr().out)
    archive_command(None, service.directory.path, Format.json)
    listed = json.loads(capsys.readouterr().out)

    assert (shown["id"], shown["name"], shown["facts"]["phase"]) == (ids[0], "train", "finished")
    assert str(service.directory.archive / f"{segment.name}.leases.tar.gz") in shown["files"]
    assert [one["jobs"] for one in listed] == [segment.jobs]
    with pytest.raises(NotFoundError, match=f"{ids[-1]} is not in"):
        archive_command(ids[-1], service.directory.path, Format.table)


def test_a_segment_that_a_restored_log_does_not_have_is_set_aside(service: Service) -> None:
    copies = {name: service.directory.path / f"{name}.copy" for name in ("requests", "events")}
    for _ in range(13):
        service.day()
    for file, copy in ((service.requests, copies["requests"]), (service.events, copies["events"])):
        with closing(sqlite3.connect(copy)) as target:
            file.backup(target)
    service.day()
    service.now_s += 30 * DAY_S
    (first,) = service.archive()
    service.close()
    for name, copy in copies.items():  # an older state, after which other things happen
        for side in ("-wal", "-shm"):
            (service.directory.path / f"{name}.db{side}").unlink(missing_ok=True)
        copy.rename(service.directory.path / f"{name}.db")

    with closing(Service(service.directory)) as again:
        again.now_s = 100 * DAY_S
        ids = [again.day("other") for _ in range(12)]
        (second,) = again.archive()

    assert second.number == first.number + 1
    assert [one.number for one in segments(service.directory)] == [second.number]
    assert (service.directory.archive / f"{first.name}.replaced").exists()
    assert [job["id"] for job in archived_jobs(service.directory, second)][-2:] == ids[:2]
    assert audit_log(service.directory).tenants.keys() == {"t", "other"}


def test_ids_of_archived_jobs_are_not_given_again(service: Service) -> None:
    ids = [service.day() for _ in range(12)]
    service.now_s += 30 * DAY_S
    service.archive()

    assert service.requests.execute("SELECT count(*) FROM jobs").fetchone()[0] == 0
    assert service.day() not in ids
