from __future__ import annotations

from typing import Annotated, Any

import typer

from fairlead.cli.options import Cluster, Importing, Seed, Throughputs, open_profile, parse_pairs, spread
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
    out: Annotated[str, typer.Option("--out", help="Where to write it in our own format.", metavar="FILE")],
    importing: Importing,
    seed: Seed = 0,
    output: Output = Format.table,
) -> None:
    """Turn anybody's trace into ours, and say what had to be assumed."""
    from fairlead.traces.formats import convert_trace
    from fairlead.traces.importers.rows import Options

    options = Options(profile=importing.profile(), seed=seed, **importing.choices())
    done = convert_trace(source, out, importing.trace_format, options)
    if output is Format.json:
        print_json({"trace": out, "format": done.format, "jobs": done.jobs, "notes": list(done.notes)})
    else:
        print(
            f"{source} is in the format {done.format}; wrote {counted(done.jobs, 'job')} to {out}",
            *done.notes,
            sep="\n  ",
        )


@app.command()
@spread
def stats(
    *,
    source: Annotated[str, typer.Argument(help="A trace of any known format.", metavar="FILE")],
    cluster: Annotated[
        str | None, typer.Option("--cluster", help="Count the load on this cluster.", metavar="FILE|TYPES")
    ] = None,
    importing: Importing,
    figure: Annotated[str | None, typer.Option(help="Draw it here (.png, .pdf or .svg).", metavar="FILE")] = None,
    seed: Seed = 0,
    output: Output = Format.table,
) -> None:
    """Jobs, span, load, widths, durations, tenants and their GPU-hours."""
    from dataclasses import asdict

    from fairlead.traces.clusters import read_cluster
    from fairlead.traces.stats import trace_stats

    profile = importing.profile()
    trace = importing.read(source, profile, seed)
    found = trace_stats(
        trace,
        profile,
        read_cluster(cluster, importing.aliases()) if cluster else None,
        *([importing.reference] if importing.reference else []),
    )
    if figure:
        from fairlead.studies.report.trace_figure import draw_trace

        draw_trace(trace, found, figure)
    if output is Format.json:
        print_json({**asdict(found), "assumptions": list(trace.notes)})
        return
    _print_stats(asdict(found), list(trace.notes))


@app.command()
def generate(
    cluster: Cluster,
    out: Annotated[str, typer.Option("--out", help="Where to write the trace.", metavar="FILE")],
    jobs: Annotated[int, typer.Option(help="How many jobs.", min=0)] = 100,
    load: Annotated[float, typer.Option(help="Offered GPU-time / GPU-time of the cluster.")] = 0.8,
    arrivals: Annotated[str, typer.Option(help="poisson or bursty.")] = "poisson",
    durations: Annotated[str, typer.Option(help="philly or gavel.")] = "philly",
    width: Annotated[
        list[str] | None, typer.Option(help="Weight of a gang size (default: Philly's).", metavar="GPUS=WEIGHT")
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option(help="Weight of a model (default: all evenly).", metavar="MODEL=WEIGHT")
    ] = None,
    tenants: Annotated[int, typer.Option(help="How many tenants.", min=1)] = 1,
    tenant_skew: Annotated[float, typer.Option(help="Tenant k submits in proportion to 1 / k^skew.")] = 1.0,
    throughputs: Throughputs = None,
    seed: Seed = 0,
    output: Output = Format.table,
) -> None:
    """Make a workload that offers a stated load to a cluster."""
    from fairlead.traces.clusters import read_cluster
    from fairlead.traces.formats import write_trace
    from fairlead.traces.generate import generate as make

    widths = {_whole(name): _weight(name, text) for name, text in parse_pairs(width or [], "--width").items()}
    models = {name: _weight(name, text) for name, text in parse_pairs(model or [], "--model").items()}
    trace = make(
        read_cluster(cluster),
        open_profile(throughputs),
        jobs=jobs,
        load=load,
        seed=seed,
        arrivals=arrivals,
        durations=durations,
        widths=widths or None,
        models=models or None,
        tenants=tenants,
        tenant_skew=tenant_skew,
    )
    write_trace(trace, out)
    if output is Format.json:
        print_json({"trace": out, "jobs": len(trace.jobs), "notes": list(trace.notes)})
    else:
        print(f"wrote {counted(len(trace.jobs), 'job')} to {out}", *trace.notes, sep="\n  ")


def _print_stats(found: dict[str, Any], notes: list[str]) -> None:
    shares = found["gpu_hours_by_tenant"]
    duration = found["duration_s"]
    rows = [
        ["format", found["format"]],
        ["jobs", f"{found['jobs']:,}" + (f" ({found['unknown']:,} without a length)" if found["unknown"] else "")],
        ["span", format_duration(found["span_s"])],
        ["arrivals per hour", format_number(found["arrivals_per_h"])],
        [f"durations on {found['reference']}", "  ".join(f"{k} {format_duration(v)}" for k, v in duration.items())],
        ["GPU-hours", format_number(found["gpu_hours"])],
        ["load", format_number(found["load"])],
        ["widths", _counts(found["widths"])],
        ["models", _counts(found["models"])],
        ["tenants", _counts(found["tenants"])],
        ["GPU-hours by tenant", _counts({name: round(hours) for name, hours in shares.items()})],
        ["assumed", "\n".join(notes) or "-"],
    ]
    print_table(found["name"], ["what", "value"], rows, left=2)


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
