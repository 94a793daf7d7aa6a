from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.options import Aliases, Cluster, Throughputs, gpu_aliases, open_profile
from fairlead.cli.output import Format, Output, print_json, print_lines, print_table
from fairlead.library.live import job_of
from fairlead.model.errors import FairleadError
from fairlead.model.units import format_number, parse_duration


def profile(
    file: Annotated[str, typer.Argument(help="Job file; its script must report steps.", metavar="FILE")],
    cluster: Cluster,
    steps: Annotated[int, typer.Option(min=1, max=1_000_000, help="Steps to measure on each type.")] = 20,
    limit: Annotated[str, typer.Option(help="Time limit for each type.", metavar="DURATION")] = "5m",
    out: Annotated[
        Path | None, typer.Option(help="Write the speeds here, for use with --throughputs.", metavar="FILE")
    ] = None,
    emulate: Annotated[bool, typer.Option("--emulate", help="Emulate GPUs even if this machine has some.")] = False,
    throughputs: Throughputs = None,
    alias: Aliases = None,
    output: Output = Format.table,
) -> None:
    """Run a few steps of a job on each GPU type of this machine, and report its speeds."""
    from fairlead.studies.speeds.measuring import profile_job
    from fairlead.traces.clusters import read_cluster
    from fairlead.traces.profiles import write_profile

    machine = read_cluster(cluster, gpu_aliases(alias))
    job = job_of(file)
    capacity = dict(zip(machine.gpu, machine.capacity.tolist(), strict=True))
    spec = job.spec(job.name, job.tenant or "-", 0.0, capacity)
    measured = profile_job(
        spec,
        job.command(),
        machine,
        open_profile(throughputs),
        steps=steps,
        limit_s=parse_duration(limit, "--limit"),
        emulate=emulate,
    )
    if out is not None and measured.rows:
        write_profile(measured.profile(job.name), out)
    if output is Format.json:
        parts = [{"model": model, "gpu": gpu, **asdict(part)} for (model, gpu), part in measured.parts.items()]
        speeds = [asdict(row) for row in measured.rows]
        print_json({"note": measured.note, "speeds": speeds, "parts": parts, "failures": measured.failures})
    else:
        print_lines(measured.note)
        rows = [
            [row.gpu, str(row.gpus), str(row.nodes), format_number(row.steps_per_s, 4), row.source]
            for row in measured.rows
        ]
        rows += [[type_, str(spec.gpus), "-", "-", reason] for type_, reason in measured.failures.items()]
        print_table(f"{spec.model}", ["type", "GPUs", "nodes", "steps/s", "source, or why not"], rows)
    if not measured.rows:
        raise FairleadError("nothing could be measured")
