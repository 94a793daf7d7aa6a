"""Sorts more lines than fit into memory: sorted runs are kept in temporary files and merged."""

from __future__ import annotations

import heapq
import marshal
import tempfile
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import IO

RUN = 50_000  # lines held at a time, some 20 MB
_BLOCK = 500  # lines read back at a time from each run

Line = tuple[float, str, str, str]  # arrival, id, and the text before and after the arrival


def sort_lines(lines: Iterable[Line], run: int = RUN) -> Iterator[Line]:
    """The lines in order. All of them are read before the first is returned."""
    source = iter(lines)
    runs: list[IO[bytes]] = []
    while True:
        held = sorted(islice(source, run))
        if len(held) < run:
            break
        runs.append(_write_run(held))
    return heapq.merge(*map(_read_run, runs), held) if runs else iter(held)


def _write_run(lines: list[Line]) -> IO[bytes]:
    file = tempfile.TemporaryFile()  # noqa: SIM115  stays open until its run is merged
    for start in range(0, len(lines), _BLOCK):
        marshal.dump(lines[start : start + _BLOCK], file)
    file.seek(0)
    return file


def _read_run(file: IO[bytes]) -> Iterator[Line]:
    with file:
        while True:
            try:
                yield from marshal.load(file)
            except EOFError:
                return
