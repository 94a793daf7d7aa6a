"""Tables and JSON on stdout, progress on stderr: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead.model.units import format_duration

if TYPE_CHECKING:
    from rich.progress import Progress


EVERY_S = 5.0  # between two plain lines of progress


class Format(StrEnum):
    table = "table"
    json = "json"


Output = Annotated[Format, typer.Option("--output", "-o", help="How to print the answer.")]


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, allow_nan=False))


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> None:
    """Print a table; its first `left` columns are words and aligned left, the others are numbers."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i < left else "right", overflow="fold")
    for row in rows:
        table.add_row(*row)
    Console(width=None if sys.stdout.isatty() else 160).print(table)


def print_wide_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table, divided into several if words would break otherwise; the first column is repeated in each."""
    room = get_terminal_size().columns if sys.stdout.isatty() else 160
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
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], kept: int, room: int
) -> None:
    """Print a table, or several, whose lines break between words only; the first `kept` columns are in each."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    cells = [[column, *(row[i] for row in rows)] for i, column in enumerate(columns)]
    least = [max(len(word) for cell in column for word in cell.split()) for column in cells]
    whole = [max(len(cell) for cell in column) for column in cells]
    for i in range(kept):
        least[i] = max(least[i], min(whole[i], 24 if i == 0 else 14))  # otherwise each word would be on its own line
    numbers = list(range(kept, len(columns)))
    while numbers:
        shown = [*range(kept), numbers.pop(0)]
        while numbers and sum(least[i] + 3 for i in (*shown, numbers[0])) + 1 <= room:
            shown.append(numbers.pop(0))
        spare = room - 1 - sum(least[i] + 3 for i in shown)
        table = Table(title=Text(title), title_justify="left")
        for i in shown:
            wider = max(0, min(whole[i] - least[i], spare))
            spare -= wider
            table.add_column(Text(columns[i]), justify="left" if i < kept else "right", width=least[i] + wider)
        for row in rows:
            table.add_row(*(Text(row[i]) for i in shown))
        Console(width=max(room, sum(least[i] + 3 for i in shown) + 1), highlight=False).print(table)


@contextmanager
def show_progress(title: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a function to call with the number of finished parts and their total; show them and the time left.

    On a terminal it is a bar. Elsewhere it is a line every few seconds, so that a long run does not look like one that
    hangs.
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
def _lines(title: str) -> Iterator[Callable[[int, int], None]]:
    began_s, ended = time.monotonic(), threading.Event()
    reports: list[tuple[int, int]] = []  # the first, which counts what was done before we began, and the latest

    def report(done: int, total: int) -> None:
        reports[1:] = [(done, total)]

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


def progress_text(reports: Sequence[tuple[int, int]], spent_s: float) -> str:
    """`3 of 9 done, 20s so far, about 40s left`, from the first and the latest report."""
    spent = f"{format_duration(round(spent_s))} so far"
    if not reports:
        return spent
    (first, _), (done, total) = reports[0], reports[-1]
    left_s = spent_s * (total - done) / (done - first) if done > first else None
    left = "" if left_s is None else f", about {format_duration(round(left_s))} left"
    return f"{done:,} of {total:,} done, {spent}{left}"


def _bar() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)
