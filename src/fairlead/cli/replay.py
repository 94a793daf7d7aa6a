from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.output import Format, Output, print_json
from fairlead.model.errors import FairleadError, InputError
from fairlead.model.units import format_duration


def replay(
    journal: Annotated[str, typer.Argument(help="Journal of a simulation or of the service.", metavar="FILE")],
    policy: Annotated[
        str | None,
        typer.Option("--policy", help="Decide with this policy instead of the journal's.", metavar="NAME|FILE.py:NAME"),
    ] = None,
    output: Output = Format.table,
) -> None:
    """Repeat every decision of a journal: the same policy must decide the same, another one shows where it differs."""
    from fairlead.studies.journals.replaying import replay_journal
    from fairlead.studies.policy_lab.plugins import load_policy

    if not Path(journal).is_file():
        raise InputError("there is no such file", path=journal)
    result = replay_journal(Path(journal), load_policy(policy) if policy else None)
    if output is Format.json:
        print_json({"journal": journal, **asdict(result)})
    else:
        print(f"{result.same:,} of {result.decisions:,} decisions are the same", end="")
        print(
            f"; the first that differs is at {format_duration(result.first_different_s)}"
            if result.first_different_s is not None
            else ""
        )
    if policy is None and result.same != result.decisions:
        raise FairleadError(
            "the journal's own policy decided otherwise; was it written by another version of Fairlead, or was the service "
            "restarted with another --round or --min-run?"
        )
