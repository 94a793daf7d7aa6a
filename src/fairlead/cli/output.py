"""Tables and JSON on stdout, progress on stderr: a bar on a terminal, plain lines elsewhere.

Text comes from jobs, files and other users. Nothing of it may control the terminal, nor rich, which reads [bold] as an
order.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fairlead.model.units import format_duration
from fairlead.model.words import printable

if TYPE_CHECKING:
    from rich.progress import Progress
    from rich.text import Text


EVERY_S = 5.0  # between two plain lines of progress
Report = Callable[[int, int | None], None]  # finished parts, and all parts if their number is known


class Format(StrEnum):
    table = "table"
    json = "json"


Output = Annotated[Format, typer.Option("--output", "-o", help="How to print the answer.")]


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, allow_nan=False).replace("\x7f", "\\u007f"))  # the others are escaped by JSON


def print_lines(*lines: object, to_stderr: bool = False) -> None:
    """Print lines that may contain words of others."""
    for line in lines:
        print(printable(str(line)), file=sys.stderr if to_stderr else sys.stdout, flush=to_stderr)


def write_stream(text: str) -> None:
    """Write a part of a job's output as it is, or so that a terminal shows it and does not obey it.

    On a terminal a carriage return becomes a new line, because progress bars would else be written over each other.
    """
    if sys.stdout.isatty():
        text = printable(text.replace("\r\n", "\n").replace("\r", "\n"))
    sys.stdout.write(text)
    sys.stdout.flush()


def cell(text: str) -> Text:
    """A cell of a table, or its title."""
    from rich.text import Text

    return Text(printable(text))


PIPED_COLUMNS = 80  # where stdout is not a terminal: pipes, files and mails


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> None:
    """Print a table; its first `left` columns are words and aligned left, the others are numbers.

    Where stdout is not a terminal, the table is at most `PIPED_COLUMNS` wide: cells are wrapped between words, and if
    that is not enough, the table is divided into several, with its first column in each.
    """
    from rich.console import Console
    from rich.table import Table

    if not sys.stdout.isatty():
        print_wrapped_table(title, columns, rows, 1, PIPED_COLUMNS, left)
        return
    table = Table(title=cell(title) if title else None, title_justify="left")
    for i, column in enumerate(columns):
        table.add_column(cell(column), justify="left" if i < left else "right", overflow="fold")
    for row in rows:
        table.add_row(*map(cell, row))
    Console().print(table)


def print_wide_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table, divided into several if words would break otherwise; the first column is repeated in each."""
    room = get_terminal_size().columns if sys.stdout.isatty() else PIPED_COLUMNS
    width = [max(len(column), *(len(row[i]) for row in rows), 0) + 3 for i, column in enumerate(columns)]
    first = 1
    while first < len(columns):
        last, used = first, width[0] + 1
        while last < len(columns) and (last == first or used + width[last] <= room):
            used += width[last]
            last += 1
        shown = [0, *range(first, last)]
        print_table(title if first == 1 else "", [columns[i] for i in shown], [[row[i] for i in shown] for row in rows])
        first = last


def print_wrapped_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], kept: int, room: int, left: int | None = None
) -> None:
    """Print a table, or several, whose lines break between words only; the first `kept` columns are in each.

    The first `left` columns (default: those that are kept) are aligned left. A word that is longer than its part of the
    room is folded.
    """
    from rich.console import Console
    from rich.table import Table

    left = kept if left is None else left
    cells = [[column, *(row[i] for row in rows)] for i, column in enumerate(columns)]
    longest = max((room - 1) // (min(kept, len(columns) - 1) + 1) - 3, 1)
    least = [min(longest, max((_width(word) for cell in of for word in cell.split()), default=1)) for of in cells]
    whole = [max((_width(line) for cell in of for line in cell.split("\n")), default=1) for of in cells]
    for i in range(min(kept, len(columns))):
        wish = min(whole[i], 24 if i == 0 else 14, longest)  # otherwise each word would be on its own line
        least[i] = max(least[i], wish)
    numbers = list(range(kept, len(columns)))
    while numbers:
        shown = [*range(kept), numbers.pop(0)]
        while numbers and sum(least[i] + 3 for i in (*shown, numbers[0])) + 1 <= room:
            shown.append(numbers.pop(0))
        width = _widened([least[i] for i in shown], [whole[i] for i in shown], room)
        table = Table(title=cell(title) if title else None, title_justify="left")
        for i, columns_wide in zip(shown, width, strict=True):
            justify: Literal["left", "right"] = "left" if i < left else "right"
            table.add_column(cell(columns[i]), justify=justify, width=columns_wide, overflow="fold")
        for row in rows:
            table.add_row(*(cell(row[i]) for i in shown))
        Console(width=max(room, sum(width) + 3 * len(width) + 1), highlight=False).print(table)


def _width(text: str) -> int:
    """The columns that a text takes on a terminal."""
    from rich.cells import cell_len

    return cell_len(printable(text))


def _widened(least: list[int], whole: list[int], room: int) -> list[int]:
    """Widths of columns: the room that is left goes to those with long cells, in proportion to what they lack."""
    lacks = [max(full - few, 0) for few, full in zip(least, whole, strict=True)]
    spare = max(room - 1 - sum(few + 3 for few in least), 0)
    part = min(spare / sum(lacks), 1.0) if sum(lacks) else 0.0
    return [few + int(part * lack) for few, lack in zip(least, lacks, strict=True)]


@contextmanager
def show_progress(title: str) -> Iterator[Report]:
    """Yield a function to call with the number of finished parts and their total; show them and the time left.

    The total is None while it is not known. On a terminal it is a bar. Elsewhere it is a line every few seconds, so that
    a long run does not look like one that hangs.
    """
    if not sys.stderr.isatty():
        with _lines(title) as report:
            yield report
        return
    with _bar() as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def progress(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """`show_progress` with a total that is known from the start."""
    with show_progress(title) as report:
        report(0, total)
        yield lambda done: report(done, total)


@contextmanager
def _lines(title: str) -> Iterator[Report]:
    began_s, ended = time.monotonic(), threading.Event()
    reports: list[Reported] = []  # the first, which counts what was done before we began, and the latest

    def report(done: int, total: int | None) -> None:
        if not reports or (done, total) != reports[-1][:2]:
            reports[1:] = [(done, total, time.monotonic() - began_s)]

    def print_lines() -> None:
        while not ended.wait(EVERY_S):
            spent_s = time.monotonic() - began_s
            print(f"{title}: {progress_text(reports, spent_s)}", file=sys.stderr, flush=True)

    printer = threading.Thread(target=print_lines, daemon=True)
    printer.start()
    try:
        yield report
    finally:
        ended.set()
        printer.join()


Reported = tuple[int, int | None, float]  # finished parts, all parts, seconds since the beginning


def progress_text(reports: Sequence[Reported], spent_s: float) -> str:
    """`3 of 9 done, 20s so far, about 40s left`, from the first and the latest report.

    The time left is estimated when a part ends and counts down from there. It is left out once it has passed, because
    the present part then takes longer than the ones before it.
    """
    spent = f"{format_duration(round(spent_s))} so far"
    if not reports:
        return spent
    (first, _, _), (done, total, at_s) = reports[0], reports[-1]
    if total is None:
        return f"{done:,} done, {spent}"
    left_s = at_s * (total - done) / (done - first) - (spent_s - at_s) if done > first else 0.0
    left = f", about {format_duration(round(left_s))} left" if left_s >= 0.5 else ""
    return f"{done:,} of {total:,} done, {spent}{left}"


def _bar() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)
