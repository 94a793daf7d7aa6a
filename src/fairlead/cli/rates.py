from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from fairlead.cli.options import Throughputs, open_profile
from fairlead.cli.output import Format, Output, print_json, print_lines, print_table
from fairlead.model.errors import InputError, NotFoundError
from fairlead.model.units import format_number
from fairlead.model.words import counted
from fairlead.rates.profile import Layer, Profile

FORMULA_SHOWN = ((1, 1), (2, 1), (4, 1), (8, 1), (2, 2), (4, 2), (8, 2), (16, 2))  # GPUs, nodes

app = typer.Typer(help="Speeds of models on GPU types, with their sources.", no_args_is_help=True)


@app.command("list")
def list_models(throughputs: Throughputs = None, output: Output = Format.table) -> None:
    """List the models of a profile and the GPU types for which they have speeds."""
    profile = open_profile(throughputs)
    types = {model: profile.gpus_of(model) for model in profile.models}
    if output is Format.json:
        print_json({"profile": profile.name, "models": types})
    else:
        print_table(f"profile {profile.name}", ["model", "GPU types"], [[m, ", ".join(g)] for m, g in types.items()], 2)


@app.command()
def show(
    model: Annotated[str, typer.Argument(help="A model of the profile.", metavar="MODEL")],
    throughputs: Throughputs = None,
    completed: Annotated[
        bool, typer.Option("--completed", help="Fill unmeasured types from the other models, with an 80 % interval.")
    ] = False,
    output: Output = Format.table,
) -> None:
    """Show every speed of one model with its source, and those that the formula computes from its profiled parts."""
    from fairlead.rates.completion import complete, source_of

    profile = _profile_with(model, throughputs)
    rows: list[dict[str, Any]] = [
        {
            "gpu": row.gpu,
            "gpus": row.gpus,
            "nodes": row.nodes,
            "batch": row.batch,
            "steps_per_s": row.steps_per_s,
            "samples_per_s": row.samples_per_s,
            "kind": source_of(row),
            "source": row.source,
        }
        for row in profile.speeds
        if row.model == model
    ]
    rows += _by_formula(profile, model)
    if completed:
        known = {(row["gpu"], row["gpus"], row["nodes"]) for row in rows}
        completion = complete(profile)
        for gpu, gpus, nodes in completion.columns if model in completion.models else ():
            if (gpu, gpus, nodes) not in known and (model, gpu) not in profile.parts:
                guess = completion.estimate(model, gpu, gpus, nodes)
                rows.append(
                    {
                        "gpu": gpu,
                        "gpus": gpus,
                        "nodes": nodes,
                        "batch": None,
                        "steps_per_s": None,
                        "samples_per_s": guess.samples_per_s,
                        "kind": guess.source,
                        "source": f"80 % interval {guess.low:.4g} to {guess.high:.4g}",
                    }
                )
    facts = asdict(profile.facts_of(model))
    if output is Format.json:
        print_json({"model": model, "profile": profile.name, **facts, "speeds": rows, "doubts": profile.doubts(model)})
        return
    memory = f"needs {facts['memory_gib']:g} GiB a GPU" if facts["memory_gib"] else "memory not stated"
    title = f"{model}: {memory}, a move costs {facts['restart_s']:g} s"
    table = [
        [r["gpu"], str(r["gpus"]), str(r["nodes"]), format_number(r["samples_per_s"], 4), r["kind"], r["source"]]
        for r in rows
    ]
    print_table(title, ["gpu", "GPUs", "nodes", "samples/s", "kind", "source"], table, 1)
    _print_doubts(profile, model)


@app.command()
def at(
    model: Annotated[str, typer.Argument(help="A model of the profile.", metavar="MODEL")],
    gpus: Annotated[int, typer.Argument(min=1, max=100_000, help="GPUs of the job.", metavar="GPUS")],
    nodes: Annotated[int, typer.Option(min=1, max=100_000, help="Nodes over which they are spread.")] = 1,
    throughputs: Throughputs = None,
    output: Output = Format.table,
) -> None:
    """Show the assumed speed of a job on each GPU type, and its origin: a row, the formula, or other rows."""
    profile = _profile_with(model, throughputs)
    if nodes > gpus:
        raise InputError(f"{gpus} GPUs over {nodes} nodes; each node needs at least one GPU")
    rows = [{"gpu": gpu, **asdict(profile.known(model, gpu, gpus, nodes))} for gpu in profile.gpus_of(model)]
    if output is Format.json:
        answer = {"model": model, "profile": profile.name, "gpus": gpus, "nodes": nodes, "rates": rows}
        print_json({**answer, "doubts": profile.doubts(model)})
        return
    table = [[r["gpu"], format_number(r["samples_per_s"], 4), r["layer"], r["source"]] for r in rows]
    where = "1 node" if nodes == 1 else f"{nodes} nodes"
    title = f"{model} on {counted(gpus, 'GPU')} of {where}"
    print_table(title, ["gpu", "samples/s", "known by", "source"], table, 1)
    _print_doubts(profile, model)


