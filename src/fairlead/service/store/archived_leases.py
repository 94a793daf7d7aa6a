"""The leases of archived jobs: one tar file for all of them, and their removal.

JOB/NUMBER/...        what is in leases/ of the state directory
work/JOB/NUMBER/...   what is next to it, where jobs of another user work

Checkpoints are neither archived nor removed: they are what a job leaves to its owner.
"""

from __future__ import annotations

import errno
import gzip
import hashlib
import os
import shutil
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO

from fairlead.engines.local.files import CHECKPOINTS, open_plain, work_root


def write_leases(file: IO[bytes], root: Path, jobs: Iterable[str]) -> dict[str, str]:
    """Write the files of the jobs' leases below the state directory `root`; returns digests (SHA-256) by name."""
    digests: dict[str, str] = {}
    members = [
        (f"{prefix}{path.relative_to(leases).as_posix()}", path)
        for prefix, leases in _places(root)
        for job in jobs
        for path in _files(leases / job)
    ]
    with gzip.GzipFile("", "wb", 6, file, mtime=0) as compressed, tarfile.open(fileobj=compressed, mode="w|") as tar:
        for name, path in members:
            with suppress(FileNotFoundError), _open(path) as content:
                member = tar.gettarinfo(arcname=name, fileobj=content)
                copied = _Copied(content)
                tar.addfile(member, copied)
                digests[name] = copied.digest.hexdigest()
    return digests


def read_back_leases(path: Path, digests: Mapping[str, str]) -> bool:
    """Whether the file contains exactly the members that have these digests."""
    present: dict[str, str] = {}
    with tarfile.open(path, "r|gz") as tar:
        for member in tar:
            content = tar.extractfile(member)
            if content is None:
                return False
            present[member.name] = hashlib.file_digest(content, "sha256").hexdigest()  # type: ignore[arg-type]
    return present == digests


def remove_leases(root: Path, jobs: Iterable[str]) -> None:
    """Remove the leases of these jobs below the state directory `root`, and where jobs of another user work."""
    for _, leases in _places(root):
        for job in jobs if leases.is_dir() else ():
            for lease in _leases(leases / job):
                shutil.rmtree(lease, ignore_errors=True)
            with suppress(OSError):  # there are checkpoints, or it was removed before
                (leases / job / CHECKPOINTS).rmdir()
            with suppress(OSError):
                (leases / job).rmdir()


class _Copied:
    """A file as it is copied: the digest of its bytes, and zeros for those that were cut off in the meantime.

    Its owner may still write to it, which must not prevent others' files from being archived.
    """

    def __init__(self, content: IO[bytes]) -> None:
        self._content = content
        self.digest = hashlib.sha256()

    def read(self, size: int = -1, /) -> bytes:
        chunk = self._content.read(size).ljust(size, b"\0")
        self.digest.update(chunk)
        return chunk


def _places(root: Path) -> tuple[tuple[str, Path], ...]:
    """The folders with leases, each with what precedes its names in the archive."""
    return ("", root / "leases"), ("work/", work_root(root) / "leases")


def _open(path: Path) -> IO[bytes]:
    """Open a file that its owner may have replaced by a link or a pipe since it was listed."""
    try:
        return os.fdopen(open_plain(path), "rb")
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise FileNotFoundError(path) from error
        raise


def _leases(job: Path) -> list[Path]:
    return sorted(path for path in job.iterdir() if path.name.isdecimal()) if job.is_dir() else []


def _files(job: Path) -> Iterator[Path]:
    for lease in _leases(job):
        yield from sorted(path for path in lease.rglob("*") if path.is_file() and not path.is_symlink())
