"""Text files; any failure to read or write them is an InputError, because the user can fix it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from fairlead.model.errors import InputError


@contextmanager
def open_text(path: str | Path) -> Iterator[IO[str]]:
    """A text file for reading; a byte-order mark is dropped, line ends are kept because csv needs them."""
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            yield file
    except UnicodeDecodeError as error:
        raise InputError(f"is not UTF-8 text (byte {error.start}); save it as UTF-8", path=str(path)) from None
    except OSError as error:
        raise _cannot_read(path, error) from None


def read_text(path: str | Path) -> str:
    with open_text(path) as file:
        return file.read()


def sha256_of(path: str | Path) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise _cannot_read(path, error) from None


@contextmanager
def create_text(path: str | Path) -> Iterator[IO[str]]:
    """A text file for writing; line ends are not translated."""
    try:
        with open(path, "w", encoding="utf-8", newline="") as file:
            yield file
    except OSError as error:
        raise InputError(
            f"cannot be written ({error.strerror or error}); check the path and its permissions", path=str(path)
        ) from None


def _cannot_read(path: str | Path, error: OSError) -> InputError:
    if isinstance(error, FileNotFoundError):
        return InputError("no such file; check the path", path=str(path))
    return InputError(f"cannot be read ({error.strerror or error}); check the path and its permissions", path=str(path))
