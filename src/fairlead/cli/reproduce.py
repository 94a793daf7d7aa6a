from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead.cli.options import Throughputs
from fairlead.cli.output import Format, Output, print_json, print_wrapped_table
from fairlead.model.errors import InputError, InterruptedByUserError
from fairlead.model.units import format_duration, format_number
from fairlead.model.words import choose, counted

if TYPE_CHECKING:
    from fairlead.studies.calibration.start_ranges import CheckedStarts
    from fairlead.studies.papers.claim_tables import Study
    from fairlead.studies.papers.results import StudyResults
    from fairlead.studies.papers.run_all import StudyProgress

app = typer.Typer(help="Run a paper's experiments again and print its numbers next to ours.", no_args_is_help=True)

Quick = Annotated[bool, typer.Option("--quick", help="Fewer jobs and seeds, no sweeps; about a minute.")]


@app.callback()
def reproduce() -> None:
    """Reproduce one paper, or all four on one page."""


@app.command("all")
def all_papers(
    quick: Quick = False,
    only: Annotated[
        str | None, typer.Option("--only", help="Only these papers of oef, hare, fft and hops.", metavar="STUDY,...")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Write the page here instead of printing it.", metavar="FILE")
    ] = None,
    results: Annotated[
        Path | None,
        typer.Option(
            "--results",
            help="Keep results here, part by part, and reuse them (default: your cache).",
            metavar="DIR",
        ),
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Measure everything again; ignore results that were kept.")
    ] = False,
    accept_older: Annotated[
        bool, typer.Option("--accept-older", help="Reuse kept results even if the code or the scale has changed since.")
    ] = False,
    jobs: Annotated[int, typer.Option("--jobs", help="Parallel processes (0: one per core).", min=0)] = 0,
    output: Output = Format.table,
) -> None:
    """All four papers in one Markdown page: claim, paper, ours, spread, verdict, and why they differ."""
    from fairlead.studies.papers.reproduction_page import page
    from fairlead.studies.papers.run_all import STUDIES, run_studies, scale_of, study_of
    from fairlead.studies.runs.store import Store, default_folder

    if fresh and accept_older:
        raise InputError(
            "--fresh ignores kept results and --accept-older reuses more of them; give only one of the two"
        )
    names = _some_of(only, list(STUDIES))
    store = Store(results or default_folder("reproduce"), "--results", fresh)
    scales = {name: scale_of(name, quick) for name in names}
    try:
        measured = run_studies(
            scales, jobs or os.cpu_count() or 1, _print_progress, store, _print_remark, older=accept_older
        )
    except KeyboardInterrupt:
        raise InterruptedByUserError(
            f"interrupted; finished parts are kept in {store.folder}, and the same command continues from there"
        ) from None
    studies = [study_of(one) for one in measured]
    options = [*(["--quick"] if quick else []), *([f"--only {','.join(names)}"] if len(names) < len(STUDIES) else [])]
    text = page(studies, " ".join(("fairlead reproduce all", *options)))
    if out is not None:
        out.write_text(text, encoding="utf-8")
        tables = sum(len(study.tables) for study in studies)
        print(f"{out}: {tables} tables of {counted(len(measured), 'paper')}", file=sys.stderr)
    if output is Format.json:
        print_json({"studies": [_as_json(one, study) for one, study in zip(measured, studies, strict=True)]})
    elif out is None:
        print(text, end="")


@app.command()
def oef(quick: Quick = False, throughputs: Throughputs = None, output: Output = Format.table) -> None:
    """OEF: static totals, broken promises, dynamic runs with and without a liar."""
    from fairlead.traces.profiles import read_profile

    _one("oef", quick, output, read_profile(throughputs) if throughputs else None)


@app.command()
def hare(quick: Quick = False, output: Output = Format.table) -> None:
    """Hare: tasks against gangs and single GPUs, with and without job lengths; ablation; sweeps."""
    _one("hare", quick, output)


@app.command()
def fft(quick: Quick = False, output: Output = Format.table) -> None:
    """FFT: its test bed with equal and mixed widths, every baseline, wrong lengths, a large simulation."""
    _one("fft", quick, output)


@app.command()
def hops(quick: Quick = False, output: Output = Format.table) -> None:
    """Hops: 64 and 512 GPUs against Sia and Gavel; priorities; arrival rates; the benefit of sensing servers."""
    _one("hops", quick, output)


