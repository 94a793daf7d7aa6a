from __future__ import annotations

from typing import Annotated

import typer

from fairlead.cli.output import Format, Output, print_json, progress


def check_policy(
    policy: Annotated[str, typer.Argument(help="A name, or your own.", metavar="NAME|FILE.py:NAME")],
    examples: Annotated[int, typer.Option("--examples", help="How many small worlds.", min=1, max=100_000)] = 60,
    example: Annotated[int | None, typer.Option("--example", help="Only this one.", min=0)] = None,
    output: Output = Format.table,
) -> None:
    """Run the rules that every policy must keep, and the promises that it declares; print the first counter-example."""
    from fairlead.studies.policy_lab.plugins import load_policy
    from fairlead.studies.policy_lab.policy_checks import check_policy as study
    from fairlead.studies.policy_lab.policy_checks import rules_for

    chosen = load_policy(policy)
    which = range(examples) if example is None else range(example, example + 1)
    found = None
    with progress(f"checking {chosen.name}", len(which)) as tell:
        for found in study(chosen, which, tell):
            if found is not None:
                break
    rules = [*rules_for(chosen), *(f"promise: {promise}" for promise in sorted(chosen.promises))]
    again = None if found is None else f"fairlead check-policy {policy} --example {found.example}"
    if output is Format.json:
        failure = (
            None
            if found is None
            else {"rule": found.rule, "said": found.complaint, "world": found.world, "again": again}
        )
        print_json({"policy": chosen.name, "examples": len(which), "rules": rules, "failure": failure})
    elif found is None:
        print(
            f"{chosen.name} keeps these rules in {len(which)} small worlds:", *(f"  {rule}" for rule in rules), sep="\n"
        )
    else:
        print(
            f"{chosen.name} breaks a rule: {found.rule}",
            f"  {found.complaint}",
            found.world,
            f"again: {again}",
            sep="\n",
        )
    if found is not None:
        raise typer.Exit(1)
