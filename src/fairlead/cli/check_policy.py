from __future__ import annotations

from typing import Annotated

import typer

from fairlead.cli.output import Format, Output, print_json, progress


def check_policy(
    policy: Annotated[str, typer.Argument(help="A registered policy, or your own.", metavar="NAME|FILE.py:NAME")],
    examples: Annotated[
        int, typer.Option("--examples", help="Number of small worlds to test in.", min=1, max=100_000)
    ] = 60,
    example: Annotated[int | None, typer.Option("--example", help="Test in this world only.", min=0)] = None,
    output: Output = Format.table,
) -> None:
    """Test a policy against the rules for all policies and its own promises; print the first counter-example."""
    from fairlead.studies.policy_lab.plugins import load_policy
    from fairlead.studies.policy_lab.policy_checks import check_policy as study
    from fairlead.studies.policy_lab.policy_checks import rules_for

    chosen = load_policy(policy)
    worlds = range(examples) if example is None else range(example, example + 1)
    failure = None
    with progress(f"checking {chosen.name}", len(worlds)) as report:
        for failure in study(chosen, worlds, report):
            if failure is not None:
                break
    rules = [*rules_for(chosen), *(f"promise: {promise}" for promise in sorted(chosen.promises))]
    command = None if failure is None else f"fairlead check-policy {policy} --example {failure.example}"
    if output is Format.json:
        document = (
            None
            if failure is None
            else {"rule": failure.rule, "said": failure.complaint, "world": failure.world, "again": command}
        )
        print_json({"policy": chosen.name, "examples": len(worlds), "rules": rules, "failure": document})
    elif failure is None:
        print(
            f"{chosen.name} keeps these rules in {len(worlds)} small worlds:",
            *(f"  {rule}" for rule in rules),
            sep="\n",
        )
    else:
        print(
            f"{chosen.name} breaks a rule: {failure.rule}",
            f"  {failure.complaint}",
            failure.world,
            f"to repeat: {command}",
            sep="\n",
        )
    if failure is not None:
        raise typer.Exit(1)
