from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead.cli.options import Importing, Seed, parse_parameters, spread
from fairlead.cli.output import Format, Output, print_json, print_table, progress
from fairlead.cli.simulate_from import simulate_onwards
from fairlead.cli.world import Rules
from fairlead.model.errors import InputError
from fairlead.model.units import format_duration, format_number
from fairlead.model.words import counted

MOST_TENANTS = 20  # shown in a table

if TYPE_CHECKING:
    from fairlead.studies.runs.simulate import Result


@spread
def simulate(
    *,
    context: typer.Context,
    cluster: Annotated[
        str | None,
        typer.Option("--cluster", help="Cluster file, or GPUs by type: v100:36,p100:36x8.", metavar="FILE|TYPES"),
    ] = None,
    trace: Annotated[str | None, typer.Option("--trace", help="Workload file.", metavar="FILE")] = None,
    policy: Annotated[
        str | None, typer.Option("--policy", help="See `fairlead policies`, or your own.", metavar="NAME|FILE.py:NAME")
    ] = None,
    param: Annotated[list[str] | None, typer.Option(help="Parameter of the policy.", metavar="NAME=VALUE")] = None,
    importing: Importing,
    rules: Rules,
    seed: Seed = 0,
    journal: Annotated[str | None, typer.Option(help="Write every event and decision here.", metavar="FILE")] = None,
    from_: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="Continue a journal, from its end or a time, or a service's state directory.",
            metavar="FILE.jsonl[@TIME]|DIR",
        ),
    ] = None,
    unknown_lasts: Annotated[
        str | None,
        typer.Option(
            "--unknown-lasts", help="With --from: how much longer jobs of unknown length run.", metavar="DURATION"
        ),
    ] = None,
    until: Annotated[str | None, typer.Option("--until", help="With --from: end at this time.", metavar="TIME")] = None,
    output: Output = Format.table,
) -> None:
    """Run one policy on a workload and print what came of it.

    With --from the simulation starts from what a journal or a live service shows, with its cluster, settings and, for a
    journal, its later arrivals; --policy and the options of the world replace what they name.
    """
    if from_ is not None:
        origin, own, result, notes = simulate_onwards(
            from_, _written(context), policy, param or [], trace, importing, rules, seed, unknown_lasts, until, journal
        )
        _print(own.name, origin.name, result, output, notes)
        return
    if unknown_lasts is not None or until is not None:
        raise InputError("--unknown-lasts and --until need --from")
    if cluster is None or trace is None or policy is None:
        options = {"--cluster": cluster, "--trace": trace, "--policy": policy}
        missing = ", ".join(option for option, value in options.items() if value is None)
        raise InputError(f"{missing}: missing; a simulation needs all three, or --from")
    from fairlead.studies.policy_lab.plugins import load_policy
    from fairlead.studies.runs import simulate as study
    from fairlead.traces.clusters import read_cluster

    chosen = load_policy(policy)
    profile = importing.profile()
    setup = rules.setup(
        read_cluster(cluster, importing.aliases()),
        importing.read(trace, profile, seed),
        profile,
        chosen.with_parameters(parse_parameters(param or [], chosen.parameters)),
        seed,
        importing.aliases(),
    )
    study.check_weights(setup)
    left, skipped = study.without_impossible(setup, skip=rules.skip_impossible)
    if not left.jobs:
        raise InputError(f"{left.name} has no jobs to run; there is nothing to simulate")
    setup = replace(setup, trace=left)
    if skipped:
        typer.echo(f"left out {counted(skipped, 'job')} that can never run on this cluster", err=True)
    with progress(f"simulating {chosen.name}", len(left.jobs)) as tell:
        result = study.simulate(setup, Path(journal) if journal else None, lambda state: tell(state.ended))
    notes = [*setup.trace.notes, *study.doubts(setup), *result.run.notes]
    profiled = result.profiling_share if setup.world.profiling_s else None
    _print(setup.policy.name, setup.trace.name, result, output, notes, skipped, profiled)


def _written(context: typer.Context) -> set[str]:
    """Options on the command line, by the names of their parameters."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return {name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"}


def _print(
    policy: str,
    workload: str,
    result: Result,
    output: Format,
    assumptions: list[str],
    skipped: int = 0,
    profiling_share: float | None = None,
) -> None:
    from fairlead.studies.runs.summary import summarise, summarise_run

    summary: dict[str, Any] = {
        "policy": policy,
        **summarise(result.state).to_json(),
        "jobs_skipped": skipped,
        **summarise_run(result.run),
        **({} if profiling_share is None else {"profiling_share": profiling_share}),
        "cpu_s": result.cpu_s,
        "wall_s": result.wall_s,
        "assumptions": assumptions,
    }
    if output is Format.json:
        print_json(summary)
        return
    tenants = summary.pop("tenants")
    rows = [[_label(name), text] for name, value in summary.items() for text in [_text(name, value)] if text]
    left = summary["jobs_total"] - summary["jobs_finished"]
    if left:
        said = f"{left:,} of {summary['jobs_total']:,} jobs: what follows is of the {summary['jobs_finished']:,} that finished"
        rows.insert(list(summary).index("jobs_finished") + 1, ["never finished", said])
    print_table(f"{policy} on {workload}", ["what", "value"], rows)
    if len(tenants) > 1:
        _print_tenants(tenants)


def _print_tenants(tenants: dict[str, Any]) -> None:
    columns = ["tenant", "jobs", "mean JCT", "mean wait", "mean FTF", "max FTF", "GPU-hours"]
    rows = [
        [
            name,
            f"{found['jobs_finished']:,}",
            format_duration(found["jct_s"]["mean"]),
            format_duration(found["wait_s"]["mean"]),
            format_number(found["ftf"]["mean"]),
            format_number(found["ftf"]["max"]),
            format_number(found["gpu_hours"]),
        ]
        for name, found in sorted(tenants.items(), key=lambda item: -item[1]["gpu_hours"])
    ]
    print_table("Tenants", columns, rows[:MOST_TENANTS])
    if len(rows) > MOST_TENANTS:
        print(f"... and {len(rows) - MOST_TENANTS} more; -o json has them all")


def _label(name: str) -> str:
    """Durations are printed with their units, so the name needs none."""
    return name.removesuffix("_s").replace("_", " ")


def _text(name: str, value: Any) -> str:
    if isinstance(value, dict):
        return "  ".join(f"{key} {_text(name, part)}" for key, part in value.items())
    if isinstance(value, list):
        return "\n".join(value)
    if isinstance(value, str):
        return value
    if name in ("decision_s", "cpu_s", "wall_s"):
        return "-" if value is None else f"{value:.3g}s"
    return format_duration(value) if name.endswith("_s") else format_number(value)
