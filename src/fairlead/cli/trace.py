from __future__ import annotations

from typing import Annotated

import typer

from fairlead.cli.options import Cluster, Seed, Throughputs, parse_pairs
from fairlead.cli.output import Format, Output, print_json
from fairlead.model.errors import InputError

app = typer.Typer(help="Read, convert and generate workloads.", no_args_is_help=True)


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
    from fairlead.traces.profiles import load_default_profile, read_profile

    widths = {_whole(name): _weight(name, text) for name, text in parse_pairs(width or [], "--width").items()}
    models = {name: _weight(name, text) for name, text in parse_pairs(model or [], "--model").items()}
    trace = make(
        read_cluster(cluster),
        read_profile(throughputs) if throughputs else load_default_profile(),
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
        print(f"wrote {len(trace.jobs)} jobs to {out}", *trace.notes, sep="\n  ")


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
