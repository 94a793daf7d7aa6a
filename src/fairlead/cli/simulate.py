from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead.cli.options import (
    Aliases,
    Cluster,
    Seed,
    Throughputs,
    gpu_aliases,
    open_profile,
    parse_parameters,
)
from fairlead.cli.output import Format, Output, print_json, print_table, progress
from fairlead.cli.world import (
    CheckpointEvery,
    Decide,
    LengthError,
    MinRun,
    Mtbf,
    ProfilingCost,
    Repair,
    RestartCost,
    Round,
    ServerFactors,
    SkipImpossible,
    Task,
    TenantWeights,
    settings_of,
    weights_of,
    world_of,
)
from fairlead.model.units import format_duration, format_number, parse_duration
from fairlead.model.words import choose

MOST_TENANTS = 20  # shown in a table

if TYPE_CHECKING:
    from fairlead.rates.three_layer import Sensing
    from fairlead.studies.simulate import Result, Setup


def simulate(
    cluster: Cluster,
    trace: Annotated[str, typer.Option("--trace", help="Workload file.", metavar="FILE")],
    policy: Annotated[
        str, typer.Option("--policy", help="See `fairlead policies`, or your own.", metavar="NAME|FILE.py:NAME")
    ],
    trace_format: Annotated[str | None, typer.Option(help="Format of the trace (default: detected).")] = None,
    throughputs: Throughputs = None,
    alias: Aliases = None,
    param: Annotated[list[str] | None, typer.Option(help="Parameter of the policy.", metavar="NAME=VALUE")] = None,
    round_: Round = "360",
    decide: Decide = "rounds",
    min_run: MinRun = "0s",
    task: Task = "60s",
    restart_cost: RestartCost = None,
    tenant_weight: TenantWeights = None,
    server_factors: ServerFactors = "1:1",
    mtbf: Mtbf = "0",
    repair: Repair = "1h",
    checkpoint_every: CheckpointEvery = "30m",
    length_error: LengthError = 0.0,
    profiling_cost: ProfilingCost = "0",
    sensing: Annotated[
        str,
        typer.Option(
            help="What is learnt of speeds while jobs run: nothing, by type, by server, or servers for all jobs.",
            metavar="table|types|servers|three-layer",
        ),
    ] = "table",
    skip_impossible: SkipImpossible = False,
    skip_bad_lines: Annotated[bool, typer.Option(help="Leave out lines that cannot be read.")] = False,
    seed: Seed = 0,
    journal: Annotated[str | None, typer.Option(help="Write every event and decision here.", metavar="FILE")] = None,
    output: Output = Format.table,
) -> None:
    """Run one policy on a workload and print what came of it."""
    from fairlead.studies import simulate as study
    from fairlead.studies.plugins import load_policy
    from fairlead.traces.clusters import read_cluster
    from fairlead.traces.formats import read_trace

    chosen = load_policy(policy)
    profile = open_profile(throughputs)
    aliases = gpu_aliases(alias)
    setup = study.Setup(
        cluster=read_cluster(cluster, aliases),
        trace=read_trace(
            trace, trace_format, profile=profile, seed=seed, skip_bad_lines=skip_bad_lines, aliases=aliases
        ),
        profile=profile,
        policy=chosen.with_parameters(parse_parameters(param or [], chosen.parameters)),
        settings=settings_of(round_, decide, min_run, task),
        world=world_of(seed, server_factors, mtbf, repair, checkpoint_every, length_error, profiling_cost),
        restart_s=None if restart_cost is None else parse_duration(restart_cost),
        tenant_weight=weights_of(tenant_weight),
        sensing=_sensing(sensing),
    )
    study.check_weights(setup)
    left, skipped = study.without_impossible(setup, skip=skip_impossible)
    setup = replace(setup, trace=left)
    if skipped:
        typer.echo(f"left out {skipped} jobs that can never run on this cluster", err=True)
    with progress(f"simulating {chosen.name}", len(left.jobs)) as tell:
        result = study.simulate(setup, Path(journal) if journal else None, lambda state: tell(state.ended))
    _print(setup, result, output, skipped)


def _sensing(text: str) -> Sensing:
    from fairlead.rates.three_layer import Sensing

    return Sensing(choose("--sensing", text, Sensing))


def _print(setup: Setup, result: Result, output: Format, skipped: int) -> None:
    from fairlead.studies.summary import summarise, summarise_run

    summary: dict[str, Any] = {
        "policy": setup.policy.name,
        **summarise(result.state),
        "jobs_skipped": skipped,
        **summarise_run(result.run),
        **({"profiling_share": result.profiling_share} if setup.world.profiling_s else {}),
        "cpu_s": result.cpu_s,
        "wall_s": result.wall_s,
        "assumptions": [*setup.trace.notes, *result.run.notes],
    }
    if output is Format.json:
        print_json(summary)
        return
    tenants = summary.pop("tenants")
    rows = [[_label(name), text] for name, value in summary.items() for text in [_text(name, value)] if text]
    print_table(f"{setup.policy.name} on {setup.trace.name}", ["what", "value"], rows)
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
