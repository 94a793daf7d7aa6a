"""What every importer speaks: a row is one job as its file tells it, None where the file is silent."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any, NamedTuple

from fairlead.model.errors import InputError
from fairlead.rates.profile import Profile
from fairlead.traces.files import did_you_mean


class Row(NamedTuple):
    """`duration_s` is the time that the job took, to be turned into steps where the file counts none."""

    id: str
    submit_s: float
    gpus: int
    tenant: str | None = None
    model: str | None = None
    steps: float | None = None
    duration_s: float | None = None
    widths: tuple[int, ...] = ()
    types: tuple[str, ...] = ()
    weight: float = 1.0
    relaxed: bool = False


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A record that is well formed but no GPU training job; counted by reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class Options:
    """What a reader may choose. `reference` is the GPU type on which a trace's durations are taken to be measured."""

    profile: Profile | None = None
    seed: int = 0
    tenants: int | None = None
    reference: str = "v100"
    timezone: str = "UTC"
    skip_bad_lines: bool = False


Records = Iterator[tuple[int, Any]]


@dataclass(frozen=True, slots=True)
class Format:
    """One importer. `records` yields (line, record), an InputError standing for a record that cannot be cut out;
    `row` reads the record of a line. `notes` says what is assumed, for the head of a converted file.
    """

    name: str
    title: str
    detect: Callable[[str], bool]  # from the first characters of the file
    records: Callable[[IO[str], Options], Records]
    row: Callable[[int, Any, Options], Row | LeftOut]
    notes: tuple[str, ...] = ()
    absolute_times: bool = False  # submit_s counts from 1970; the trace starts at its first job
    numbered: bool = False  # ids are line numbers: they cannot repeat


def csv_records(
    file: Iterable[str],
    required: Sequence[str],
    known: Collection[str] | None = None,
    delimiter: str = ",",
    above: int = 0,
) -> Records:
    """Records by column name; blank lines are passed over. `above` lines of the file came before these."""
    reader = csv.reader(file, delimiter=delimiter)
    columns: list[str] = []
    try:
        for cells in reader:
            line = reader.line_num + above
            if not cells:
                continue
            if not columns:
                columns = _checked_columns(cells, required, known, line)
            elif len(cells) == len(columns):
                yield line, dict(zip(columns, cells, strict=True))
            else:
                yield line, InputError(f"has {len(cells)} fields; wanted {len(columns)}: {delimiter.join(columns)}")
    except csv.Error as error:
        yield reader.line_num + above, InputError(f"is not CSV: {error}")


def _checked_columns(cells: list[str], required: Sequence[str], known: Collection[str] | None, line: int) -> list[str]:
    columns = [cell.strip() for cell in cells]
    for name in columns:
        if known is not None and name not in known:
            raise InputError(f'unknown column "{name}"; {did_you_mean(name, known)}', path="", line=line)
        if columns.count(name) > 1:
            raise InputError(f'column "{name}" stands twice; keep one', path="", line=line)
    missing = [name for name in required if name not in columns]
    if missing:
        raise InputError(f'has no column "{missing[0]}"; wanted {",".join(required)}', path="", line=line)
    return columns


def number(record: Mapping[str, str], name: str) -> float:
    text = record[name]
    try:
        value = float(text)
    except ValueError:
        raise InputError(f'{name} is "{text}"; wanted a number') from None
    if not math.isfinite(value):
        raise InputError(f'{name} is "{text}"; wanted a finite number')
    return value


def whole(record: Mapping[str, str], name: str) -> int:
    """A whole number, also where a tool wrote it as 4.0."""
    text = record[name]
    try:
        return int(text)
    except ValueError:
        value = number(record, name)
    if value != int(value):
        raise InputError(f'{name} is "{text}"; wanted a whole number')
    return int(value)
