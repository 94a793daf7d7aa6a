from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fairlead.cli.options import Seed
from fairlead.cli.output import Format, Output, print_json, print_table
from fairlead.model.errors import InputError
from fairlead.model.units import format_number
from fairlead.model.words import counted

MANY_TENANTS = 20  # above this, no search for lies by default: it solves hundreds of divisions per tenant


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
        str | None, typer.Option("--policy", help="The rule to audit, for an instance.", metavar="NAME")
    ] = None,
    lies: Annotated[
        bool | None, typer.Option(help="Search for lies that pay (default: for at most 20 virtual users).")
    ] = None,
    seed: Seed = 0,
    output: Output = Format.table,
) -> None:
    """Report envy, sharing incentive, Pareto gap, and what one tenant could gain by lying."""
    from fairlead.studies.fairness.instances import (
        audit_lies,
        audit_shares,
        divide,
        parse_instance,
        parse_shares,
        read_json,
    )
    from fairlead.studies.fairness.journal_audit import audit_journal

    report: dict[str, Any]
    if _is_journal(source):
        if policy is not None or lies:
            raise InputError(
                "--policy and --lies are for instances; a journal shows what its own policy did", path=source
            )
        report = audit_journal(Path(source)).to_json()
        lies = False
    else:
        value = read_json(source)
        instance = parse_instance(value.get("instance", value) if "shares" in value else value, source)
        if "shares" in value:
            report = audit_shares(instance, parse_shares(value, instance, source))
            policy = policy or value.get("policy")
        elif policy is not None:
            report = divide(instance, policy)["audit"]
        else:
            raise InputError("an instance alone has nothing to audit; choose a rule with --policy", path=source)
        if policy is not None and (lies or (lies is None and len(instance.names) <= MANY_TENANTS)):
            report["lies"] = audit_lies(instance, policy, seed)
    if output is Format.json:
        print_json({"source": source, "policy": policy, **report})
    else:
        _print_audit(f"Audit of {source}", report)


def _is_journal(path: str) -> bool:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return '"fairlead":"journal/' in file.readline(200)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", path=path) from None


def _print_audit(title: str, report: dict[str, Any]) -> None:
    """Print one row per property, with the tenants that it concerns."""
    envy = "unbounded" if report["max_envy"] is None else format_number(report["max_envy"], 4)
    rows = [["largest envy", envy, _who("{} envies {}", report["envious"])]]
    worst = report.get("worst_off")
    rows.append(["smallest sharing incentive", format_number(report["min_sharing_incentive"], 6), worst or ""])
    if "pareto_gap" in report:
        rows.append(["Pareto gap", format_number(report["pareto_gap"], 4), ""])
    if "mean_sharing_incentive" in report:
        rows.append(["mean sharing incentive", format_number(report["mean_sharing_incentive"], 4), ""])
    for name, tenant in report.get("tenants", {}).items():
        rows.append(
            [
                f"  {name}",
                format_number(tenant["sharing_incentive"], 4),
                f"wanted more for {tenant['wanted_more_h']:.1f} h; speeds {_sources(tenant['rates_by_source'])}",
            ]
        )
    for tenant_name, models in report.get("trials", {}).items():
        for model, cost in models.items():
            gpus = f"{cost['gpu_s'] / 3600:.2f} GPU-h in {counted(cost['trials'], 'trial')}"
            rows.append([f"  measuring {model}", gpus, tenant_name])
    for direction, lie in report.get("lies", {}).items():
        rows.append([f"most gained: {direction}", format_number(lie["gain"], 4), lie["tenant"] or ""])
    print_table(title, ["property", "value", "who"], rows, left=1)


def _sources(hours: dict[str, float]) -> str:
    """How the speeds of the GPUs that a tenant held were known, as parts of its GPU-hours."""
    total = sum(hours.values())
    return ", ".join(f"{source} {part / total:.0%}" for source, part in hours.items()) if total else "of no GPU"


def _who(text: str, names: list[str] | None) -> str:
    return text.format(*names) if names else "nobody"
