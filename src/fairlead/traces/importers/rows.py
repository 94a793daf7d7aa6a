"""The types that importers share. A row is one job as its file describes it; fields that the file lacks are None."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any, Literal, NamedTuple

from fairlead.model.errors import InputError
from fairlead.model.past import Past
from fairlead.model.words import did_you_mean
from fairlead.rates.profile import Profile

ModelPatterns = Sequence[tuple[str, str]]  # (pattern of job names with * and ?, model)


class Row(NamedTuple):
    """One job of a file.

    Its work is in `steps`, in `samples`, or is the time `duration_s` that it took on `gpus` of type `ran_on` over
    `nodes`.
    """

    id: str
    submit_s: float
    gpus: int
    tenant: str | None = None
    model: str | None = None
    steps: float | None = None
    samples: float | None = None
    duration_s: float | None = None
    ran_on: str | None = None
    nodes: int | None = None  # that it ran on
    widths: tuple[int, ...] = ()
    types: tuple[str, ...] = ()
    weight: float = 1.0
    relaxed: bool = False
    ended: str = ""  # how it ended, if it did not complete
    past: Past | None = None  # what the system did with it, if the file says so


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A record that is well formed but not a GPU training job; counted by reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class Options:
    """Choices of the user about how a file is read.

    `reference` is the GPU type on which durations are assumed to be measured; without it, the type that the file names
    for the job, else v100. `timezone` applies to time stamps without one. `completed_only` drops jobs that failed or
    were cancelled; by default they count, because they held GPUs too. `pin_types` keeps each job on the type it ran on.
    `models` are patterns of job names and the model of each; the first that matches counts.
    """

    profile: Profile | None = None
    seed: int = 0
    tenants: int | None = None
    reference: str | None = None
    timezone: str = "UTC"
    skip_bad_lines: bool = False
    completed_only: bool = False
    pin_types: bool = False
    aliases: Mapping[str, str] = field(default_factory=dict)
    models: ModelPatterns = ()

    def __post_init__(self) -> None:
        if self.tenants is not None and not 1 <= self.tenants <= 100_000:
            raise InputError(f"tenants is {self.tenants}; wanted a whole number from 1 to 100000")


Records = Iterator[tuple[int, Any]]


@dataclass(frozen=True, slots=True)
class TraceFormat:
    """One importer.

    `records` yields (line, record), with an InputError in place of a record that cannot be parsed; `row` reads the
    record of a line. `notes` lists assumptions, for the head of a converted file.
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
    *,
    delimiter: str = ",",
    quoted: bool = True,
    above: int = 0,
    free_text: str = "",
) -> Records:
    """Records by column name, without blank lines. `above` is the number of lines before these.

    The column `free_text`, if it is the last one, may contain delimiters.
    """
    columns: list[str] = []
    for line, cells in csv_lines(file, delimiter=delimiter, quoted=quoted, above=above):
        if isinstance(cells, InputError):
            yield line, cells
        elif not columns:
            columns = _checked_columns(cells, required, known, line)
        elif len(cells) == len(columns) or (len(cells) > len(columns) and columns[-1] == free_text):
            last = len(columns) - 1
            cells = [*cells[:last], delimiter.join(cells[last:])]
            yield line, dict(zip(columns, cells, strict=True))
        else:
            yield line, InputError(f"has {len(cells)} fields; wanted {len(columns)}: {delimiter.join(columns)}")


def csv_lines(
    file: Iterable[str], *, delimiter: str = ",", quoted: bool = True, above: int = 0
) -> Iterator[tuple[int, list[str] | InputError]]:
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE
    reader = csv.reader(file, delimiter=delimiter, quoting=quoting)
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield reader.line_num + above, InputError(f"is not CSV: {error}")
            continue
        if cells:
            yield reader.line_num + above, cells


def _checked_columns(cells: list[str], required: Sequence[str], known: Collection[str] | None, line: int) -> list[str]:
    columns = [cell.strip() for cell in cells]
    for name in columns:
        if known is not None and name not in known:
            raise InputError(f'unknown column "{name}"; {did_you_mean(name, known)}', path="", line=line)
        if columns.count(name) > 1:
            raise InputError(f'column "{name}" appears twice; keep one', path="", line=line)
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
    """A whole number, also if a tool wrote it as 4.0."""
    text = record[name]
    try:
        return int(text)
    except ValueError:
        value = number(record, name)
    if value != int(value):
        raise InputError(f'{name} is "{text}"; wanted a whole number')
    return int(value)


def ran_for(duration_s: float, *, from_: str = "duration") -> LeftOut | None:
    """A reason to leave a job out if it never ran; a negative time is a mistake in the file."""
    if duration_s < 0:
        raise InputError(f"{from_} is {duration_s:g} s; wanted a time that is not negative")
    return LeftOut("ran for no time") if duration_s == 0 else None


NO_GPU = LeftOut("asked for no GPU")
NOT_ENDED = LeftOut("had not ended")
NOT_COMPLETED = LeftOut("did not complete")
