"""`fairlead explain`: why a job waits, runs or ended, live or from a journal, a snapshot or a state directory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.output import Format, Output, print_json, print_lines
from fairlead.library.live import connect

if TYPE_CHECKING:
    from fairlead.model.explanation import Explanation


def explain(
    job: Annotated[str, typer.Argument(help="The job's id.", metavar="JOB")],
    origin: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="A journal, RUN.jsonl@TIME for some time of it, a snapshot, or the state directory of a service "
            "(default: the running service).",
            metavar="PLACE",
        ),
    ] = None,
    remedies: Annotated[
        bool, typer.Option("--remedies/--no-remedies", help="Simulate what would make a waiting job start earlier.")
    ] = True,
    output: Output = Format.table,
) -> None:
    """Say why a job waits, runs where it does, was stopped or ended, and what would help it."""
    answer = connect().explain(job, remedies=remedies) if origin is None else _from(origin, job, remedies=remedies)
    if output is Format.json:
        print_json(answer.to_json())
        return
    from fairlead.studies.explaining.wording import lines

    print_lines(*lines(answer))


def _from(place: str, job: str, *, remedies: bool) -> Explanation:
    from fairlead.library.origins import open_folded, open_origin
    from fairlead.model.errors import FairleadError
    from fairlead.studies.explaining.explain import NOT_ASKED, left_unchecked
    from fairlead.studies.explaining.explain import explain as explain_state
    from fairlead.studies.explaining.remedies import explain_with_remedies

    folded = open_folded(place)
    answer = explain_state(*folded, job)
    if not remedies:
        return left_unchecked(answer, NOT_ASKED)
    if answer.phase not in ("waiting", "held"):
        return answer
    try:
        return explain_with_remedies(open_origin(place), job)
    except FairleadError as error:  # a policy that is not known here, or one that decides single tasks
        return left_unchecked(answer, str(error))
