"""The archive: old records, ended jobs and their leases, in segments of compressed files that never change.

archive/NNNNNN.journal.gz     records of the log: a journal that begins with the state before them
archive/NNNNNN.jobs.gz        the jobs that were forgotten in it: what was submitted, and how it ended; JSON lines
archive/NNNNNN.leases.tar.gz  their leases: descriptions, logs, reports and exit codes, without checkpoints
archive/NNNNNN.json           these files with their digests; written last, and without it there is no segment

Every file is synced and read back before the list is written, and nothing is removed elsewhere before that.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import shutil
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from fairlead.model.errors import BrokenInvariantError, FairleadError
from fairlead.rounds.journal import header_from_json
from fairlead.rounds.records import Record, Records, to_line
from fairlead.rounds.state import State
from fairlead.service.store.archived_leases import read_back_leases, write_leases
from fairlead.service.store.directory import StateDirectory
from fairlead.service.store.job_rows import COLUMNS
from fairlead.service.store.log import header_of
from fairlead.service.store.log_beginning import base_of, first_line, line_that_begins_with, set_by, state_of_line

KIND, JOBS_KIND = "segment/1", "archived-jobs/1"
_ASIDE = ".replaced"  # the list of a segment that was set aside
_PAGE = 2000  # rows that are read at once, so that no old state of a database is held open


class ArchiveError(FairleadError):
    """A segment of the archive does not contain what it should; nothing was removed."""


@dataclass(frozen=True, slots=True)
class Segment:
    """The list of a segment; `files` are digests (SHA-256) by name."""

    number: int
    first_seq: int
    last_seq: int
    from_s: float
    to_s: float
    jobs: int
    files: dict[str, str]

    @property
    def name(self) -> str:
        return f"{self.number:06d}"


def segments(directory: StateDirectory) -> list[Segment]:
    """All complete segments, oldest first."""
    lists = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(directory.archive.glob("[0-9]*.json"))]
    for one in lists:
        if one.pop("fairlead", None) != KIND:
            raise ArchiveError(f"{directory.archive} has a list that is not of the kind {KIND}; upgrade Fairlead")
    return [Segment(**one) for one in lists]


def write_segment(
    directory: StateDirectory, requests: sqlite3.Connection, events: sqlite3.Connection, last_seq: int
) -> tuple[Segment, str]:
    """Archive the records up to `last_seq`; returns the segment and the first line of the journal that follows it."""
    directory.archive.mkdir(mode=0o700, exist_ok=True)
    number = _next_number(directory)
    base, name = base_of(events), f"{number:06d}"
    journal = _write_lines(
        directory.archive / f"{name}.journal.gz", (first_line(events), *_lines(events, base, last_seq))
    )
    folded = fold_back(journal, events, last_seq)
    jobs = [to_line(row) for row in _job_rows(requests, events, folded.forgotten)]
    opening = to_line({"fairlead": JOBS_KIND, "jobs": len(jobs)})
    jobs_file = _write_lines(directory.archive / f"{name}.jobs.gz", (opening, *jobs))
    if list(_read_lines(jobs_file)) != [opening, *jobs]:
        raise ArchiveError(f"{jobs_file} was not read back as it was written; check the disk")
    files = [journal, jobs_file, *_archive_leases(directory, name, folded.forgotten)]
    segment = Segment(
        number,
        base + 1,
        last_seq,
        folded.from_s,
        folded.state.now_s,
        len(jobs),
        {one.name: _digest(one) for one in files},
    )
    _write_whole(directory.archive / f"{name}.json", to_line({"fairlead": KIND, **asdict(segment)}))
    return segment, folded.next_line


def copy_segments(source: StateDirectory, target: StateDirectory) -> None:
    """Copy all complete segments; as they never change, links to the same files will do on one file system."""
    found = segments(source)
    if not found:
        return
    target.archive.mkdir(mode=0o700)
    for segment in found:
        for name in (*segment.files, f"{segment.name}.json"):
            _link_or_copy(source.archive / name, target.archive / name)
    _sync_directory(target.archive)


def _link_or_copy(before: Path, after: Path) -> None:
    try:
        os.link(before, after)
    except OSError:  # another file system, or one without links
        shutil.copyfile(before, after)
        with after.open("rb+") as file:
            _sync(file)


def set_aside(directory: StateDirectory, segment: Segment) -> None:
    """Keep the files of a segment that is not part of this log, because the log was put back from an older backup."""
    path = directory.archive / f"{segment.name}.json"
    path.rename(path.with_suffix(_ASIDE))
    _sync_directory(directory.archive)


def _next_number(directory: StateDirectory) -> int:
    """A number that no segment has, after what an interrupted run has left was removed."""
    names = {path.name.partition(".")[0] for path in directory.archive.iterdir()}
    whole = {path.stem for end in (".json", _ASIDE) for path in directory.archive.glob(f"*{end}")}
    for name in names - whole:
        for path in directory.archive.glob(f"{name}.*"):
            path.unlink()
    return max((int(name) for name in whole if name.isdecimal()), default=0) + 1


@dataclass(frozen=True, slots=True)
class Folded:
    """A segment read back: the state after it, and the jobs that were forgotten in it."""

    state: State
    from_s: float
    forgotten: list[str]
    next_line: str


def fold_back(journal: Path, events: sqlite3.Connection, last_seq: int) -> Folded:
    """Fold the file, after a check that it contains what the log has from its beginning up to `last_seq`."""
    header, first, base = header_of(events), first_line(events), base_of(events)
    state, now = state_of_line(first, header), header_from_json(json.loads(first))
    forgotten, from_s = list[str](), state.now_s
    records = Records(state.cluster, [spec.id for spec in state.specs])
    for stored, line in zip_longest((first, *_lines(events, base, last_seq)), _read_lines(journal)):
        if stored != line:
            raise ArchiveError(f"{journal} differs from the log; nothing was removed: check the disk, or move it aside")
        if line == first:
            continue
        row = json.loads(line)
        if row["event"] == "forgotten":
            forgotten += row["jobs"]
        record = records.from_json(row)
        state.fold(record)
        now = set_by(now, record)
    return Folded(state, from_s, forgotten, line_that_begins_with(state, now))


def archived_jobs(directory: StateDirectory, segment: Segment) -> Iterator[dict[str, Any]]:
    """The jobs of a segment, as `_job_rows` describes them."""
    lines = _read_lines(directory.archive / f"{segment.name}.jobs.gz")
    next(lines)
    return map(json.loads, lines)


def find_archived_job(directory: StateDirectory, id_: str) -> tuple[Segment, dict[str, Any]] | None:
    """The segment of an archived job and what is known about it; the newest segments are read first."""
    for segment in reversed(segments(directory)):
        for job in archived_jobs(directory, segment):
            if job["id"] == id_:
                return segment, job
    return None


def archived_records(directory: StateDirectory, after: int, base: int, then: State) -> Iterator[tuple[int, Record]]:
    """(number, record) of archived records after `after` up to `base`; `then` is the state after `after`, which follows."""
    for segment in segments(directory):
        if segment.last_seq <= after or segment.last_seq > base:
            continue
        if segment.first_seq > after + 1:
            raise ArchiveError(f"{directory.archive} has no records between {after} and {segment.first_seq}")
        records = Records(then.cluster, [spec.id for spec in then.specs])
        lines = _read_lines(directory.archive / f"{segment.name}.journal.gz")
        next(lines)
        for seq, line in enumerate(lines, start=segment.first_seq):
            if seq > after:
                yield seq, records.from_json(json.loads(line))
        after = segment.last_seq


def _lines(events: sqlite3.Connection, base: int, last_seq: int) -> Iterator[str]:
    """The records after `base` up to `last_seq`."""
    query = "SELECT seq, record FROM log WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT ?"
    while rows := events.execute(query, (base, last_seq, _PAGE)).fetchall():
        for seq, record in rows:
            if seq != base + 1:
                raise BrokenInvariantError(f"record {base + 1} is missing in the log of events")
            base = seq
            yield record


def _job_rows(requests: sqlite3.Connection, events: sqlite3.Connection, ids: Iterable[str]) -> Iterator[dict[str, Any]]:
    """What both files know about these jobs; `facts` is the last row of the table of jobs."""
    for id_ in ids:
        job = requests.execute(
            "SELECT jobs.*, actor FROM jobs JOIN requests USING (number) WHERE id = ?", (id_,)
        ).fetchone()
        facts = events.execute(f"SELECT {', '.join(COLUMNS)} FROM jobs WHERE id = ?", (id_,)).fetchone()
        if job is None or facts is None:
            raise ArchiveError(f"job {id_} is in the log and not in both tables; restore both files from one backup")
        asked = requests.execute(
            "SELECT number, time_s, actor, kind FROM requests WHERE kind IN ('cancel', 'hold', 'release') AND target = ? "
            "ORDER BY number",
            (id_,),
        )
        yield {
            **dict(job),
            "spec": json.loads(job["spec"]),
            "command": json.loads(job["command"]),
            "requests": [list(row) for row in asked],
            "facts": dict(facts),
        }


def _archive_leases(directory: StateDirectory, name: str, jobs: list[str]) -> list[Path]:
    """The file with the leases of these jobs; none if there are none."""
    path = directory.archive / f"{name}.leases.tar.gz"
    with path.open("wb") as file:
        digests = write_leases(file, directory.path, jobs)
        _sync(file)
    if not digests:
        path.unlink()
        return []
    if not read_back_leases(path, digests):
        raise ArchiveError(f"{path} was not read back as it was written; check the disk")
    return [path]


def _write_lines(path: Path, lines: Iterable[str]) -> Path:
    with (
        path.open("wb") as file,
        gzip.GzipFile("", "wb", 6, file, mtime=0) as compressed,
        io.TextIOWrapper(compressed, "utf-8", newline="\n", write_through=False) as text,
    ):
        text.writelines(f"{line}\n" for line in lines)
    with path.open("rb+") as written:
        _sync(written)
    return path


def _read_lines(path: Path) -> Iterator[str]:
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as file:
        for line in file:
            yield line.removesuffix("\n")


def _write_whole(path: Path, line: str) -> None:
    """Write a small file so that it exists completely or not at all, also after a crash."""
    draft = path.with_suffix(".new")
    with draft.open("w", encoding="utf-8") as file:
        file.write(line)
        _sync(file)
    _sync_directory(path.parent)  # the names of the other files
    draft.rename(path)
    _sync_directory(path.parent)


def _sync(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
