from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead.cli.options import Cluster, Importing, parse_pairs, spread
from fairlead.cli.output import Format, Output, print_json, print_wide_table, show_progress
from fairlead.cli.world import WorldOptions
from fairlead.model.errors import FairleadError, InputError
from fairlead.model.words import choose

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairlead.model.cluster import Cluster as Hardware
    from fairlead.rates.profile import Profile
    from fairlead.studies.compare.answer import Cell, ComparisonAnswer, TenantOutcome
    from fairlead.studies.compare.compare import Comparison, Executor, Request
    from fairlead.studies.compare.workloads import Generated, Workload

MOST_SEEDS = 1000
MOST_TENANTS = 12  # in the table
EXECUTORS = ("processes", "ray")
GENERATE = ("arrivals", "durations", "load", "tenants", "tenant_skew")


@dataclass(frozen=True)
class Running:
    """Options that say where runs are executed and where their results are kept."""

    state: Annotated[
        str | None,
        typer.Option("--state", help="Keep finished runs here and reuse them (default: your cache).", metavar="DIR"),
    ] = None
    fresh: Annotated[bool, typer.Option("--fresh", help="Run everything again; ignore results that were kept.")] = False
    workers: Annotated[
        int | None, typer.Option("--workers", help="Processes (default: one per core).", min=1, max=1024)
    ] = None
    executor: Annotated[str, typer.Option("--executor", help="`processes` of this machine, or `ray`.")] = "processes"
    ray_address: Annotated[
        str | None, typer.Option("--ray-address", help="Address of a running Ray cluster (default: RAY_ADDRESS).")
    ] = None


@dataclass(frozen=True)
class OutputFiles:
    """Options that name the files to write."""

    report: Annotated[str | None, typer.Option(help="Write a page for the browser here.", metavar="FILE")] = None
    figures: Annotated[str | None, typer.Option(help="Write PDF and PNG figures here.", metavar="DIR")] = None
    window: Annotated[
        str | None, typer.Option("--window", help="Hours to show in the Gantt charts.", metavar="FROM..TO")
    ] = None
    csv: Annotated[str | None, typer.Option("--csv", help="Write one line per run here.", metavar="FILE")] = None


@spread
def compare(
    *,
    cluster: Cluster,
    policies: Annotated[
        str, typer.Option("--policies", help="Policies: names or FILE.py:NAME, or `all`.", metavar="A,B,...")
    ],
    trace: Annotated[
        str | None, typer.Option("--trace", help="Workload file of any known format.", metavar="FILE")
    ] = None,
    generate: Annotated[
        str | None,
        typer.Option(
            "--generate",
            help="Generate it: `defaults`, or NAME=VALUE,... of arrivals, durations, load, tenants, tenant_skew.",
            metavar="SPEC",
        ),
    ] = None,
    seeds: Annotated[str, typer.Option("--seeds", help="Seeds: 0..9 or 0,3,5.", metavar="SEEDS")] = "0",
    loads: Annotated[
        str | None, typer.Option("--loads", help="Run the comparison at each of these loads.", metavar="L,...")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", help="Only the first N jobs; for a generated workload, its size.", min=1)
    ] = None,
    files: OutputFiles,
    running: Running,
    importing: Importing,
    rules: WorldOptions,
    output: Output = Format.table,
) -> None:
    """Run every policy on the same workloads under the same rules, and compare them seed by seed."""
    from fairlead.studies.compare.compare import Request
    from fairlead.traces.clusters import read_cluster
    from fairlead.traces.formats import Trace

    shown_h = None if files.window is None else parse_hours(files.window)
    profile, hardware = importing.profile(), read_cluster(cluster, importing.aliases())
    no_policy: Any = None  # each run has its own policy
    request = Request(
        policies=parse_policies(policies),
        seeds=parse_seeds(seeds),
        loads=parse_loads(loads),
        workload=choose_workload(trace, generate, profile, hardware, jobs, importing),
        setup=rules.setup(hardware, Trace((), "", ""), profile, no_policy, aliases=importing.aliases()),
        skip_impossible=rules.skip_impossible,
    )
    comparison = run(request, running)
    written: dict[str, str] = {}
    try:
        write_files(comparison, files, written, shown_h)
    finally:  # the answer is printed even if a file cannot be written
        if output is Format.json:
            print_json({**comparison.answer.to_json(), "files": written})
        else:
            print_comparison(comparison.answer)
            for content, path in written.items():
                print(f"{content}: {path}")
    if shown_h is not None:
        _warn_of_empty_charts(shown_h, comparison.answer)
    if not comparison.answer.runs:
        raise typer.Exit(1)


