"""Puts a backup back as the state of a service, as a new incarnation of it.

The new files are completed in a folder next to the old ones, which are moved aside and never deleted. While they are
exchanged there is no state.json, so that a restore which was interrupted is refused by a start and can be repeated.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from fairlead.engines.local.files import jobs_in
from fairlead.engines.local.processes import running_leases
from fairlead.engines.slurm.watch_file import FILE as WATCHED
from fairlead.service.store.backup import UPKEEP_S, Manifest, copy_files, read_manifest
from fairlead.service.store.belonging import Files, check_together, read_files, renew
from fairlead.service.store.database import StoreError, disk_full_raised
from fairlead.service.store.directory import StateDirectory, open_directory, sync, write_marker
from fairlead.service.store.upgrade import upgrade

RESTORED = "restored.json"  # in the backup: the last incarnation that began with it
_PARTS = ("requests.db", "events.db", "requests.mark", "events.mark", "cluster.json", WATCHED)
_SIDES = tuple(f"{name}.db-{side}" for name in ("requests", "events") for side in ("wal", "shm"))


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restore has done."""

    incarnation: int
    requests: int  # the last request that the backup contains
    unknown: tuple[str, ...]  # jobs with leases there that the backup does not contain
    replaced: Path | None  # where the files are that were there before


def restore(source: Path, state: Path, *, overwrite: bool = False) -> Restored:
    """Restore a backup, or a copy of a state directory; if both are the same, accept its files as they are."""
    if not all(file.exists() for file in (StateDirectory(source).requests, StateDirectory(source).events)):
        raise StoreError(f"{source} is neither a backup nor a state directory: it has no requests.db and events.db")
    manifest = read_manifest(source)
    with ExitStack() as opened:
        directory = open_directory(state)
        for name in ("service", "scheduler"):
            opened.callback(os.close, directory.lock(name))
        opened.callback(os.close, directory.lock("upkeep", UPKEEP_S))  # of a service that was killed
        if source.resolve() == state.resolve():
            return _accept(directory)
        if not overwrite and any((state / name).exists() for name in _PARTS):
            raise StoreError(
                f"{state} has the state of a service; choose another directory with --state, or replace it with --overwrite, "
                "which moves the old files aside"
            )
        _check_origin(manifest, state)
        with disk_full_raised():
            return _replace(source, manifest, directory)


def _accept(directory: StateDirectory) -> Restored:
    upgrade(directory)
    files = read_files(directory)
    check_together(files)
    jobs = jobs_in(directory.path)
    incarnation = _next(files, [files.incarnations.newest(jobs)])
    renew(directory, incarnation)
    return Restored(incarnation, files.incarnations.last, tuple(files.incarnations.unknown(jobs)), None)


def _check_origin(manifest: Manifest | None, state: Path) -> None:
    """Refuse to start a second copy of jobs that still run in the directory of which the backup was made."""
    if manifest is None or Path(manifest.state).resolve() == state.resolve() or not Path(manifest.state).is_dir():
        return
    running = running_leases(Path(manifest.state))
    if running:
        some = ", ".join(f"{job} ({number})" for job, number in running[:6])
        raise StoreError(
            f"leases still run in {manifest.state}, from which the backup was made: {some}; with --state {manifest.state} "
            "--overwrite they keep running, or end them first"
        )


def _replace(source: Path, manifest: Manifest | None, directory: StateDirectory) -> Restored:
    draft = StateDirectory(directory.restoring)
    shutil.rmtree(draft.path, ignore_errors=True)
    draft.path.mkdir(mode=0o700)
    copy_files(StateDirectory(source), draft)
    if not draft.marker.exists():  # copies of the two files alone
        write_marker(draft, 1)
    upgrade(draft)
    files = read_files(draft)
    check_together(files)
    origin = [] if manifest is None else jobs_in(Path(manifest.state))
    jobs = jobs_in(directory.path)
    seen = [files.incarnations.newest([*jobs, *origin]), *_incarnations_at(source), *_incarnations_of(directory)]
    incarnation = _next(files, seen)
    renew(draft, incarnation)
    _remember(source, incarnation)
    replaced = _exchange(directory, draft)
    return Restored(incarnation, files.incarnations.last, tuple(files.incarnations.unknown(jobs)), replaced)


def _next(files: Files, seen: list[int]) -> int:
    return max(files.incarnations.current, files.events.identity.incarnation, *seen) + 1


def _incarnations_at(source: Path) -> list[int]:
    """The last incarnation that began with this backup."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        return [int(json.loads((source / RESTORED).read_text(encoding="utf-8"))["incarnation"])]
    return []


def _incarnations_of(directory: StateDirectory) -> list[int]:
    """The incarnation of the files that are replaced, if they can be read."""
    with suppress(StoreError, OSError, ValueError):
        return [read_files(directory).incarnations.current]
    return []


def _remember(source: Path, incarnation: int) -> None:
    """Write into the backup which incarnation began with it, for the next time; a backup may be read-only."""
    with suppress(OSError):
        record = {"fairlead": "restored/1", "incarnation": incarnation, "time_s": time.time()}
        (source / RESTORED).write_text(json.dumps(record), encoding="utf-8")


def _exchange(directory: StateDirectory, draft: StateDirectory) -> Path | None:
    """Move the old files aside and the new ones into their place; the marker goes first and comes last."""
    replaced = [directory.marker.name, *_PARTS, *_SIDES]
    if draft.archive.exists():  # otherwise the next upkeep sets segments aside that the backup does not have
        replaced.append(draft.archive.name)
    old = [directory.path / name for name in replaced if (directory.path / name).exists()]
    aside = _aside(directory.path) if old else None
    for path in old:
        assert aside is not None, "there are old files"
        path.rename(aside / path.name)
        sync(directory.path)
    for name in (*_PARTS, draft.archive.name, draft.marker.name):
        if (draft.path / name).exists():
            sync(draft.path / name)
            (draft.path / name).rename(directory.path / name)
            sync(directory.path)
    shutil.rmtree(draft.path)
    return aside


def _aside(path: Path) -> Path:
    number = 1
    while (path / f"replaced-{number}").exists():
        number += 1
    aside = path / f"replaced-{number}"
    aside.mkdir(mode=0o700)
    return aside