@app.command()
def learnt(
    journal: Annotated[str, typer.Argument(help="Journal of a run with --sensing.", metavar="FILE")],
    job: Annotated[str | None, typer.Option(help="Show the expected rates of this job, node by node.")] = None,
    output: Output = Format.table,
) -> None:
    """Show the speeds of nodes and of tenants' models, or of one job, that a run has learnt, and how each is known."""
    from dataclasses import asdict

    from fairlead.studies.speeds.learnt import learnt_of_job, learnt_of_nodes, rates_of_tenants

    if not Path(journal).is_file():
        raise InputError("there is no such file", path=journal)
    if job is None:
        nodes, rates = learnt_of_nodes(Path(journal)), rates_of_tenants(Path(journal))
        if output is Format.json:
            learnt_now = {"nodes": [asdict(node) for node in nodes], "rates": [asdict(rate) for rate in rates]}
            print_json({"journal": journal, **learnt_now})
            return
        rows = [[node.node, node.type, format_number(node.relative, 3), str(node.jobs)] for node in nodes]
        print_table("speed of nodes over the profile's", ["node", "type", "relative", "jobs observed"], rows, 2)
        rows = [
            [rate.tenant, rate.model, rate.type, format_number(rate.factor, 3), rate.source, f"{rate.confidence:.0%}"]
            for rate in rates
        ]
        columns = ["tenant", "model", "type", "relative", "known by", "confidence"]
        print_table("speeds that policies see over the profile's", columns, rows, 3)
        return
    known = learnt_of_job(Path(journal), job)
    if output is Format.json:
        print_json({"journal": journal, **asdict(known)})
        return
    rows = [
        [
            rate.node,
            rate.type,
            str(rate.gpus),
            format_number(rate.samples_per_s, 4),
            format_number(rate.profile_samples_per_s, 4),
            rate.layer,
        ]
        for rate in known.nodes
    ]
    columns = ["node", "type", "GPUs", "samples/s", "by the profile", "known by"]
    print_table(f"{job} ({known.model}), expected on one node", columns, rows, 2)
    spread = ", ".join(f"{type_} {value:.3f}" for type_, value in known.spread.items())
    print(f"over several nodes, times the slowest of them: {spread}")


@app.command()
def complete(
    out: Annotated[str, typer.Option("--out", help="Where to write the completed profile.", metavar="FILE")],
    throughputs: Throughputs = None,
    output: Output = Format.table,
) -> None:
    """Write a profile in which every model has a speed on every type, estimates marked with their interval."""
    from fairlead.rates.completion import complete as fill
    from fairlead.rates.completion import completed_profile
    from fairlead.traces.profiles import write_profile

    profile = open_profile(throughputs)
    filled = completed_profile(profile, fill(profile))
    write_profile(filled, out)
    added = len(filled.speeds) - len(profile.speeds)
    if output is Format.json:
        print_json({"profile": out, "rows": len(filled.speeds), "completed": added})
    else:
        print(f"wrote {len(filled.speeds):,} rows to {out}, {added:,} of them completed")


def _print_doubts(profile: Profile, model: str) -> None:
    for doubt in profile.doubts(model):
        print_lines(f"warning: {doubt}", to_stderr=True)


def _profile_with(model: str, throughputs: str | None) -> Profile:
    from fairlead.model.words import did_you_mean

    profile = open_profile(throughputs)
    if model not in profile.models:
        raise NotFoundError(
            f'model "{model}" is not in profile "{profile.name}"; {did_you_mean(model, profile.models)}'
        )
    return profile


def _by_formula(profile: Profile, model: str) -> list[dict[str, Any]]:
    """Rows for the usual widths that the profile lacks, where the model has parts."""
    rows: list[dict[str, Any]] = []
    for (name, gpu), parts in profile.parts.items():
        for gpus, nodes in FORMULA_SHOWN if name == model else ():
            known = profile.known(model, gpu, gpus, nodes)
            if known.layer is Layer.FORMULA:
                rows.append(
                    {
                        "gpu": gpu,
                        "gpus": gpus,
                        "nodes": nodes,
                        "batch": parts.batch,
                        "steps_per_s": known.samples_per_s / parts.batch / gpus,
                        "samples_per_s": known.samples_per_s,
                        "kind": known.layer,
                        "source": known.source,
                    }
                )
    return rows
