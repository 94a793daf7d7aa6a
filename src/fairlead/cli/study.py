from __future__ import annotations

from shutil import get_terminal_size
from sys import stdout
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.compare import OutputFiles, Running, cell_of, policy_cell, print_failures, print_notes, show_results
from fairlead.cli.options import spread
from fairlead.cli.output import PIPED_COLUMNS, Format, Output, print_wrapped_table, show_progress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairlead.library.comparison import ComparedSetting

SHOWN = ("jct_mean", "jct_p99", "makespan", "ftf_max")  # metrics in the table


@spread
def study(
    path: Annotated[str, typer.Argument(help="Study file (docs/formats.md).", metavar="FILE")],
    *,
    files: OutputFiles,
    running: Running,
    output: Output = Format.table,
) -> None:
    """Run the comparisons of a study file: policies on a grid of workloads, clusters and options.

    Finished runs are kept, so that an interrupted study, or one whose --budget was spent, continues with the same command.
    """
    from fairlead.library.studying import study as run_study

    files.check()
    with show_progress("runs") as report, running.resumable():
        compared = run_study(path, progress=report, **running.given())
    show_results(compared, files, output, _print_settings)


def _print_settings(settings: Sequence[ComparedSetting]) -> None:
    """Print one table for each trace and cluster, with a row for each policy at each point of the grid."""
    room = get_terminal_size().columns if stdout.isatty() else PIPED_COLUMNS
    groups: dict[tuple[str, str], list[ComparedSetting]] = {}
    for setting in settings:
        groups.setdefault((setting.labels["trace"], setting.labels["cluster"]), []).append(setting)
    for (trace, cluster), group in groups.items():
        first = group[0].comparison.answer
        metrics = [metric for metric in first.metrics if metric.name in SHOWN]
        varied = [name for name in group[0].labels if name not in ("trace", "cluster")]
        with_loads = ["load"] if len(first.loads) > 1 else []
        rows = [
            [
                *(setting.labels[name] for name in varied),
                *(f"{row.load:g}" for _ in with_loads if row.load is not None),
                policy_cell(setting.comparison.answer, row),
                *(cell_of(row.metrics[metric.name], metric.unit) for metric in metrics),
            ]
            for setting in group
            for row in setting.comparison.answer.rows
        ]
        columns = [*varied, *with_loads, "policy", *(metric.label for metric in metrics)]
        title = f"{trace} on {cluster}, seeds {', '.join(map(str, first.seeds))}"
        print_wrapped_table(title, columns, rows, 1 + len(varied) + len(with_loads), room)
        answers = [setting.comparison.answer for setting in group]
        print_failures(answers)
        print_notes(answers)
    print("--csv and -o json have all metrics, and every run.")
