from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.output import Format, Output, print_json, print_lines, print_table, show_progress
from fairlead.model.units import format_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairlead.library.benching import Score

COLUMNS = ("JCT to las", "mean FTF", "max FTF", "mean LR", "envy", "CPU s")


def bench(
    policies: Annotated[
        str | None,
        typer.Option("--policies", help="As in `compare` (default: nine; `all` takes longer).", metavar="NAMES"),
    ] = None,
    workload: Annotated[
        list[str] | None, typer.Option("--workload", help="Only this workload of the set; repeatable.", metavar="NAME")
    ] = None,
    state: Annotated[
        str | None,
        typer.Option("--state", help="Keep finished runs here and reuse them (default: your cache).", metavar="DIR"),
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Run everything again; ignore results that were kept.")
    ] = False,
    workers: Annotated[
        int | None, typer.Option("--workers", help="Processes (default: one per core).", min=1, max=1024)
    ] = None,
    output: Output = Format.table,
) -> None:
    """Run policies on a fixed set of small workloads and print a score card: completion times, fairness, CPU time.

    The set has a version, so that score cards can be compared and cited. docs/bench.md describes it.
    """
    from fairlead.library.benching import POLICIES, REFERENCE, SEEDS, VERSION, WORKLOADS
    from fairlead.library.benching import bench as run_bench

    with show_progress(VERSION) as report:
        card = run_bench(
            policies or POLICIES, workloads=workload or (), state=state, fresh=fresh, workers=workers, progress=report
        )
    if output is Format.json:
        print_json(card.to_json())
        return
    names = list(dict.fromkeys(one.workload for one in card.scores))
    seeds = ", ".join(map(str, SEEDS))
    _print_scores(f"{VERSION}: {len(names)} workloads, seeds {seeds}", card.overall)
    about = {one.name: f"{one.name}: {one.about}; {one.jobs} jobs on {one.cluster}" for one in WORKLOADS}
    for name in names:
        _print_scores(about[name], [one for one in card.scores if one.workload == name])
    print_lines(
        f"JCT: mean job completion time relative to {REFERENCE}. FTF: finish-time fairness. LR: latency ratio. Lower is "
        "better in every column. CPU seconds depend on the machine; the other columns do not.",
        *(f"failed: {failure}" for failure in card.failures),
    )


def _print_scores(title: str, scores: Sequence[Score]) -> None:
    print_table(title, ["policy", *COLUMNS], [[_name(one), *_cells(one)] for one in scores])


def _name(score: Score) -> str:
    return f"{score.policy} ({score.unfinished} unfinished)" if score.unfinished else score.policy


def _cells(score: Score) -> list[str]:
    ratios = (score.ftf_mean, score.ftf_max, score.latency_ratio)
    envy = format_number(score.envy) if isfinite(score.envy) else "unbounded"
    return [f"{score.jct_ratio:.3f}", *map(format_number, ratios), envy, format_number(score.cpu_s)]
