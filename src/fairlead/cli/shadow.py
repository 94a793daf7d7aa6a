"""`fairlead shadow`: what a watching service saw, next to what policies would have done."""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead.cli.compare import print_comparison
from fairlead.cli.options import Throughputs, open_profile, positive_duration
from fairlead.cli.output import Format, Output, print_json, print_lines, print_wide_table, show_progress
from fairlead.model.extras import require

if TYPE_CHECKING:
    from fairlead.studies.shadow.shadow_report import ShadowReport, TeamHours

shadow = typer.Typer(help="A Slurm cluster that is only watched (serve --shadow).", no_args_is_help=True)
_MOST_SLICES, _MOST_JOBS = 24, 10  # in tables
MIN_RUN_S = 60.0  # the default of a service


@shadow.command("report")
def report(
    state: Annotated[
        Path, typer.Option(help="State directory of the watching service, which is only read.", metavar="DIR")
    ] = Path("fairlead-state"),
    policies: Annotated[
        str, typer.Option(help="Policies to put next to Slurm: names or FILE.py:NAME.", metavar="A,B,...")
    ] = "oef-coop",
    last: Annotated[
        str | None, typer.Option(help="Only jobs that were submitted in this time until now.", metavar="DURATION")
    ] = None,
    every: Annotated[
        str | None, typer.Option(help="Slices of time: 1h, 1d (default: by length).", metavar="DURATION")
    ] = None,
    round_: Annotated[
        str, typer.Option("--round", help="Time between two scheduling rounds.", metavar="DURATION")
    ] = "6m",
    restart_cost: Annotated[
        str | None,
        typer.Option(help="What a restart costs every job (default: as in the profile).", metavar="DURATION"),
    ] = None,
    throughputs: Throughputs = None,
    page: Annotated[
        str | None, typer.Option("--report", help="Write a page for the browser here.", metavar="FILE")
    ] = None,
    output: Output = Format.table,
) -> None:
    """Show what Slurm did next to what Fairlead would have done: by team, over time, job by job."""
    from fairlead.engines.slurm.watch_file import FILE, read_record
    from fairlead.library.comparing import policies_of
    from fairlead.model.units import parse_duration
    from fairlead.rounds.loop import Settings, When
    from fairlead.studies.shadow.shadow_report import report_window
    from fairlead.studies.shadow.window import read_window

    if page is not None:
        require("jinja2")
    since_s = None if last is None else time.time() - positive_duration("--last", last)
    window = read_window(read_record(state / FILE), open_profile(throughputs), since_s=since_s)
    settings = Settings(positive_duration("--round", round_), When.EVENTS, MIN_RUN_S)
    restart_s = None if restart_cost is None else parse_duration(restart_cost, "--restart-cost")
    with show_progress("simulating") as tell:
        slice_s = None if every is None else positive_duration("--every", every)
        from_all, named = policies_of(policies)
        result = report_window(window, [*from_all, *named], settings, restart_s, slice_s, tell)
    if page is not None:
        from fairlead.studies.report.page import write_page

        write_page(result.comparison, page)
    if output is Format.json:
        print_json({**result.to_json(), "files": {} if page is None else {"report": page}})
        return
    print_comparison(result.answer)
    _print_over_time(result)
    _print_starts(result)
    _print_audits(result)
    if page is not None:
        print(f"report: {page}")


def _print_over_time(result: ShadowReport) -> None:
    names = list(result.over_time)
    cells: dict[tuple[float, str], dict[str, TeamHours]] = {}
    for name, rows in result.over_time.items():
        for row in rows:
            cells.setdefault((row.from_s, row.tenant), {})[name] = row
    slices = sorted({from_s for from_s, _ in cells})
    shown = set(slices[-_MOST_SLICES:])
    table = [
        [_when(from_s), tenant, *(_hours(cells[from_s, tenant].get(name)) for name in names)]
        for from_s, tenant in sorted(cells)
        if from_s in shown
    ]
    print_wide_table(f"Every {result.slice_s / 3600:g} h", ["from", "team", *names], table)
    print(
        "GPU-hours in units of speed / hours that jobs waited. A unit is a GPU of the slowest type that the job can use."
    )
    if len(slices) > len(shown):
        print(f"... and {len(slices) - len(shown)} earlier slices; -o json has them all")


def _print_starts(result: ShadowReport) -> None:
    """The jobs that waited longest in Slurm."""
    past, *others = result.over_time
    waited = [row for row in result.starts if row.starts[past] is not None]
    waited.sort(key=lambda row: (row.submitted_s - (row.starts[past] or 0.0), row.job))
    table = [
        [
            row.job,
            row.tenant,
            _when(row.submitted_s),
            *(_after(row.starts[name], row.submitted_s) for name in (past, *others)),
        ]
        for row in waited[:_MOST_JOBS]
    ]
    print_wide_table("Jobs that waited longest in Slurm", ["job", "team", "submitted", *result.over_time], table)


def _print_audits(result: ShadowReport) -> None:
    from fairlead.studies.shadow.shadow_report import verdicts

    for name, audit in result.audits.items():
        print_lines(f"Fairness, {name}:")
        print_lines(*(f"  {tenant} {sentence}" for tenant, sentence in verdicts(audit).items()))


def _hours(row: Any) -> str:
    return "-" if row is None else f"{row.gpu_hours:.4g} / {row.waiting_hours:.3g}"


def _when(time_s: float) -> str:
    return datetime.fromtimestamp(time_s).astimezone().strftime("%m-%d %H:%M")


def _after(start_s: float | None, submitted_s: float) -> str:
    from fairlead.model.units import format_duration

    return "never" if start_s is None else f"+{format_duration(max(start_s - submitted_s, 0.0))}"
