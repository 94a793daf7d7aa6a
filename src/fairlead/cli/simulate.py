from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead.cli.options import Importing, Seed, parse_parameters, spread
from fairlead.cli.output import Format, Output, print_json, print_table, progress
from fairlead.cli.simulate_from import simulate_onwards
from fairlead.cli.world import WorldOptions
from fairlead.model.errors import InputError
from fairlead.model.units import format_duration, format_number
from fairlead.model.words import counted

MOST_TENANTS = 20  # in the table

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
        str | None,
        typer.Option("--policy", help="One of `fairlead policies`, or your own.", metavar="NAME|FILE.py:NAME"),
    ] = None,
    param: Annotated[list[str] | None, typer.Option(help="Parameter of the policy.", metavar="NAME=VALUE")] = None,
    importing: Importing,
    rules: WorldOptions,
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
    """Simulate one policy on a workload and print a summary.

    With --from the simulation starts from the state of a journal or of a live service, with its cluster, its settings
    and, for a journal, its later arrivals; --policy and the options of the world replace the recorded ones.
    """
    if from_ is not None:
        origin, continued, result, notes = simulate_onwards(
            from_,
            _options_set(context),
            policy,
            param or [],
            trace,
            importing,
            rules,
            seed,
            unknown_lasts,
            until,
            journal,
        )
        _print(continued.name, origin.name, result, output, notes)
        return
    if unknown_lasts is not None or until is not None:
        raise InputError("--unknown-lasts and --until need --from")
    if cluster is None or trace is None or policy is None:
        options = {"--cluster": cluster, "--trace": trace, "--policy": policy}
        missing = ", ".join(option for option, value in options.items() if value is None)
        raise InputError(f"{missing}: missing; a simulation needs --cluster, --trace and --policy, or --from")
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
    study.check_tenants(setup)
    feasible, skipped = study.without_impossible(setup, skip=rules.skip_impossible)
    if not feasible.jobs:
        raise InputError(f"{feasible.name} has no jobs to run; there is nothing to simulate")
    setup = replace(setup, trace=feasible)
    if skipped:
        typer.echo(f"left out {counted(skipped, 'job')} that can never run on this cluster", err=True)
    with progress(f"simulating {chosen.name}", len(feasible.jobs)) as report:
        result = study.simulate(setup, Path(journal) if journal else None, lambda state: report(state.ended))
    rules_of_run = [f"{rule.name}: {rule.sentence}" for rule in result.run.assumed]
    notes = [*setup.trace.notes, *study.doubts(setup), *result.run.notes, *rules_of_run]
    profiled = result.profiling_share if setup.world.profiling_s or result.profiling_gpu_s else None
    _print(setup.policy.name, setup.trace.name, result, output, notes, skipped, profiled)


def _options_set(context: typer.Context) -> set[str]:
    """The options that the command line sets, by the names of their parameters."""
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
        **summarise(result.state, result.finished_jobs()).to_json(),
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
    unfinished = summary["jobs_total"] - summary["jobs_finished"]
    if unfinished:
        total, finished = summary["jobs_total"], summary["jobs_finished"]
        text = f"{unfinished:,} of {total:,} jobs; the rows below cover the {finished:,} that finished"
        rows.insert(list(summary).index("jobs_finished") + 1, ["never finished", text])
    print_table(f"{policy} on {workload}", ["metric", "value"], rows)
    if len(tenants) > 1:
        _print_tenants(tenants)


def _print_tenants(tenants: dict[str, Any]) -> None:
    columns = ["tenant", "jobs", "mean JCT", "mean wait", "mean FTF", "max FTF", "GPU-hours"]
    rows = [
        [
            name,
            f"{outcome['jobs_finished']:,}",
            format_duration(outcome["jct_s"]["mean"]),
            format_duration(outcome["wait_s"]["mean"]),
            format_number(outcome["ftf"]["mean"]),
            format_number(outcome["ftf"]["max"]),
            format_number(outcome["gpu_hours"]),
        ]
        for name, outcome in sorted(tenants.items(), key=lambda item: -item[1]["gpu_hours"])
    ]
    print_table("Tenants", columns, rows[:MOST_TENANTS])
    if len(rows) > MOST_TENANTS:
        print(f"... and {len(rows) - MOST_TENANTS} more; -o json has them all")


def _label(name: str) -> str:
    """The name of a metric without its unit, because durations are printed with theirs."""
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
