"""Backups of a state directory: a consistent copy of both files, made while the service may run, and its manifest.

DIR/requests.db, DIR/events.db    each as of one instant, the log first, so that it mentions no job that is not in the other
DIR/cluster.json, DIR/state.json  as in the state directory
DIR/slurm-watch.jsonl             what a watching service has recorded, if it is one
DIR/archive/                      all segments of the archive, last: what either file has no more is in one of them
DIR/backup.json                   the manifest: where and when it was made, digests of the files

Logs, exit codes and checkpoints of jobs are in leases/, which is not part of it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sqlite3
import time
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from fairlead.engines.slurm.watch_file import FILE as WATCHED
from fairlead.service.store.archive import copy_segments
from fairlead.service.store.belonging import check_together, read_files
from fairlead.service.store.database import StoreError, disk_full_raised, open_reader
from fairlead.service.store.directory import StateDirectory, is_new, sync
from fairlead.service.store.upgrade import planned

MANIFEST = "backup.json"
_KIND = "backup/1"
UPKEEP_S = 600.0  # how long archiving that is under way is waited for


@dataclass(frozen=True, slots=True)
class Manifest:
    state: str  # the directory that was copied
    made_s: float
    digests: dict[str, str]  # SHA-256 by file


def back_up(state: Path, target: Path, patience_s: float = UPKEEP_S) -> Manifest:
    """Copy the state directory to a new or empty directory, and check the copy. It appears under its name when it is whole.

    Archiving removes jobs from one file before the other, so the copy waits until none is under way.
    """
    directory = StateDirectory(state)
    if not state.is_dir() or is_new(directory):
        raise StoreError(f"{state} is not the state directory of a service; name it with --state")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise StoreError(f"{target} exists and is not empty; name a new directory for the backup")
    draft = target.with_name(f"{target.name}.unfinished-{os.getpid()}")
    upkeep = directory.lock("upkeep", patience_s)
    try:
        with disk_full_raised():
            draft.mkdir(mode=0o700, parents=True)
            manifest = _fill(directory, StateDirectory(draft))
        draft.rename(target)
    except OSError as error:
        raise StoreError(f"{target} cannot be written ({error.strerror}); name another directory") from None
    finally:
        os.close(upkeep)
        shutil.rmtree(draft, ignore_errors=True)
    return manifest


def copy_files(source: StateDirectory, target: StateDirectory) -> None:
    """Copy both files, what belongs to them and the archive, also from a directory that is in use."""
    for before, after in ((source.events, target.events), (source.requests, target.requests)):
        copy_database(before, after)
    for before in (source.cluster_file, source.marker, source.path / WATCHED):  # a line that is cut off does no harm
        if before.exists():
            shutil.copyfile(before, target.path / before.name)
    copy_segments(source, target)


def copy_database(before: Path, after: Path) -> None:
    """Copy a database as of one instant, without its write-ahead log."""
    try:
        with closing(open_reader(before)) as reader, closing(sqlite3.connect(after, isolation_level=None)) as copy:
            reader.backup(copy)
            copy.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            verdict = copy.execute("PRAGMA integrity_check(1)").fetchone()[0]
    except sqlite3.DatabaseError as error:
        verdict = str(error)
    if verdict != "ok":
        raise StoreError(f"{before} cannot be copied ({verdict}); the copy was thrown away")
    after.chmod(0o600)
    for side in ("-wal", "-shm"):
        Path(f"{after}{side}").unlink(missing_ok=True)


def read_manifest(path: Path) -> Manifest | None:
    """The manifest of a backup, whose digests are checked; None for a directory that was copied in another way."""
    if not (path / MANIFEST).exists():
        return None
    record = None
    with suppress(OSError, ValueError):
        record = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
    if not isinstance(record, dict) or record.pop("fairlead", None) != _KIND:
        raise StoreError(
            f"{path / MANIFEST} is not a manifest of kind {_KIND}; use another backup, or upgrade Fairlead"
        )
    manifest = Manifest(**record)
    changed = [name for name, digest in manifest.digests.items() if _digest(path / name) != digest]
    if changed:
        raise StoreError(f"{', '.join(changed)} in {path} changed since the backup was made; use another one")
    return manifest


def _fill(directory: StateDirectory, copy: StateDirectory) -> Manifest:
    copy_files(directory, copy)
    if not planned(copy):  # an older schema has no identity to compare yet
        check_together(read_files(copy))
    for side in copy.path.glob("*.db-*"):
        side.unlink()
    files = [path for path in sorted(copy.path.rglob("*")) if path.is_file()]
    digests = {str(path.relative_to(copy.path)): _digest(path) for path in files}
    manifest = Manifest(str(directory.path.absolute()), time.time(), digests)
    (copy.path / MANIFEST).write_text(json.dumps({"fairlead": _KIND, **asdict(manifest)}, indent=1), encoding="utf-8")
    for path in copy.path.iterdir():
        sync(path)
    sync(copy.path)
    return manifest


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return "missing"
