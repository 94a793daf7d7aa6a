from __future__ import annotations

from typing import Annotated, Any

import typer

from fairlead.cli.options import Cluster, Importing, Seed, Throughputs, parse_pairs, spread
from fairlead.cli.output import Format, Output, print_json, print_table
from fairlead.model.errors import InputError
from fairlead.model.units import format_duration, format_number
from fairlead.model.words import counted

app = typer.Typer(help="Read, convert and generate workloads.", no_args_is_help=True)


@app.command()
@spread
def convert(
    *,
    source: Annotated[str, typer.Argument(help="A trace of any known format.", metavar="FILE")],
    out: Annotated[str, typer.Option("--out", help="Where to write the Fairlead trace.", metavar="FILE")],
    importing: Importing,
    seed: Seed = 0,
    output: Output = Format.table,
) -> None:
    """Convert a trace of any known format to Fairlead's, and print the assumptions made."""
    from fairlead.traces.formats import convert_trace
    from fairlead.traces.importers.rows import Options

    options = Options(profile=importing.profile(), seed=seed, **importing.choices())
    conversion = convert_trace(source, out, importing.trace_format, options)
    if output is Format.json:
        print_json(
            {"trace": out, "format": conversion.format, "jobs": conversion.jobs, "notes": list(conversion.notes)}
        )
    else:
        print(
            f"{source} is in the format {conversion.format}; wrote {counted(conversion.jobs, 'job')} to {out}",
            *conversion.notes,
            sep="\n  ",
        )


@app.command()
@spread
def stats(
    *,
    source: Annotated[str, typer.Argument(help="A trace of any known format.", metavar="FILE")],
    cluster: Annotated[
        str | None, typer.Option("--cluster", help="Compute the load on this cluster.", metavar="FILE|TYPES")
    ] = None,
    importing: Importing,
    figure: Annotated[str | None, typer.Option(help="Draw a figure here (.png, .pdf or .svg).", metavar="FILE")] = None,
    seed: Seed = 0,
    output: Output = Format.table,
) -> None:
    """Show the jobs, span, load, widths, durations, tenants and GPU-hours of a trace."""
    from dataclasses import asdict

    from fairlead.studies.compare.fillings import filled_in
    from fairlead.traces.clusters import read_cluster
    from fairlead.traces.stats import trace_stats

    profile = importing.profile()
    trace = importing.read(source, profile, seed)
    summary = trace_stats(
        trace,
        profile,
        read_cluster(cluster, importing.aliases()) if cluster else None,
        *([importing.reference] if importing.reference else []),
    )
    if figure:
        from fairlead.studies.report.trace_figure import draw_trace

        draw_trace(trace, summary, figure)
    if output is Format.json:
        print_json({**asdict(summary), "assumptions": list(trace.notes), "filled_in": dict(trace.filled)})
        return
    _print_stats(asdict(summary), list(trace.notes), filled_in(trace))


@app.command()
def generate(
    cluster: Cluster,
    out: Annotated[str, typer.Option("--out", help="Where to write the trace.", metavar="FILE")],
    jobs: Annotated[int, typer.Option(help="Number of jobs.", min=0)] = 100,
    load: Annotated[float, typer.Option(help="Offered GPU-time / GPU-time of the cluster.")] = 0.8,
    arrivals: Annotated[str, typer.Option(help="poisson or bursty.")] = "poisson",
    durations: Annotated[str, typer.Option(help="philly or gavel.")] = "philly",
    width: Annotated[
        list[str] | None, typer.Option(help="Weight of a gang size (default: Philly's).", metavar="GPUS=WEIGHT")
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option(help="Weight of a model (default: all evenly).", metavar="MODEL=WEIGHT")
    ] = None,
    tenants: Annotated[int, typer.Option(help="Number of tenants.", min=1)] = 1,
    tenant_skew: Annotated[float, typer.Option(help="Tenant k submits in proportion to 1 / k^skew.")] = 1.0,
    throughputs: Throughputs = None,
    seed: Seed = 0,
    output: Output = Format.table,
) -> None:
    """Generate a workload that offers a stated load to a cluster."""
    from fairlead.library.reading import generate as make
    from fairlead.traces.formats import write_trace

    widths = {_whole(name): _weight(name, text) for name, text in parse_pairs(width or [], "--width", "4=0.2").items()}
    models = {name: _weight(name, text) for name, text in parse_pairs(model or [], "--model", "resnet50=2").items()}
    trace = make(
        cluster,
        throughputs=throughputs,
        jobs=jobs,
        load=load,
        seed=seed,
        arrivals=arrivals,
        durations=durations,
        width=widths,
        model=models,
        tenants=tenants,
        tenant_skew=tenant_skew,
    )
    write_trace(trace, out)
    if output is Format.json:
        print_json({"trace": out, "jobs": len(trace.jobs), "notes": list(trace.notes)})
    else:
        print(f"wrote {counted(len(trace.jobs), 'job')} to {out}", *trace.notes, sep="\n  ")


def _print_stats(summary: dict[str, Any], notes: list[str], filled: list[str]) -> None:
    shares = summary["gpu_hours_by_tenant"]
    duration = summary["duration_s"]
    rows = [
        ["format", summary["format"]],
        [
            "jobs",
            f"{summary['jobs']:,}" + (f" ({summary['unknown']:,} without a length)" if summary["unknown"] else ""),
        ],
        ["span", format_duration(summary["span_s"])],
        ["arrivals per hour", format_number(summary["arrivals_per_h"])],
        [f"durations on {summary['reference']}", "  ".join(f"{k} {format_duration(v)}" for k, v in duration.items())],
        ["GPU-hours", format_number(summary["gpu_hours"])],
        ["load", format_number(summary["load"])],
        ["widths", _counts(summary["widths"])],
        ["models", _counts(summary["models"])],
        ["tenants", _counts(summary["tenants"])],
        ["GPU-hours by tenant", _counts({name: round(hours) for name, hours in shares.items()})],
        ["filled in", ", ".join(filled) or "nothing"],
        ["assumptions", "\n".join(notes) or "-"],
    ]
    print_table(summary["name"], ["property", "value"], rows, left=2)


def _counts(counts: dict[Any, float], most: int = 12) -> str:
    shown = [f"{name}: {count:,}" for name, count in list(counts.items())[:most]]
    return ", ".join(shown) + (f", ... ({len(counts) - most} more)" if len(counts) > most else "")


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InputError(f'--width {text}: "{text}" is not a number of GPUs') from None


def _weight(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f'weight of {name}: "{text}" is not a number') from None
