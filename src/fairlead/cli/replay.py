from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.output import Format, Output, print_json
from fairlead.cli.own_policies import PolicyFile, register_files
from fairlead.model.errors import FairleadError, InputError
from fairlead.model.units import format_duration


def replay(
    journal: Annotated[str, typer.Argument(help="Journal of a simulation or of the service.", metavar="FILE")],
    policy: Annotated[
        str | None,
        typer.Option("--policy", help="Decide with this policy instead of the journal's.", metavar="NAME|FILE.py:NAME"),
    ] = None,
    policy_file: PolicyFile = None,
    output: Output = Format.table,
) -> None:
    """Repeat every decision of a journal: the same policy must decide the same, another one shows where it differs."""
    from fairlead.rounds.journal import is_snapshot
    from fairlead.studies.journals.replaying import replay_journal
    from fairlead.studies.policy_lab.plugins import load_policy

    if not Path(journal).is_file():
        raise InputError("there is no such file", path=journal)
    if is_snapshot(Path(journal)):
        raise InputError(
            "this is a snapshot, which has no decisions to repeat; `fairlead simulate --from` and `fairlead what-if --from` "
            "continue from it",
            path=journal,
        )
    register_files(policy_file)
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
        if result.not_compared:
            print(
                f"{result.not_compared:,} decisions before the first start of the policy were not compared: the journal begins "
                "in the middle of a run, and what the policy remembered then is not stored"
            )
    if policy is None and result.same != result.decisions:
        raise FairleadError(
            "the journal's own policy decided otherwise; was it written by another version of Fairlead?"
        )
