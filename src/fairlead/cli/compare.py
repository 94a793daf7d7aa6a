from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead.cli.options import Importing, spread
from fairlead.cli.output import Format, Output, print_json, print_lines, print_table, print_wide_table, show_progress
from fairlead.cli.world import WorldOptions
from fairlead.model.errors import InputError, InterruptedByUserError
from fairlead.model.extras import require

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from fairlead.library.comparison import ComparedSetting, PolicyComparison
    from fairlead.studies.compare.answer import Cell, ComparisonAnswer, PolicyRow, TenantOutcome

MOST_TENANTS = 12  # in the table


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
    budget: Annotated[
        str | None, typer.Option("--budget", help="Start no run after this much CPU time: 30m, 2h.", metavar="TIME")
    ] = None

    def given(self) -> dict[str, Any]:
        """The options by their names, as the functions of the library take them."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @contextmanager
    def resumable(self) -> Iterator[None]:
        """Say after an interruption where finished runs are."""
        try:
            yield
        except KeyboardInterrupt:
            from fairlead.library.comparing import store_of

            folder = store_of(self.state, fresh=self.fresh).folder
            raise InterruptedByUserError(
                f"interrupted; finished runs are kept in {folder}, and the same command continues from there"
            ) from None


@dataclass(frozen=True)
class OutputFiles:
    """Options that name the files to write."""

    report: Annotated[str | None, typer.Option(help="Write a page for the browser here.", metavar="FILE")] = None
    figures: Annotated[str | None, typer.Option(help="Write PDF and PNG figures here.", metavar="DIR")] = None
    window: Annotated[
        str | None, typer.Option("--window", help="Hours to show in the Gantt charts.", metavar="FROM..TO")
    ] = None
    csv: Annotated[str | None, typer.Option("--csv", help="Write one line per run here.", metavar="FILE")] = None
    jobs_csv: Annotated[
        str | None,
        typer.Option("--jobs-csv", help="Write one line per finished job of every run here.", metavar="FILE"),
    ] = None

    def shown_h(self) -> tuple[float, float] | None:
        return None if self.window is None else parse_hours(self.window)

    def check(self) -> None:
        """Fail before the runs if an option is wrong, or what writes the files is not installed."""
        self.shown_h()
        require(*(("jinja2",) if self.report else ()), *(("matplotlib",) if self.figures else ()))


@spread
def compare(
    *,
    cluster: Annotated[
        list[str],
        typer.Option(
            "--cluster",
            help="Cluster file, or GPUs by type: v100:36,p100:36x8; repeatable.",
            metavar="FILE|TYPES",
        ),
    ],
    policies: Annotated[
        str,
        typer.Option(
            "--policies",
            help="Policies: names or FILE.py:NAME, each perhaps with parameters (fft:kappa=2), or `all`.",
            metavar="A,B,...",
        ),
    ],
    trace: Annotated[
        list[str] | None,
        typer.Option("--trace", help="Workload file of any known format; repeatable.", metavar="FILE"),
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
    audit: Annotated[
        bool,
        typer.Option("--audit", help="Also audit every run: envy and sharing incentives, in --csv and -o json."),
    ] = False,
    fillings: Annotated[
        int | None,
        typer.Option(
            help="Fill in what the trace lacks (models, tenants) in N ways; say what holds in all.", metavar="N"
        ),
    ] = None,
    fill_types: Annotated[
        str | None,
        typer.Option(help="Assume in turn that durations were measured on these GPU types.", metavar="A,B,..."),
    ] = None,
    files: OutputFiles,
    running: Running,
    importing: Importing,
    rules: WorldOptions,
    output: Output = Format.table,
) -> None:
    """Run every policy on the same workloads under the same rules, and compare them seed by seed.

    --trace and --cluster may be repeated: every trace is then compared on every cluster, and each has its own table.
    """
    from fairlead.library.comparing import compare as run_comparison

    files.check()
    with show_progress("comparing") as report, running.resumable():
        compared = run_comparison(
            cluster,
            policies,
            trace=trace,
            generate=generate,
            seeds=seeds,
            loads=loads,
            jobs=jobs,
            audit=audit,
            fillings=fillings,
            fill_types=fill_types,
            progress=report,
            **running.given(),
            **importing.given(),
            **rules.given(),
        )
    show_results(compared, files, output, _print_comparisons)


def show_results(
    compared: PolicyComparison,
    files: OutputFiles,
    output: Format,
    print_tables: Callable[[Sequence[ComparedSetting]], None],
) -> None:
    """Write the files and print the answer. An exit code of 1 says that no run has succeeded."""
    shown_h = files.shown_h()
    written: dict[str, str] = {}
    try:
        write_files(compared, files, written, shown_h)
    finally:  # the answer is printed even if a file cannot be written
        if output is Format.json:
            print_json({**compared.to_json(), "files": written})
        else:
            print_tables(compared.settings)
            if compared.fills:
                _print_conclusions(compared)
            for content, path in written.items():
                print(f"{content}: {path}")
    answers = [setting.comparison.answer for setting in compared.settings]
    if shown_h is not None:
        for answer in answers:
            _warn_of_empty_charts(shown_h, answer)
    if not any(answer.runs for answer in answers):
        raise typer.Exit(1)


def _print_comparisons(settings: Sequence[ComparedSetting]) -> None:
    for setting in settings:
        print_comparison(setting.comparison.answer)


def write_files(
    compared: PolicyComparison, files: OutputFiles, written: dict[str, str], shown_h: tuple[float, float] | None = None
) -> None:
    """Write the files and add each path to `written`, by its content, as soon as the file exists."""
    if files.csv:
        written["runs"], written["tenants"] = map(str, compared.write_csv(files.csv))
    if files.jobs_csv:
        compared.write_jobs_csv(files.jobs_csv)
        written["jobs"] = files.jobs_csv
    if files.report:
        written["report"] = ", ".join(map(str, compared.write_page(files.report, shown_h)))
    if files.figures:
        paths = compared.write_figures(files.figures, shown_h)
        written["figures"] = f"{files.figures} ({len(paths)} files)"


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


# ---- the table -----------------------------------------------------------------------------------------------------


def print_comparison(answer: ComparisonAnswer) -> None:
    """Print one table per load, then failures, what policies were allowed to know, and assumptions."""
    from fairlead.studies.compare.wording import title_of

    for load in answer.loads:
        print_wide_table(title_of(answer, load), *_table(answer, load))
        if answer.workload.tenants > 1:
            _print_promises(answer, load)
            _print_tenants(answer, load)
    print_failures([answer])
    print_notes([answer])


def _print_conclusions(compared: PolicyComparison) -> None:
    """Print which policy is best in each metric, and in how many of the ways to fill in the trace."""
    several = len(compared.held_conclusions()) > 1
    for labels, found in compared.held_conclusions():
        rows = [
            [
                one.label,
                one.best,
                f"{one.holds} of {one.ways}",
                ", ".join(f"{k}: {n}" for k, n in one.otherwise.items()) or "-",
            ]
            for one in found
        ]
        at = f": {labels['trace']} on {labels['cluster']}" if several else ""
        print_table(
            f"What holds however the trace is filled in{at}", ["metric", "best", "in ways", "otherwise"], rows, left=4
        )


def print_notes(answers: Sequence[ComparisonAnswer]) -> None:
    """Print what is to be read with the numbers of comparisons of the same policies and seeds, each sentence once."""
    from fairlead.studies.compare.wording import NOT_RANKED, rules_of, run_notes, unfinished_of

    print(_footnote(answers[0]))
    if any(unfinished_of(row) for answer in answers for row in answer.rows):
        print(NOT_RANKED)
    policies = {policy.name: policy for answer in answers for policy in answer.policies}
    knowing = [f"{policy.name}: {', '.join(policy.knows)}" for policy in policies.values() if policy.knows]
    if knowing:
        print_lines(f"Allowed to know more than the present: {'; '.join(knowing)}")
    notes = (note for answer in answers for note in (*rules_of(answer), *answer.assumptions, *run_notes(answer)))
    for note in dict.fromkeys(notes):
        print_lines(f"assumed: {note}")


def print_failures(answers: Iterable[ComparisonAnswer]) -> None:
    """Print each reason once for a policy and a load, with the seeds."""
    seeds: dict[tuple[str, float | None, str], dict[int, None]] = {}
    for failure in (failure for answer in answers for failure in answer.failures):
        seeds.setdefault((failure.policy, failure.load, failure.reason), {})[failure.seed] = None
    for (policy, load, reason), failed in seeds.items():
        at = "" if load is None else f", load {load:g}"
        numbers = f"seed{'s' if len(failed) > 1 else ''} {', '.join(map(str, failed))}"
        print_lines(f"FAILED {policy} ({numbers}{at}): {reason}")


def _table(answer: ComparisonAnswer, load: float | None) -> tuple[list[str], list[list[str]]]:
    rows = [
        [
            policy_cell(answer, row),
            *(cell_of(row.metrics[metric.name], metric.unit) for metric in answer.metrics),
        ]
        for row in answer.rows_at(load)
    ]
    return ["policy", *(metric.label for metric in answer.metrics)], rows


def policy_cell(answer: ComparisonAnswer, row: PolicyRow) -> str:
    """The policy, with a mark for what it may know, and what its means leave out."""
    from fairlead.studies.compare.wording import mark_of, unfinished_of

    failed = f" ({len(row.failed)} failed)" if row.failed else ""
    unfinished = f" ({unfinished_of(row)})" if unfinished_of(row) else ""
    return f"{row.policy} {mark_of(answer, row)}".strip() + failed + unfinished


def _print_promises(answer: ComparisonAnswer, load: float | None) -> None:
    """Print whether each policy has kept its promises, with the causes of broken ones."""
    from fairlead.studies.compare.promise_rows import PERCENTAGES, promise_text

    judged = {row.policy: {one.promise: one for one in row.promises} for row in answer.rows_at(load) if row.promises}
    measured = (one.promise for row in judged.values() for one in row.values() if one.worst is not None or one.broken)
    names = list(dict.fromkeys(measured))
    if names:
        rows = [[policy, *(promise_text(of[name]) for name in names)] for policy, of in judged.items()]
        at = "" if load is None else f", load {load:g}"
        print_table(f"Promises{at}", ["policy", *names], rows, left=1 + len(names))
        if any(one.causes for of in judged.values() for one in of.values()):
            print_lines(PERCENTAGES)


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
