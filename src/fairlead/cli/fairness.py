from __future__ import annotations

from typing import Annotated, Any

import typer

from fairlead.cli.options import Seed
from fairlead.cli.output import Format, Output, print_json, print_lines, print_table
from fairlead.model.errors import InputError
from fairlead.model.units import format_number
from fairlead.model.words import counted
from fairlead.service.client import Client

SMALL_PART = 0.005  # of what is missing; smaller parts are not shown in tables


def allocate(
    instance: Annotated[str, typer.Argument(help="Tenants, weights, speedups and GPUs, as JSON.", metavar="INSTANCE")],
    policy: Annotated[
        str, typer.Option("--policy", help="oef-coop, oef-noncoop, gavel, equal-share or gandiva-fair.", metavar="NAME")
    ],
    output: Output = Format.table,
) -> None:
    """Divide the GPUs of an instance between its tenants, and audit the division."""
    from fairlead.library.fairness import allocate as divide

    answer = divide(instance, policy)
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
        str | None,
        typer.Argument(
            help="An instance, an allocation (output of allocate) or a journal; without it, the live service.",
            metavar="[FILE]",
        ),
    ] = None,
    policy: Annotated[
        str | None, typer.Option("--policy", help="The rule to audit, for an instance.", metavar="NAME")
    ] = None,
    lies: Annotated[
        bool | None, typer.Option(help="Search for lies that pay (default: for at most 20 virtual users).")
    ] = None,
    seed: Seed = 0,
    output: Output = Format.table,
) -> None:
    """Report whether a division, a run or the live service is fair, which promises were kept, and why not."""
    from fairlead.library.fairness import audit as audit_source
    from fairlead.library.fairness import is_journal

    if source is None and (policy is not None or lies):
        raise InputError("--policy and --lies are for instances; a run shows what its own policy did", path=source)
    if source is None:
        _print_run(source, Client.from_environment().get("/audit"), output)
        return
    report = audit_source(source, policy=policy, lies=lies, seed=seed)
    if is_journal(source):
        _print_run(source, report, output)
    elif output is Format.json:
        print_json({"source": source, **report})
    else:
        _print_audit(f"Audit of {source}", report)


def _print_audit(title: str, report: dict[str, Any]) -> None:
    """Print one row per property, with the tenants that it concerns."""
    envy = "unbounded" if report["max_envy"] is None else format_number(report["max_envy"], 4)
    rows = [["largest envy", envy, _who("{} envies {}", report["envious"])]]
    worst = report.get("worst_off")
    rows.append(["smallest sharing incentive", format_number(report["min_sharing_incentive"], 6), worst or ""])
    if "pareto_gap" in report:
        rows.append(["Pareto gap", format_number(report["pareto_gap"], 4), ""])
    for direction, lie in report.get("lies", {}).items():
        rows.append([f"most gained: {direction}", format_number(lie["gain"], 4), lie["tenant"] or ""])
    print_table(title, ["property", "value", "who"], rows, left=1)


def _print_run(source: str | None, report: dict[str, Any], output: Format) -> None:
    """The audit of a run: each promise with its causes, then every tenant in GPU-hours and in units of speed."""
    if output is Format.json:
        print_json({"source": source, **report})
        return
    decided_by = report["decided_by"]
    title = f"promises of {report['policy']}" if decided_by is None else f"what {decided_by} did"
    print_promises(f"Audit of {source or 'the service'}: {title}", report)
    if decided_by is not None:
        print_lines(
            f"{decided_by} decided, and {report['policy']} only advised: nothing was promised. "
            "`fairlead shadow report` shows what policies would have done."
        )
    tenants = report["tenants"].items()
    print_table(
        "GPU-hours",
        ["tenant", "entitled", "held", "borrowed", "lent", "restarts", "per job", "lost to them"],
        [[name, *_hours(tenant)] for name, tenant in tenants],
    )
    print_table(
        "Speed x hours, in units of each job's slowest GPU type",
        ["tenant", "entitled", "achieved", "incentive", "envy", "wanted more", "speeds"],
        [[name, *_speeds(tenant)] for name, tenant in tenants],
    )
    trials = [
        [model, tenant, f"{cost['gpu_s'] / 3600:.2f} GPU-h in {counted(cost['trials'], 'trial')}"]
        for tenant, models in report.get("trials", {}).items()
        for model, cost in models.items()
    ]
    if trials:
        print_table("Measuring new models", ["model", "tenant", "cost"], trials, left=2)


def print_promises(title: str, report: dict[str, Any]) -> None:
    """One row for each promise, and one for each cause of a broken one."""
    rows: list[list[str]] = []
    for one in report["promises"]:
        limit = "-" if one["bound"] is None else format_number(one["bound"])
        unbounded = one["value"] is None and one["tenants"]
        value = "unbounded" if unbounded else format_number(one["value"], 4)
        rows.append([one["promise"], one["standing"], value, limit, " envies ".join(one["tenants"])])
        causes = sorted(one["causes"].items(), key=lambda item: -item[1]) if one["standing"] == "broken" else []
        rows += [[f"  {cause}", "", f"{part:.0%}", "", ""] for cause, part in causes if abs(part) >= SMALL_PART]
    print_table(title, ["promise", "", "value", "limit", "who"], rows, left=2)
    if any(one["standing"] == "not measured" and one["bound"] is not None for one in report["promises"]):
        print_lines("not measured: no decision left a tenant with fewer GPUs than it wanted")


def _hours(tenant: dict[str, Any]) -> list[str]:
    held = sum(tenant["gpu_hours"].values())
    amounts = (tenant["entitled_gpu_hours"], held, tenant["borrowed_gpu_hours"], tenant["lent_gpu_hours"])
    restarts, jobs = tenant["restarts"], tenant["jobs"]
    per_job = format_number(restarts / jobs, 2) if jobs else "-"
    return [*(f"{hours:.1f}" for hours in amounts), str(restarts), per_job, f"{tenant['restart_gpu_hours']:.2f}"]


def _speeds(tenant: dict[str, Any]) -> list[str]:
    return [
        f"{tenant['entitled_speed_hours']:.1f}",
        f"{tenant['achieved_speed_hours']:.1f}",
        format_number(tenant["sharing_incentive"], 4),
        "unbounded" if tenant["envy"] is None else format_number(tenant["envy"], 4),
        f"{tenant['wanted_more_h']:.1f} h",
        _sources(tenant["rates_by_source"]),
    ]


def _sources(hours: dict[str, float]) -> str:
    """How the speeds of the GPUs that a tenant held were known, as parts of its GPU-hours."""
    total = sum(hours.values())
    return ", ".join(f"{source} {part / total:.0%}" for source, part in hours.items()) if total else "of no GPU"


def _who(text: str, names: list[str] | None) -> str:
    return text.format(*names) if names else "nobody"
