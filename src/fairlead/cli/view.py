from __future__ import annotations

from typing import Annotated

import typer

from fairlead.cli.compare import parse_hours
from fairlead.cli.own_policies import PolicyFile, register_files


def view(
    journal: Annotated[
        str,
        typer.Argument(help="Journal of a simulation, or of a service that has forgotten no job yet.", metavar="FILE"),
    ],
    page: Annotated[
        str | None, typer.Option("--report", help="Write the page here (default: next to the journal).", metavar="FILE")
    ] = None,
    window: Annotated[
        str | None, typer.Option("--window", help="Hours to show in the Gantt chart.", metavar="FROM..TO")
    ] = None,
    policy_file: PolicyFile = None,
) -> None:
    """Write a page for the browser about a finished run: jobs, tenants, promises, and who ran where."""
    from fairlead.library.viewing import view as write_view

    shown_h = None if window is None else parse_hours(window)
    register_files(policy_file)
    print(f"report: {write_view(journal, page, shown_h)}")
