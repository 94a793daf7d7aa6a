from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fairlead.cli.options import Seed
from fairlead.cli.output import Format, Output, print_json, print_table
from fairlead.model.errors import InputError
from fairlead.model.units import format_number

MANY = 20  # tenants; a search for lies solves hundreds of divisions for each


def allocate(
    instance: Annotated[str, typer.Argument(help="Tenants, weights, speedups and GPUs, as JSON.", metavar="INSTANCE")],
    policy: Annotated[
        str, typer.Option("--policy", help="oef-coop, oef-noncoop, gavel, equal-share or gandiva-fair.", metavar="NAME")
    ],
    output: Output = Format.table,
) -> None:
    """Divide the GPUs of an instance between its tenants, and audit the division."""
    from fairlead.studies.fairness.instances import divide, parse_instance, read_json

    answer = divide(parse_instance(read_json(instance), instance), policy)
    if output is Format.json:
        print_json(answer)
        return
    types = list(answer["prices"])
    rows = [
        [name, *(format_number(row[t], 4) for t in types), format_number(answer["efficiency"][name], 4)]
        for name, row in answer["shares"].items()
    ]
    rows.append(["price of a GPU", *(format_number(answer["prices"][t], 4) for t in types), ""])
    rows.append(["total", *([""] * len(types)), format_number(answer["total"], 4)])
    print_table(f"{policy} ({answer['status']})", ["tenant", *types, "throughput"], rows)
    _print_audit("Audit", answer["audit"])


def audit(
    source: Annotated[
        str, typer.Argument(help="An instance, an allocation (output of allocate) or a journal.", metavar="FILE")
    ],
    policy: Annotated[
        str | None, typer.Option("--policy", help="For an instance: the rule to audit.", metavar="NAME")
    ] = None,
    lies: Annotated[
        bool | None, typer.Option(help="Search for lies that pay (default: for at most 20 virtual users).")
    ] = None,
    seed: Seed = 0,
    output: Output = Format.table,
) -> None:
    """Envy, sharing incentive, Pareto gap, and what one tenant could gain by lying."""
    from fairlead.studies.fairness.instances import (
        audit_lies,
        audit_shares,
        divide,
        parse_instance,
        parse_shares,
        read_json,
    )
    from fairlead.studies.fairness.journal_audit import audit_journal

    found: dict[str, Any]
    if _is_journal(source):
        if policy is not None or lies:
            raise InputError(
                "--policy and --lies are for instances; a journal shows what its own policy did", path=source
            )
        found = audit_journal(Path(source)).to_json()
        lies = False
    else:
        value = read_json(source)
        given = value.get("instance", value) if "shares" in value else value
        instance = parse_instance(given, source)
        if "shares" in value:
            found = audit_shares(instance, parse_shares(value, instance, source))
            policy = policy or value.get("policy")
        elif policy is not None:
            found = divide(instance, policy)["audit"]
        else:
            raise InputError("an instance alone has nothing to audit; choose a rule with --policy", path=source)
        if policy is not None and (lies or (lies is None and len(instance.names) <= MANY)):
            found["lies"] = audit_lies(instance, policy, seed)
    if output is Format.json:
        print_json({"source": source, "policy": policy, **found})
    else:
        _print_audit(f"Audit of {source}", found)


def _is_journal(path: str) -> bool:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return '"fairlead":"journal/' in file.readline(200)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", path=path) from None


def _print_audit(title: str, found: dict[str, Any]) -> None:
    """The verdicts one below the other, with who is concerned."""
    envy = "unbounded" if found["max_envy"] is None else format_number(found["max_envy"], 4)
    rows = [["largest envy", envy, _who("{} envies {}", found["envious"])]]
    worst = found.get("worst_off")
    rows.append(["smallest sharing incentive", format_number(found["min_sharing_incentive"], 6), worst or ""])
    if "pareto_gap" in found:
        rows.append(["Pareto gap", format_number(found["pareto_gap"], 4), ""])
    if "mean_sharing_incentive" in found:
        rows.append(["mean sharing incentive", format_number(found["mean_sharing_incentive"], 4), ""])
    for name, tenant in found.get("tenants", {}).items():
        rows.append(
            [
                f"  {name}",
                format_number(tenant["sharing_incentive"], 4),
                f"wanted more for {tenant['wanted_more_h']:.1f} h",
            ]
        )
    for direction, lie in found.get("lies", {}).items():
        rows.append([f"most gained: {direction}", format_number(lie["gain"], 4), lie["tenant"] or ""])
    print_table(title, ["property", "value", "who"], rows, left=1)


def _who(text: str, names: list[str] | None) -> str:
    return text.format(*names) if names else "nobody"
