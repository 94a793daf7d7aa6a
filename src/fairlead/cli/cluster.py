from __future__ import annotations

from typing import Annotated

import typer

from fairlead.cli.options import Aliases, gpu_aliases
from fairlead.cli.output import Format, Output, print_json, print_lines, print_table
from fairlead.model.words import counted

app = typer.Typer(help="Read and convert descriptions of clusters.", no_args_is_help=True)

Source = Annotated[
    str,
    typer.Argument(
        help="Cluster file, short form (v100:36,p100:36x8), Alibaba machine list or Slurm sinfo dump.",
        metavar="FILE|TYPES",
    ),
]


@app.command()
def show(source: Source, alias: Aliases = None, output: Output = Format.table) -> None:
    """Show the nodes and GPUs of a cluster by type."""
    from fairlead.traces.clusters import read_cluster

    cluster = read_cluster(source, gpu_aliases(alias))
    rows = [
        {
            "type": label,
            "gpu": cluster.gpu[t],
            "memory_gib": float(cluster.memory_gib[t]),
            "nodes": int((cluster.node_type == t).sum()),
            "gpus": int(cluster.capacity[t]),
        }
        for t, label in enumerate(cluster.types)
    ]
    if output is Format.json:
        print_json({"nodes": len(cluster.nodes), "gpus": cluster.total_gpus, "types": rows})
    else:
        title = f"{counted(cluster.total_gpus, 'GPU')} on {counted(len(cluster.nodes), 'node')}"
        print_table(title, list(rows[0]), [[str(value) for value in row.values()] for row in rows], left=2)


@app.command()
def convert(
    source: Source,
    out: Annotated[str, typer.Option("--out", help="Where to write the cluster file.", metavar="FILE")],
    alias: Aliases = None,
    output: Output = Format.table,
) -> None:
    """Convert a machine list to a Fairlead cluster file."""
    from fairlead.traces.clusters import read_cluster, write_cluster
    from fairlead.traces.machines import conversion_notes

    cluster = read_cluster(source, gpu_aliases(alias))
    notes = conversion_notes(source, cluster, gpu_aliases(alias))
    write_cluster(cluster, out)
    if output is Format.json:
        print_json({"cluster": out, "nodes": len(cluster.nodes), "gpus": cluster.total_gpus, "notes": notes})
    else:
        size = f"{counted(len(cluster.nodes), 'node')} with {counted(cluster.total_gpus, 'GPU')}"
        print_lines(f"wrote {size} to {out}", *(f"  {note}" for note in notes))
