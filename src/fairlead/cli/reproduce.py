from __future__ import annotations

import os
import sys
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead.cli.options import Throughputs
from fairlead.cli.output import Format, Output, print_json, print_words

if TYPE_CHECKING:
    from fairlead.studies.claims import Study

app = typer.Typer(help="Run a paper's experiments again and print its numbers beside ours.", no_args_is_help=True)

Quick = Annotated[bool, typer.Option("--quick", help="Fewer jobs and seeds, no sweeps; about a minute.")]


@app.callback()
def reproduce() -> None:
    """One command per paper, and `all` for the page of the four."""


@app.command("all")
def all_papers(
    quick: Quick = False,
    out: Annotated[
        Path | None, typer.Option("--out", help="Write the page here instead of printing it.", metavar="FILE")
    ] = None,
    results: Annotated[
        Path | None,
        typer.Option(
            "--results", help="Keep each study's results here, and do not repeat those that are.", metavar="DIR"
        ),
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", help="Parallel processes (0: one per core).", min=0)] = 0,
) -> None:
    """All four papers in one Markdown page: claim, paper, ours, spread, and why they differ."""
    from fairlead.studies.claims import page
    from fairlead.studies.reproduce_all import STUDIES, run_studies, scale_of

    scales = {name: scale_of(name, quick) for name in STUDIES}
    found = run_studies(scales, jobs or os.cpu_count() or 1, _tell, results)
    text = page([one.study for one in found], f"fairlead reproduce all{' --quick' if quick else ''}")
    if out is None:
        print(text, end="")
        return
    out.write_text(text)
    print(f"{out}: {sum(len(one.study.tables) for one in found)} tables of {len(found)} papers", file=sys.stderr)


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
    """Hops: 64 and 512 GPUs against Sia and Gavel; priorities; arrival rates; what sensing servers is worth."""
    _one("hops", quick, output)


def _one(name: str, quick: bool, output: Format, table: Any = None) -> None:
    from dataclasses import asdict

    from fairlead.studies.reproduce_all import run_study, scale_of

    found = run_study(name, scale_of(name, quick), lambda part, done, of: _tell(name, part, done, of), table)
    study = found.study
    if output is Format.json:
        claims = [asdict(table) for table in study.tables]
        print_json({"paper": study.paper, **found.as_json, "claims": claims, "notes": study.reading})
        return
    print_study(study)


def print_study(study: Study) -> None:
    room = get_terminal_size().columns
    for table in study.tables:
        print_words(f"{table.title}; {table.seeds}", table.head, table.rows, 2 if table.has_paper else 1, room)
        for why, claims in table.sentences.items():
            _print_paragraph(f"{'; '.join(claims)}: {why}", room)
        print()
    _print_paragraph(study.reading, room)
    _print_paragraph("docs/reproduction.md discusses each line.", room)


def _print_paragraph(text: str, room: int) -> None:
    import textwrap

    words = " ".join(text.split()).replace("**", "")
    print(textwrap.fill(words, min(room, 120), subsequent_indent="  ", break_long_words=False, break_on_hyphens=False))


def _tell(study: str, part: str, done: int, total: int) -> None:
    print(f"reproduce {study}: {done} of {total} parts done ({part})", file=sys.stderr, flush=True)