def choose_workload(
    trace: str | None,
    generate: str | None,
    profile: Profile,
    hardware: Hardware,
    jobs: int | None,
    importing: Importing,
) -> Workload:
    from fairlead.studies.compare.workloads import from_file, from_generator

    if trace is not None and generate is None:
        options = {"format": importing.trace_format, **importing.choices()}
        return from_file(trace, profile, hardware, jobs, options)
    if generate is not None and trace is None:
        return from_generator(profile, hardware, jobs, parse_generator(generate))
    raise InputError("give either --trace FILE or --generate SPEC (for example --generate defaults)")


def run(request: Request, running: Running) -> Comparison:
    from fairlead.studies.compare.compare import compare as study
    from fairlead.studies.runs.store import Store, default_folder

    execute = find_executor(running.executor, running.workers or os.cpu_count() or 1, running.ray_address)
    folder = Path(running.state) if running.state else default_folder("compare")
    store = Store(folder, "--state", running.fresh)
    with show_progress("comparing") as report:
        try:
            return study(request, execute, store, report)
        except KeyboardInterrupt:
            raise FairleadError(
                f"interrupted; finished runs are kept in {store.folder}, and the same command continues from there"
            ) from None


def write_files(
    comparison: Comparison, files: OutputFiles, written: dict[str, str], shown_h: tuple[float, float] | None = None
) -> None:
    """Write the files and add each path to `written`, by its content, as soon as the file exists."""
    if files.csv:
        from fairlead.studies.compare.table import write_csv

        written["runs"], written["tenants"] = files.csv, write_csv(comparison.answer, files.csv)
    if files.report:
        from fairlead.studies.report.page import write_page

        write_page(comparison, files.report, shown_h)
        written["report"] = files.report
    if files.figures:
        from fairlead.studies.report.comparison_figures import draw_all

        written["figures"] = f"{files.figures} ({len(draw_all(comparison, files.figures, shown_h))} files)"


def find_executor(name: str, workers: int, address: str | None) -> Executor:
    from functools import partial

    if choose("--executor", name, EXECUTORS) == "processes":
        from fairlead.studies.runs.process_pool import run_in_processes

        return partial(run_in_processes, workers=workers)
    from fairlead.studies.runs.ray_pool import check_ray, run_on_ray

    check_ray()
    return partial(run_on_ray, address=address)


def parse_policies(text: str) -> list[Any]:
    from fairlead.policies import REGISTRY
    from fairlead.policies.policy import Knows
    from fairlead.studies.policy_lab.plugins import refer

    names = [name.strip() for name in text.split(",") if name.strip()]
    if names == ["all"]:
        names = [policy.name for policy in REGISTRY.values() if Knows.ARRIVALS not in policy.knows]
    if not names:
        raise InputError("--policies names no policy; give names such as fifo,gavel,oef-coop, or all")
    return [refer(name) for name in names]


def parse_seeds(text: str) -> list[int]:
    """The seeds of `0..9` or `0,3,5`."""
    low, dots, high = text.partition("..")
    try:
        seeds = list(range(int(low), int(high) + 1)) if dots else [int(part) for part in text.split(",")]
    except ValueError:
        seeds = []
    if not seeds or min(seeds) < 0 or len(seeds) > MOST_SEEDS or len(set(seeds)) < len(seeds):
        raise InputError(f'--seeds "{text}": expected 0..9 or 0,3,5, at most {MOST_SEEDS} different whole numbers')
    return seeds


def parse_loads(text: str | None) -> list[float | None]:
    if text is None:
        return [None]
    try:
        loads: list[float | None] = [float(part) for part in text.split(",")]
    except ValueError:
        loads = []
    if not loads or not all(load is not None and 0 < load <= 1000 for load in loads) or len(set(loads)) < len(loads):
        raise InputError(f'--loads "{text}": expected different numbers above 0, such as 0.6,0.8,1.0')
    return loads


def parse_hours(text: str) -> tuple[float, float]:
    low, _, high = text.partition("..")
    try:
        hours = float(low), float(high)
    except ValueError:
        hours = (0.0, 0.0)
    if not 0 <= hours[0] < hours[1]:
        raise InputError(f'--window "{text}": expected hours since the first arrival, such as 12..18')
    return hours


def _warn_of_empty_charts(shown_h: tuple[float, float], answer: ComparisonAnswer) -> None:
    """Warn if the window begins after every run has ended, which is known only once they have run."""
    ends_h = [(run.summary.makespan_s or 0.0) / 3600 for run in answer.runs]
    if ends_h and shown_h[0] >= max(ends_h):
        reason = f"begins after the last job ended (hour {max(ends_h):.4g}), so the Gantt charts are empty"
        typer.echo(f"--window {shown_h[0]:g}..{shown_h[1]:g} {reason}; choose earlier hours", err=True)


