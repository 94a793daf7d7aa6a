from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from fairlead.cli.options import Throughputs, open_profile
from fairlead.cli.output import Format, Output, number, print_json, print_table
from fairlead.model.errors import NotFoundError

app = typer.Typer(help="Speeds of models on GPU types, with their sources.", no_args_is_help=True)


@app.command("list")
def list_models(throughputs: Throughputs = None, output: Output = Format.table) -> None:
    """Models of a profile, and the GPU types they have speeds for."""
    profile = open_profile(throughputs)
    found: dict[str, list[str]] = {model: [] for model in profile.models}
    for row in profile.speeds:
        if row.gpu not in found[row.model]:
            found[row.model].append(row.gpu)
    if output is Format.json:
        print_json({"profile": profile.name, "models": found})
    else:
        print_table(f"profile {profile.name}", ["model", "GPU types"], [[m, ", ".join(g)] for m, g in found.items()], 2)


@app.command()
def show(
    model: Annotated[str, typer.Argument(help="A model of the profile.", metavar="MODEL")],
    throughputs: Throughputs = None,
    completed: Annotated[
        bool, typer.Option("--completed", help="Fill unmeasured types from the other models, with an 80 % interval.")
    ] = False,
    output: Output = Format.table,
) -> None:
    """Every speed of one model, with its source."""
    from fairlead.rates.completion import complete, source_of
    from fairlead.traces.files import did_you_mean

    profile = open_profile(throughputs)
    if model not in profile.models:
        raise NotFoundError(
            f'model "{model}" is not in profile "{profile.name}"; {did_you_mean(model, profile.models)}'
        )
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
    if completed:
        known = {(row["gpu"], row["gpus"], row["nodes"]) for row in rows}
        found = complete(profile)
        for gpu, gpus, nodes in found.columns if model in found.models else ():
            if (gpu, gpus, nodes) not in known:
                guess = found.estimate(model, gpu, gpus, nodes)
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
        print_json({"model": model, "profile": profile.name, **facts, "speeds": rows})
        return
    title = f"{model}: needs {facts['memory_gib']:g} GiB a GPU, a move costs {facts['restart_s']:g} s"
    table = [
        [r["gpu"], str(r["gpus"]), str(r["nodes"]), number(r["samples_per_s"], 4), r["kind"], r["source"]] for r in rows
    ]
    print_table(title, ["gpu", "GPUs", "nodes", "samples/s", "kind", "source"], table, 1)


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