@app.command()
def estimates(
    quick: Quick = False,
    trace: Annotated[
        str | None, typer.Option("--trace", help="Also jobs of this trace, in any known format.", metavar="FILE")
    ] = None,
    generated: Annotated[bool, typer.Option(help="With --trace: generated jobs too.")] = True,
    seeds: Annotated[
        str | None, typer.Option("--seeds", help="Seeds, or parts of the trace: 0..9 or 0,3,5.", metavar="SEEDS")
    ] = None,
    loads: Annotated[str | None, typer.Option("--loads", help="Only these loads.", metavar="L,...")] = None,
    policies: Annotated[str | None, typer.Option("--policies", help="Only these policies.", metavar="A,B")] = None,
    output: Output = Format.table,
) -> None:
    """Start estimates against what happened: how often the 80 % range holds the start, by load and policy."""
    from fairlead.cli.output import show_progress
    from fairlead.library.comparing import loads_of, seeds_of
    from fairlead.model.cluster import parse_short_form
    from fairlead.studies.calibration.start_ranges import CLUSTER, GENERATED, QUICK, Scale, calibrate, windows
    from fairlead.studies.compare.workloads import Generated, from_generator
    from fairlead.traces.formats import read_trace
    from fairlead.traces.profiles import load_default_profile

    scale, cluster, profile = QUICK if quick else Scale(), parse_short_form(CLUSTER), load_default_profile()
    if seeds is not None:
        scale = replace(scale, seeds=tuple(seeds_of(seeds)))
    if loads is not None:
        scale = replace(scale, loads=tuple(load for load in loads_of(loads) if load is not None))
    if policies is not None:
        scale = replace(scale, policies=tuple(name.strip() for name in policies.split(",")))
    workloads = {"generated": from_generator(profile, cluster, scale.jobs, Generated(more=GENERATED))}
    if trace is not None and not generated:
        workloads.clear()
    if trace is not None:
        jobs = read_trace(trace, profile=profile, seed=0)
        workloads[Path(trace).name] = windows(jobs, profile, cluster, scale.jobs)
    with show_progress("comparing estimates") as report:
        answers = calibrate(cluster, profile, workloads, scale, report)
    if output is Format.json:
        print_json({"cluster": CLUSTER, "results": [one.to_json() for one in answers]})
        return
    rows = [
        [
            one.workload,
            format_number(one.load),
            one.policy,
            str(one.runs),
            str(one.estimates),
            *(["-"] * 7 if one.part is None else _held(one)),
        ]
        for one in answers
    ]
    head = [
        "workload",
        "load",
        "policy",
        "runs",
        "estimates",
        "in range",
        "before",
        "after",
        "unlearnt",
        "median range",
        "open",
        "median wait",
    ]
    print_wrapped_table("Starts of waiting jobs, 80 % ranges", head, rows, 3, get_terminal_size().columns)


def _held(one: CheckedStarts) -> list[str]:
    counts = (one.held, one.early, one.late, one.held_before, one.open)
    *parts, open_ = [f"{count / one.estimates:.0%}" for count in counts]
    return [*parts, format_duration(one.width_s), open_, format_duration(one.wait_s)]


def _one(name: str, quick: bool, output: Format, table: Any = None) -> None:
    from fairlead.studies.papers.run_all import run_study, scale_of, study_of

    results = run_study(name, scale_of(name, quick), _print_progress, table)
    study = study_of(results)
    if output is Format.json:
        print_json(_as_json(results, study))
        return
    print_study(study)


def _as_json(results: StudyResults, study: Study) -> dict[str, Any]:
    summary = {"verdict": study.verdict, "findings": study.findings, "limits": study.limits, "notes": study.reading}
    claims = [table.to_json() for table in study.tables]
    return {"paper": study.paper, "command": study.command, **results.to_json(), "claims": claims, **summary}


def print_study(study: Study) -> None:
    room = get_terminal_size().columns
    for table in study.tables:
        print_wrapped_table(f"{table.title}; {table.seeds}", table.head, table.rows, 2 if table.has_paper else 1, room)
        for reason, claims in table.sentences.items():
            _print_paragraph(f"{'; '.join(claims)}: {reason}", room)
        print()
    world = study.world.replace("\n- ", "\n\n- ").split("\n\n")  # each item of a list is a paragraph
    for paragraph in (*world, study.reading, *study.findings, study.verdict):
        _print_paragraph(paragraph, room)
    _print_paragraph("docs/reproduction.md discusses each line.", room)


def _print_paragraph(text: str, room: int) -> None:
    import textwrap

    words = " ".join(text.split()).replace("**", "")
    print(textwrap.fill(words, min(room, 120), subsequent_indent="  ", break_long_words=False, break_on_hyphens=False))


def _some_of(only: str | None, names: list[str]) -> list[str]:
    requested = names if only is None else [name.strip() for name in only.split(",")]
    chosen = {choose("--only", name, names) for name in requested}
    return [name for name in names if name in chosen]


def _print_progress(now: StudyProgress) -> None:
    from fairlead.model.units import format_duration

    left = f", about {format_duration(max(1.0, round(now.left_s)))} left" if now.left_s else ""
    text = f"reproduce {now.study}: {now.done} of {now.of} parts done ({now.part}){left}"
    print(text, file=sys.stderr, flush=True)


def _print_remark(remark: str) -> None:
    print(f"reproduce {remark}", file=sys.stderr, flush=True)