def parse_generator(text: str) -> Generated:
    from fairlead.studies.compare.workloads import Generated

    if text == "defaults":
        return Generated()
    options: dict[str, Any] = {}
    for name, value in parse_pairs(text.split(","), "--generate").items():
        choose("--generate", name, GENERATE)
        try:
            options[name] = int(value) if name == "tenants" else value if name in GENERATE[:2] else float(value)
        except ValueError:
            raise InputError(f'--generate {name}: "{value}" is not a number') from None
    return Generated(options.pop("load", None), options)


# ---- the table -----------------------------------------------------------------------------------------------------


def print_comparison(answer: ComparisonAnswer) -> None:
    """Print one table per load, then failures, what policies were allowed to know, and assumptions."""
    from fairlead.studies.compare.wording import NOT_RANKED, rules_of, run_notes, title_of, unfinished_of

    for load in answer.loads:
        print_wide_table(title_of(answer, load), *_table(answer, load))
        if answer.workload.tenants > 1:
            _print_tenants(answer, load)
    print(_footnote(answer))
    if any(map(unfinished_of, answer.rows)):
        print(NOT_RANKED)
    for failure in answer.failures:
        at = "" if failure.load is None else f", load {failure.load:g}"
        print(f"FAILED {failure.policy} (seed {failure.seed}{at}): {failure.reason}")
    knowing = [f"{policy.name}: {', '.join(policy.knows)}" for policy in answer.policies if policy.knows]
    if knowing:
        print(f"Allowed to know more than the present: {'; '.join(knowing)}")
    for note in (*rules_of(answer), *answer.assumptions, *run_notes(answer)):
        print(f"assumed: {note}")


def _table(answer: ComparisonAnswer, load: float | None) -> tuple[list[str], list[list[str]]]:
    from fairlead.studies.compare.wording import mark_of, unfinished_of

    rows = [
        [
            f"{row.policy} {mark_of(answer, row)}".strip()
            + (f" ({len(row.failed)} failed)" if row.failed else "")
            + (f" ({unfinished_of(row)})" if unfinished_of(row) else ""),
            *(cell_of(row.metrics[metric.name], metric.unit) for metric in answer.metrics),
        ]
        for row in answer.rows_at(load)
    ]
    return ["policy", *(metric.label for metric in answer.metrics)], rows


def _print_tenants(answer: ComparisonAnswer, load: float | None) -> None:
    """Print a table with a row per tenant, the largest first, and a column per policy."""
    from fairlead.studies.compare.table import by_tenant
    from fairlead.studies.compare.wording import value_text

    names, cells = by_tenant(answer, load)
    policies = answer.policy_names
    rows = [
        [name, *(_tenant_cell(cells.get((name, p)), value_text) for p in policies)] for name in names[:MOST_TENANTS]
    ]
    at = "" if load is None else f", load {load:g}"
    print_wide_table(f"By tenant: mean JCT, mean FTF{at}", ["tenant", *policies], rows)
    if len(names) > MOST_TENANTS:
        print(f"... and {len(names) - MOST_TENANTS} more tenants; --csv and -o json have them all")


def _tenant_cell(row: TenantOutcome | None, text: Callable[[float, str], str]) -> str:
    if row is None or row.jct_mean_s is None:
        return "-"
    ftf = "-" if row.ftf_mean is None else text(row.ftf_mean, "ratio")
    return f"{text(row.jct_mean_s, 's').replace(' ', '')}, {ftf}"


def _footnote(answer: ComparisonAnswer) -> str:
    from fairlead.numerics.paired import ALPHA
    from fairlead.studies.compare.wording import best_note, why_no_best

    marked = f"* better than {best_note(answer)}, seed by seed (paired sign-flip test, p < {ALPHA:g})"
    spread = "mean ±standard deviation over seeds; " if answer.most_runs > 1 else ""
    return f"{spread}{why_no_best(answer) or marked}. FTF: time / time alone on an equal share."


def cell_of(cell: Cell, unit: str) -> str:
    from fairlead.studies.compare.wording import value_text

    if cell.mean is None:
        return "-"
    text = value_text(cell.mean, unit).replace(" ", "")
    if cell.sd is not None:
        text += f" ±{value_text(cell.sd, unit, 2).replace(' ', '')}"
    return f"*{text}" if cell.best else text
