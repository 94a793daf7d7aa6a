"""`fairlead what-if`: scenarios from the live state, a snapshot or a journal, side by side."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.jobs import when
from fairlead.cli.options import PreemptionLimit, TenantPreemptionLimit
from fairlead.cli.output import Format, Output, print_json, print_lines, print_wrapped_table, show_progress
from fairlead.model.units import format_duration, format_number
from fairlead.model.words import counted

if TYPE_CHECKING:
    from fairlead.studies.what_if.figures import Ranged
    from fairlead.studies.what_if.scenarios import WhatIfAnswer


def what_if(
    from_: Annotated[
        str | None,
        typer.Option("--from", help="Begin from here (default: the running service).", metavar="FILE[@TIME]|DIR"),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(help="Another policy. Given twice, two scenarios.", metavar="NAME[:PARAM=VALUE,...]"),
    ] = None,
    weight: Annotated[
        list[str] | None, typer.Option(help="Another weight of a tenant.", metavar="TENANT=WEIGHT")
    ] = None,
    quota: Annotated[
        list[str] | None,
        typer.Option(help="Another quota of a tenant.", metavar="TENANT:TYPE=OWN[+BORROW][-LEND]"),
    ] = None,
    preemption_limit: PreemptionLimit = None,
    tenant_preemption_limit: TenantPreemptionLimit = None,
    add: Annotated[
        list[str] | None, typer.Option(help="New nodes, such as 8xh100 or 2x8xh100.", metavar="[NODESx]GPUSxTYPE")
    ] = None,
    remove: Annotated[list[str] | None, typer.Option(help="A node leaves.", metavar="NODE")] = None,
    submit: Annotated[list[str] | None, typer.Option(help="A job arrives now.", metavar="JOB.yaml")] = None,
    cancel: Annotated[list[str] | None, typer.Option(help="A job is cancelled.", metavar="JOB")] = None,
    load: Annotated[
        float | None, typer.Option(help="Jobs arrive this many times as often as recently (0: none).")
    ] = None,
    scenario: Annotated[
        list[str] | None,
        typer.Option(
            help="A further scenario with changes of its own, written like the options: "
            '"policy=fft add=8xh100 name=larger".',
            metavar="CHANGES",
        ),
    ] = None,
    policy_file: Annotated[
        list[str] | None,
        typer.Option(help="A policy of your own that decides in the origin; repeatable.", metavar="FILE.py:NAME"),
    ] = None,
    horizon: Annotated[str, typer.Option(help="How far to look ahead.", metavar="DURATION")] = "24h",
    round_: Annotated[
        str | None,
        typer.Option(
            "--round",
            help="Length of simulated rounds (default: as they are, or longer if there were more than 5,000).",
            metavar="DURATION",
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, max=1000, help="Draws of what is not known, for the ranges.")] = 5,
    tenants: Annotated[bool, typer.Option(help="Also print a table for each tenant.")] = True,
    output: Output = Format.table,
) -> None:
    """Simulate what would happen, side by side with what happens anyway. Nothing of the running service changes."""
    from fairlead.library.futures import what_if as ask
    from fairlead.policies import register
    from fairlead.studies.policy_lab.plugins import load_policy

    for file in policy_file or ():
        register(load_policy(file))
    with show_progress("simulating hours") as report:
        answer = ask(
            from_,
            policy=policy or (),
            weight=weight or (),
            quota=quota or (),
            add=add or (),
            remove=remove or (),
            submit=submit or (),
            cancel=cancel or (),
            load=load,
            preemption_limit=preemption_limit,
            tenant_preemption_limit=tenant_preemption_limit,
            scenario=scenario or (),
            horizon=horizon,
            seeds=seeds,
            round_=round_,
            progress=report,
        )
    if output is Format.json:
        print_json(answer.to_json())
    else:
        _print(answer, tenants=tenants)


def _print(answer: WhatIfAnswer, *, tenants: bool) -> None:
    names = [scenario.name for scenario in answer.scenarios]
    _print_figures("All jobs", names, [scenario.overall for scenario in answer.scenarios])
    everyone = dict.fromkeys(tenant for scenario in answer.scenarios for tenant in scenario.tenants)
    for tenant in everyone if tenants and len(everyone) > 1 else ():
        _print_figures(f"Tenant {tenant}", names, [scenario.tenants.get(tenant, {}) for scenario in answer.scenarios])
    for scenario in answer.scenarios:
        for job, start_s in scenario.new_jobs.items():
            when = "does not start" if start_s is None else f"starts in {format_duration(start_s)}"
            print_lines(f"{scenario.name}: job {job} {when}")
    for line in _assumptions(answer):
        print_lines(textwrap.fill(line, get_terminal_size().columns))


def _print_figures(title: str, names: list[str], columns: list[Mapping[str, Ranged]]) -> None:
    from fairlead.studies.what_if.figures import FIGURES

    rows = [
        [label, *(_cell(column.get(name), unit) for column in columns)]
        for name, (label, unit) in FIGURES.items()
        if any(name in column for column in columns)
    ]
    print_wrapped_table(title, ["", *names], rows, 1, get_terminal_size().columns)


def _cell(figure: Ranged | None, unit: str) -> str:
    if figure is None:
        return "-"
    low, mean, high = (_figure(value, unit) for value in (figure.low, figure.mean, figure.high))
    return mean if low == high else f"{mean} ({low} - {high})"


def _figure(value: float, unit: str) -> str:
    if unit == "s":
        return format_duration(value)
    return f"{value:.0%}" if unit == "part" else format_number(value)


def _assumptions(answer: WhatIfAnswer) -> list[str]:
    ahead = format_duration(answer.horizon_s)
    rate = answer.scenarios[0].arrivals_per_hour
    arriving = "those of the journal" if rate is None else f"as recently, {rate:.3g} an hour"
    begins = f"from {answer.origin} at {_moment(answer.time_s)}: {answer.active_jobs:,} active jobs"
    notes = []
    if answer.round_s > answer.own_round_s:
        own, used = format_duration(answer.own_round_s), format_duration(answer.round_s)
        notes.append(f"rounds of {own} are simulated as rounds of {used}, to bound the work; --round {own} keeps them")
    if answer.assumed_speeds:
        notes.append(
            f"{counted(answer.assumed_speeds, 'active job')} of models whose speeds nobody measured: they have no FTF"
        )
    return [
        *notes,
        f"{begins}, {ahead} ahead, {len(answer.seeds)} seeds; later jobs: {arriving}",
        "means, with the smallest and the largest of the seeds; a job that has not ended by then counts with its time so far",
    ]


def _moment(time_s: float) -> str:
    """A time of a service, which counts from 1970, or of a simulated run."""
    return when(time_s) if time_s > 1e9 else format_duration(time_s)
