"""Backups are complete or absent, and after a restore every job is accounted for and nothing runs twice."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from old_states import unpack
from test_belonging import opened

from daemons import Service, insist, running
from fairlead.engines.local import shim
from fairlead.engines.local.processes import is_locked
from fairlead.engines.slurm.watch_file import FILE as WATCHED
from fairlead.engines.slurm.watch_file import read_record
from fairlead.service.store.backup import MANIFEST, back_up, read_manifest
from fairlead.service.store.belonging import continue_or_renew, read_files
from fairlead.service.store.database import StoreError, open_reader
from fairlead.service.store.directory import StateDirectory, is_new, make, open_directory
from fairlead.service.store.restore import restore
from fairlead.service.store.upgrade import planned
from serving import header
from waiting import until_told, wait_for


@pytest.fixture
def directory(tmp_path: Path) -> StateDirectory:
    directory = open_directory(tmp_path / "state")
    make(directory, header())
    return directory


def ids(directory: StateDirectory) -> list[str]:
    with closing(open_reader(directory.requests)) as reader:
        return [row[0] for row in reader.execute("SELECT id FROM jobs ORDER BY number")]


# ---- backups ------------------------------------------------------------------------------------------------------


def test_a_backup_of_open_files_has_every_commit_and_can_be_checked(directory: StateDirectory, tmp_path: Path) -> None:
    with opened(directory) as store:
        for id_ in store.submit(3):
            store.take(id_)
        back_up(directory.path, tmp_path / "backup")
        store.submit()

    assert ids(StateDirectory(tmp_path / "backup")) == ["j1", "j2", "j3"]
    manifest = read_manifest(tmp_path / "backup")
    assert manifest is not None
    assert set(manifest.digests) == {"requests.db", "events.db", "state.json"}
    assert sorted(os.listdir(tmp_path)) == ["backup", "state"]


def test_the_record_of_a_watched_slurm_is_in_the_backup_and_comes_back(
    directory: StateDirectory, tmp_path: Path
) -> None:
    (directory.path / WATCHED).write_text('{"fairlead":"slurm-watch/1"}\n{"time_s":1.0}\n')
    back_up(directory.path, tmp_path / "backup")
    (directory.path / WATCHED).write_text('{"fairlead":"slurm-watch/1"}\n{"time_s":2.0}\n')

    replaced = restore(tmp_path / "backup", directory.path, overwrite=True).replaced

    assert read_record(directory.path / WATCHED).last_s == 1.0
    assert replaced is not None
    assert read_record(replaced / WATCHED).last_s == 2.0, "what was there is moved aside"


def test_a_backup_does_not_replace_anything(directory: StateDirectory, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "thesis.tex").touch()
    with pytest.raises(StoreError, match="not empty"):
        back_up(directory.path, tmp_path / "taken")
    assert os.listdir(tmp_path / "taken") == ["thesis.tex"]

    (tmp_path / "empty").mkdir()
    back_up(directory.path, tmp_path / "empty")
    assert (tmp_path / "empty" / MANIFEST).exists()


def test_a_backup_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is not the state directory of a service"):
        back_up(tmp_path, tmp_path / "backup")
    assert not (tmp_path / "backup").exists()


def test_a_backup_is_not_made_while_jobs_go_into_the_archive(directory: StateDirectory, tmp_path: Path) -> None:
    """Its log would mention jobs that are gone from the other file, and nothing could be archived after a restore."""
    upkeep = directory.lock("upkeep")
    with pytest.raises(StoreError, match=r"upkeep\.lock is held"):
        back_up(directory.path, tmp_path / "backup", patience_s=0.0)
    assert not (tmp_path / "backup").exists()

    os.close(upkeep)
    back_up(directory.path, tmp_path / "backup", patience_s=0.0)
    os.close(directory.lock("upkeep"))


def test_a_damaged_database_is_not_backed_up(directory: StateDirectory, tmp_path: Path) -> None:
    with directory.requests.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 4096)
    with pytest.raises(StoreError, match=r"requests.db cannot be copied"):
        back_up(directory.path, tmp_path / "backup")
    assert os.listdir(tmp_path) == ["state"]


def test_a_backup_that_was_changed_is_not_restored(directory: StateDirectory, tmp_path: Path) -> None:
    back_up(directory.path, tmp_path / "backup")
    with (tmp_path / "backup" / "events.db").open("ab") as file:
        file.write(b"x")
    with pytest.raises(StoreError, match=r"events.db in .* changed since the backup was made"):
        restore(tmp_path / "backup", tmp_path / "new")


# ---- restores -----------------------------------------------------------------------------------------------------


def test_a_backup_becomes_a_new_directory_with_a_new_incarnation(directory: StateDirectory, tmp_path: Path) -> None:
    with opened(directory) as store:
        store.submit(2)
    back_up(directory.path, tmp_path / "backup")

    done = restore(tmp_path / "backup", tmp_path / "new")
    new = StateDirectory(tmp_path / "new")
    assert (done.incarnation, done.requests, done.replaced) == (2, 2, None)
    assert not is_new(new)
    assert continue_or_renew(new, []) is None
    with opened(new) as store:
        assert store.submit() == ["j2-3"]
    assert restore(tmp_path / "backup", tmp_path / "newer").incarnation == 3  # the second restore of one backup


def test_a_restore_replaces_nothing_unless_it_is_asked_to(directory: StateDirectory, tmp_path: Path) -> None:
    back_up(directory.path, tmp_path / "backup")
    with opened(directory) as store:
        store.submit(2)
    with pytest.raises(StoreError, match=r"has the state of a service.*--overwrite"):
        restore(tmp_path / "backup", directory.path)
    assert ids(directory) == ["j1", "j2"]

    done = restore(tmp_path / "backup", directory.path, overwrite=True)
    assert ids(directory) == []
    assert done.replaced is not None
    assert ids(StateDirectory(done.replaced)) == ["j1", "j2"]
    assert continue_or_renew(directory, []) is None


def test_a_restore_while_the_service_runs_is_refused(directory: StateDirectory, tmp_path: Path) -> None:
    back_up(directory.path, tmp_path / "backup")
    lock = directory.lock("service")
    with pytest.raises(StoreError, match="another fairlead uses"):
        restore(tmp_path / "backup", directory.path, overwrite=True)
    os.close(lock)


def test_copies_of_the_two_files_alone_can_be_restored(directory: StateDirectory, tmp_path: Path) -> None:
    with opened(directory) as store:
        store.submit()
    (tmp_path / "copies").mkdir()
    for path in (directory.events, directory.requests):
        (tmp_path / "copies" / path.name).write_bytes(path.read_bytes())

    assert restore(tmp_path / "copies", tmp_path / "new").requests == 1
    assert continue_or_renew(StateDirectory(tmp_path / "new"), []) is None


def test_a_backup_of_an_older_schema_is_upgraded_by_the_restore(tmp_path: Path) -> None:
    old = unpack(tmp_path / "old")
    back_up(old, tmp_path / "backup")

    assert restore(tmp_path / "backup", tmp_path / "new").requests == 40
    assert planned(StateDirectory(tmp_path / "new")) == []
    assert planned(StateDirectory(old))  # which is left as it is


INTERRUPTED = """
import os, signal, sys
from pathlib import Path
renames = [int(sys.argv[3])]
rename = Path.rename
def counted(self, target):
    if not renames[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    renames[0] -= 1
    return rename(self, target)
Path.rename = counted
from fairlead.service.store.restore import restore
restore(Path(sys.argv[1]), Path(sys.argv[2]), overwrite=True)
"""


def test_a_restore_that_was_killed_is_refused_by_a_start_and_can_be_repeated(
    directory: StateDirectory, tmp_path: Path
) -> None:
    with opened(directory) as store:
        store.submit(2)
    back_up(directory.path, tmp_path / "backup")
    with opened(directory) as store:
        store.submit(2)
    refused = 0
    for renames in range(2, 14, 4):
        killed = subprocess.run(
            [sys.executable, "-c", INTERRUPTED, str(tmp_path / "backup"), str(directory.path), str(renames)],
            check=False,
        )
        assert killed.returncode == -signal.SIGKILL or renames > 9
        with suppress(StoreError):
            is_new(directory)
            continue_or_renew(directory, [])
            continue
        refused += 1
    assert refused
    restore(tmp_path / "backup", directory.path, overwrite=True)

    assert ids(directory) == ["j1", "j2"]
    assert continue_or_renew(directory, []) is None
    assert read_files(directory).incarnations.current > 2


# ---- with real jobs -----------------------------------------------------------------------------------------------


def crash(service: Service) -> None:
    """Kill both processes at once."""
    assert service.process is not None
    scheduler = service.scheduler()
    assert scheduler is not None
    for pid in (scheduler, service.process.pid):
        os.kill(pid, signal.SIGKILL)
    service.process.wait()


@pytest.mark.slow
def test_after_a_restore_every_job_is_accounted_for_and_nothing_runs_twice(tmp_path: Path) -> None:
    marks, over = tmp_path / "marks", tmp_path / "over"
    marks.mkdir()

    def job(name: str, then: str = "true", **more: Any) -> dict[str, Any]:
        return {"name": name, "run": f"echo . >> {marks}/{name}; {then}", "grace": 0.2, **more}

    def ran(name: str) -> int:
        return (marks / name).read_text().count(".") if (marks / name).exists() else 0

    with running(tmp_path) as service:
        client = service.client()

        def submit(document: dict[str, Any]) -> str:
            id_: str = insist(partial(client.post, "/jobs", document))["id"]
            return id_

        def phase(id_: str) -> str:
            text: str = insist(partial(client.get, f"/jobs/{id_}"))["phase"]
            return text

        def reaches(id_: str, wanted: str) -> None:
            wait_for(lambda: phase(id_) == wanted, f"{id_} to be {wanted}")

        before, long = submit(job("before")), submit(job("long", until_told(over)))
        moved, later = submit(job("moved", until_told(over))), submit(job("later"))
        client.post(f"/jobs/{later}/hold")
        reaches(before, "finished")
        reaches(long, "running")
        reaches(moved, "running")
        held = phase(later) == "held"  # else it was too fast, and has finished
        back_up(service.state, tmp_path / "backup")

        client.post(f"/jobs/{later}/release")
        client.post(f"/jobs/{moved}/hold")  # and back: its second lease is not in the backup
        reaches(moved, "held")
        client.post(f"/jobs/{moved}/release")
        reaches(moved, "running")
        lost, gone = submit(job("lost", until_told(over))), submit(job("gone"))
        reaches(lost, "running")
        reaches(gone, "finished")
        reaches(later, "finished")
        crash(service)

        done = restore(tmp_path / "backup", service.state, overwrite=True)
        assert set(done.unknown) == {lost, gone}
        service.start()
        new = submit(job("new"))
        assert new.startswith("j2-")
        reaches(new, "finished")
        assert ran("new") == 1
        # The lease that the backup knows keeps running, one that it does not know is replaced, and a stranger is stopped.
        assert (phase(long), ran("long")) == ("running", 1)
        lease = service.state / "leases" / lost / "1"
        wait_for(lambda: not is_locked(lease / shim.ALIVE), "the end of the stranger")
        wait_for(lambda: ran("moved") == 3, "the third lease of the job that was moved")
        assert not is_locked(service.state / "leases" / moved / "2" / shim.ALIVE)
        if held:
            client.post(f"/jobs/{later}/release")
        reaches(later, "finished")
        assert ran("later") == 1  # its exit code from after the backup counts
        over.touch()
        for id_ in (long, moved):
            reaches(id_, "finished")
        shown = {row["id"]: row for row in client.get("/jobs")["jobs"]}
        assert set(shown) == {before, long, moved, later, new}
        assert shown[long]["leases"] == 1
        assert shown[moved]["leases"] > 1000
        assert (ran("before"), ran("long"), ran("lost"), ran("gone")) == (1, 1, 1, 1)
        log = (tmp_path / "serve.log").read_text()
        assert re.search(rf"lease 1 of {lost}, a job that the log does not contain, is stopped", log)
        assert "Traceback" not in log


@pytest.mark.slow
def test_a_restore_elsewhere_is_refused_while_leases_run_in_the_original(tmp_path: Path) -> None:
    over = tmp_path / "over"
    with running(tmp_path) as service:
        client = service.client()
        id_ = insist(partial(client.post, "/jobs", {"name": "long", "run": until_told(over), "grace": 0.2}))["id"]
        wait_for(lambda: client.get(f"/jobs/{id_}")["phase"] == "running", "the job to run")
        done = subprocess.run(
            [sys.executable, "-m", "fairlead.cli.main", "backup", str(tmp_path / "b"), "--state", str(service.state)],
            check=True,
            capture_output=True,
            text=True,
        )
        assert "events.db, requests.db, state.json" in done.stdout
        crash(service)
        with pytest.raises(StoreError, match=rf"leases still run in .*{id_} \(1\)"):
            restore(tmp_path / "b", tmp_path / "elsewhere")
        over.touch()
        wait_for(lambda: not is_locked(service.state / "leases" / id_ / "1" / shim.ALIVE), "the end of the job")
        restore(tmp_path / "b", tmp_path / "elsewhere")
        assert json.loads((tmp_path / "elsewhere" / "state.json").read_text())["fairlead"].startswith("state/")
        service.start()  # so that there is something to stop
