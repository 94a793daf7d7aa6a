from __future__ import annotations

import os
from functools import partial
from typing import Annotated

import typer

from fairlead.cli.compare import OutputFiles, print_comparison, write_files
from fairlead.cli.options import Seed
from fairlead.cli.output import Format, Output, print_json, show_progress


def demo(
    seed: Seed = 0,
    page: Annotated[str, typer.Option("--report", help="Write the page here.", metavar="FILE")] = "demo.html",
    workers: Annotated[
        int | None, typer.Option("--workers", help="Processes (default: one per core).", min=1, max=1024)
    ] = None,
    output: Output = Format.table,
) -> None:
    """Compare the four systems, two of them also improved, and five baselines on the built-in mixed cluster and workload."""
    from fairlead.library.comparison import ComparedSetting, PolicyComparison
    from fairlead.studies.compare.compare import compare
    from fairlead.studies.compare.demo import CLUSTER, demo_request
    from fairlead.studies.runs.process_pool import run_in_processes

    files = OutputFiles(report=page)
    files.check()
    with show_progress("policies") as report:
        execute = partial(run_in_processes, workers=workers or os.cpu_count() or 1)
        comparison = compare(demo_request(seed), execute, tell=report)
    written: dict[str, str] = {}
    compared = PolicyComparison((ComparedSetting({"trace": "generated", "cluster": CLUSTER}, comparison),))
    write_files(compared, files, written)
    if output is Format.json:
        print_json({**comparison.answer.to_json(), "files": written})
        return
    print_comparison(comparison.answer)
    print(f"report: {os.path.abspath(page)}")
