"""Whether the files of a state directory belong together and are complete, before a service uses them.

Files that were put back one by one, a file that is older than the other one, and a write-ahead log that was deleted are
refused: starting with them would forget jobs that were acknowledged, or run some again. Files that are complete but older
than what happened in the directory, such as a copy of the whole directory, begin a new incarnation.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from fairlead.service.store.commits import Mark, changes_of, read_mark
from fairlead.service.store.database import StoreError, open_reader, open_writer
from fairlead.service.store.directory import StateDirectory, write_marks
from fairlead.service.store.facts import fact
from fairlead.service.store.identity import Identity, identity_of
from fairlead.service.store.incarnations import Incarnations, begin_incarnation, incarnations_of, parse_job_id
from fairlead.service.store.tables import EVENTS, REQUESTS


@dataclass(frozen=True, slots=True)
class StoredFile:
    """One of the two files, as far as it shows where it belongs."""

    path: Path
    identity: Identity
    changes: int
    mark: Mark | None

    @property
    def is_copy(self) -> bool:
        return self.mark is not None and self.mark.inode != self.path.stat().st_ino


@dataclass(frozen=True, slots=True)
class Files:
    """Both files, and what each says about the other."""

    requests: StoredFile
    events: StoredFile
    incarnations: Incarnations
    taken: int  # the last request that events.db has answered

    @property
    def both(self) -> tuple[StoredFile, StoredFile]:
        return self.requests, self.events


def read_files(directory: StateDirectory) -> Files:
    try:
        with closing(open_reader(directory.requests)) as requests, closing(open_reader(directory.events)) as events:
            return Files(
                _read(directory.requests, requests),
                _read(directory.events, events),
                incarnations_of(requests),
                int(fact(events, "taken")),
            )
    except (sqlite3.Error, ValueError, TypeError) as error:
        raise StoreError(
            f"the files in {directory.path} cannot be read ({type(error).__name__}: {error}); nothing was changed: "
            "restore a backup"
        ) from None


def check_together(files: Files) -> None:
    """Refuse two files that are not of one store, or of which requests.db is the older one."""
    requests, events = files.both
    if requests.identity.store != events.identity.store:
        raise StoreError(
            f"{requests.path} is of store {requests.identity.store} and events.db of {events.identity.store}; nothing was "
            "changed: put two files of one backup there with `fairlead restore`"
        )
    if files.taken > files.incarnations.last:
        raise StoreError(
            f"{requests.path} ends with request {files.incarnations.last}, but events.db has answered request {files.taken}: "
            "requests.db is older. Nothing was changed: put the right file back, or restore both with `fairlead restore`"
        )


def check_complete(files: Files) -> None:
    """Refuse a file from which commits that were acknowledged are gone."""
    for file in files.both:
        if file.mark is None:
            raise StoreError(
                f"{file.path.with_suffix('.mark')} is missing or unreadable, as if {file.path.name} had been put "
                f"back by hand; {_way_out(file)}"
            )
        if file.mark.store != file.identity.store:
            raise StoreError(
                f"{file.path} is of store {file.identity.store}, but {file.mark.store} was used here; {_way_out(file)}"
            )
        if (file.mark.incarnation, file.mark.changes) > (file.identity.incarnation, file.changes):
            raise StoreError(
                f"{file.path} has {file.changes} changes, but {file.mark.changes} were acknowledged: it is an older copy, or its "
                f"write-ahead log {file.path.name}-wal is gone; {_way_out(file)}"
            )


def continue_or_renew(directory: StateDirectory, jobs_with_leases: Iterable[str]) -> str | None:
    """Refuse files that do not belong together; begin a new incarnation if they are a copy or older than leases.

    Returns the reason for a new incarnation, or None if the present one continues.
    """
    files = read_files(directory)
    check_together(files)
    check_complete(files)
    jobs = list(jobs_with_leases)
    reason = _reason_to_renew(files, jobs)
    current = max(files.incarnations.current, files.events.identity.incarnation)
    if reason is not None:
        current = max(current, files.incarnations.newest(jobs)) + 1
    if reason is not None or files.requests.identity != files.events.identity:
        renew(directory, current)
    return reason


def renew(directory: StateDirectory, incarnation: int) -> None:
    """Begin that incarnation in both files, and mark them as they are now."""
    with (
        closing(open_writer(directory.requests, REQUESTS)) as requests,
        closing(open_writer(directory.events, EVENTS)) as events,
    ):
        begin_incarnation(requests, events, incarnation)
        write_marks(directory, requests, events)


def _reason_to_renew(files: Files, jobs: list[str]) -> str | None:
    copies = [file.path.name for file in files.both if file.is_copy]
    if copies:
        return f"{' and '.join(copies)} is a copy, and the original may have been used since it was made"
    current = (files.incarnations.current, files.incarnations.last)
    newer = [id_ for id_ in files.incarnations.unknown(jobs) if _is_after(id_, current)]
    if newer:
        return f"there are leases of jobs that the files do not contain ({', '.join(sorted(newer)[:6])}), so that they are older"
    return None


def _is_after(id_: str, current: tuple[int, int]) -> bool:
    parsed = parse_job_id(id_)
    return parsed is not None and parsed > current


def _read(path: Path, connection: sqlite3.Connection) -> StoredFile:
    identity = identity_of(connection)
    if identity is None:
        raise StoreError(f"{path} has no store; nothing was changed: restore a backup")
    return StoredFile(path, identity, changes_of(connection), read_mark(path))


def _way_out(file: StoredFile) -> str:
    directory = file.path.parent
    return (
        f"nothing was changed. Put the missing file back, restore a backup with `fairlead restore BACKUP --state {directory} "
        f"--overwrite`, or accept what is there with `fairlead restore {directory} --state {directory}`"
    )
