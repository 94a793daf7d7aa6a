"""The checkpoints in a folder, protected by a fence that holds the number of the newest lease.

    FOLDER/0000000003-000017/   files of the script, about.json    the 17th of lease 3
    FOLDER/fence                number of the last lease that began

The name of a checkpoint has the number of its lease, and a restore takes the largest. A process of the job that was
assumed dead but is not can therefore neither overwrite nor hide the checkpoints of its successor.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

KEPT = 2  # the newest and the previous one
ABOUT, FENCE = "about.json", "fence"
_NAME = re.compile(r"(\d{10})-(\d{6,})\Z")
_DRAFT = re.compile(r"\.draft-(\d{10})-")


class SupersededError(RuntimeError):
    """A later lease of this job has begun; this process must not save, and must end."""


class Checkpoints:
    """The checkpoints of a job, as one of its leases reads and writes them."""

    def __init__(self, folder: Path, number: int) -> None:
        self._folder = folder
        self._number = number
        folder.mkdir(parents=True, exist_ok=True)
        self._raise_fence()
        for path in folder.iterdir():
            draft = _DRAFT.match(path.name)
            if draft and int(draft[1]) < number:
                shutil.rmtree(path, ignore_errors=True)

    def newest(self) -> tuple[Path | None, dict[str, Any]]:
        """The newest checkpoint and its description."""
        for key in sorted(self._saved(), reverse=True):
            folder = self._path(key)
            with suppress(OSError, ValueError, RecursionError):
                about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
                if isinstance(about, dict):
                    return folder, about
        return None, {}

    def save(self, write: Callable[[Path], object], about: dict[str, Any]) -> Path:
        self._check_fence()
        mine = [sequence for number, sequence in self._saved() if number == self._number]
        key = (self._number, max(mine, default=0) + 1)
        draft = self._folder / f".draft-{self._number:010}-{os.getpid()}"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir()
        write(draft)
        (draft / ABOUT).write_text(json.dumps(about), encoding="utf-8")
        _sync_all(draft)
        self._check_fence()
        folder = self._path(key)
        draft.rename(folder)
        _sync(self._folder)
        self._drop_old(key)
        return folder

    def _drop_old(self, newest: tuple[int, int]) -> None:
        """Delete old checkpoints, but none that is newer than ours, whichever lease wrote it."""
        for key in sorted(key for key in self._saved() if key <= newest)[:-KEPT]:
            shutil.rmtree(self._path(key), ignore_errors=True)

    def _saved(self) -> list[tuple[int, int]]:
        matches = (_NAME.match(path.name) for path in self._folder.iterdir())
        return [(int(match[1]), int(match[2])) for match in matches if match]

    def _path(self, key: tuple[int, int]) -> Path:
        return self._folder / f"{key[0]:010}-{key[1]:06}"

    def _raise_fence(self) -> None:
        if self._fence() < self._number:
            draft = self._folder / f".fence-{self._number}-{os.getpid()}"
            draft.write_text(str(self._number), encoding="ascii")
            draft.replace(self._folder / FENCE)

    def _check_fence(self) -> None:
        fence = self._fence()
        if fence > self._number:
            raise SupersededError(
                f"lease {fence} of this job has begun, and lease {self._number}, this one, was given up; "
                f"end this process ({self._folder / FENCE} holds the number)"
            )

    def _fence(self) -> int:
        try:
            return int((self._folder / FENCE).read_text(encoding="ascii"))
        except (OSError, ValueError):
            return 0


def _sync_all(folder: Path) -> None:
    for path in folder.rglob("*"):
        if not path.is_symlink():
            _sync(path)
    _sync(folder)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
