from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.output import Format, Output, print_json
from fairlead.model.errors import FairleadError, InputError
from fairlead.model.units import format_duration


def replay(
    journal: Annotated[str, typer.Argument(help="A journal that simulate wrote.", metavar="FILE")],
    policy: Annotated[
        str | None,
        typer.Option("--policy", help="Decide with this policy instead of the journal's.", metavar="NAME|FILE.py:NAME"),
    ] = None,
    output: Output = Format.table,
) -> None:
    """Take every decision of a journal again: the same policy must say the same, another shows where it differs."""
    from fairlead.studies.journals.replaying import replay_journal
    from fairlead.studies.policy_lab.plugins import load_policy

    if not Path(journal).is_file():
        raise InputError("there is no such file", path=journal)
    found = replay_journal(Path(journal), load_policy(policy) if policy else None)
    if output is Format.json:
        print_json({"journal": journal, **asdict(found)})
    else:
        print(f"{found.same:,} of {found.decisions:,} decisions are the same", end="")
        print(
            f"; the first that differs is at {format_duration(found.first_different_s)}"
            if found.first_different_s is not None
            else ""
        )
    if policy is None and found.same != found.decisions:
        raise FairleadError(
            "the journal's own policy decided otherwise; was it written by another version of Fairlead?"
        )
