from __future__ import annotations

from shutil import get_terminal_size
from sys import stdout
from textwrap import fill
from typing import Annotated

import typer

from fairlead.cli.compare import Running
from fairlead.cli.options import Cluster, Importing, spread
from fairlead.cli.output import PIPED_COLUMNS, Format, Output, print_json, print_lines, print_table, show_progress
from fairlead.cli.world import WorldOptions


@spread
def advise(
    *,
    cluster: Cluster,
    trace: Annotated[
        str | None, typer.Option("--trace", help="Workload file of any known format.", metavar="FILE")
    ] = None,
    generate: Annotated[
        str | None,
        typer.Option("--generate", help="Generate it, as in `fairlead compare`.", metavar="SPEC"),
    ] = None,
    policies: Annotated[
        str, typer.Option("--policies", help="Policies that take part, as in `fairlead compare`.", metavar="A,B,...")
    ] = "all",
    care: Annotated[
        list[str] | None,
        typer.Option(
            "--care",
            help="Weight of completion, tail, makespan, fairness or waiting; 1 each by default. Repeatable.",
            metavar="NAME=WEIGHT",
        ),
    ] = None,
    seeds: Annotated[str, typer.Option("--seeds", help="Seeds: 0..9 or 0,3,5.", metavar="SEEDS")] = "0..2",
    jobs: Annotated[
        int | None, typer.Option("--jobs", help="Only the first N jobs; for a generated workload, its size.", min=1)
    ] = None,
    surprises: Annotated[
        bool, typer.Option("--surprises/--no-surprises", help="Also try worlds that are not as expected.")
    ] = True,
    running: Running,
    importing: Importing,
    rules: WorldOptions,
    output: Output = Format.table,
) -> None:
    """Recommend a policy for a workload: run all that a service can use, and say why, and what it costs to be wrong.

    A score is how many times the best of each number a policy has, on average: 1 is best in everything.
    """
    from fairlead.library.advising import advise as run_advice

    with show_progress("runs") as report, running.resumable():
        advice = run_advice(
            cluster,
            trace=trace,
            generate=generate,
            policies=policies,
            care=care,
            seeds=seeds,
            jobs=jobs,
            surprises=surprises,
            progress=report,
            **running.given(),
            **importing.given(),
            **rules.given(),
        )
    if output is Format.json:
        print_json(advice.to_json())
        return
    numbers = advice.table.names[1:-1]
    rows = [
        [row["policy"], *(f"{row[name]:.2f}" for name in numbers), row["knows"] or "-"] for row in advice.table.rows()
    ]
    print_table("Times the best of each number (1 is best)", advice.table.names, rows)
    room = get_terminal_size().columns if stdout.isatty() else PIPED_COLUMNS
    print_lines(*(fill(reason, room) for reason in advice.reasons))
