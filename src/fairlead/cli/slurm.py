"""`fairlead slurm`: what an administrator of a Slurm cluster needs around `fairlead serve --engine slurm`."""

from __future__ import annotations

import os
import shlex
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.output import Format, Output, print_json, print_lines
from fairlead.model.errors import InputError
from fairlead.model.words import choose, counted

app = typer.Typer(help="Prepare a Slurm cluster for Fairlead, check it, and leave it again.", no_args_is_help=True)

Partition = Annotated[str, typer.Option(help="The partition whose jobs Fairlead steers.", metavar="NAME")]
PARTITION = "fair"
_WHO = {"owner": "its owner", "administrator": "an administrator"}


@app.command("leave")
def leave_slurm(
    partition: Partition = PARTITION,
    state: Annotated[
        Path, typer.Option(help="State directory of the service, which must not be running; it need not exist.")
    ] = Path("fairlead-state"),
    only_print: Annotated[bool, typer.Option("--print", help="Show the commands and change nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    output: Output = Format.table,
) -> None:
    """Hand every job of the partition back to Slurm's own order; running jobs keep running.

    Jobs that their owner or an administrator holds stay on hold. Exit code 1 if Slurm refuses something.
    """
    from fairlead.engines.slurm.commands import Slurm
    from fairlead.engines.slurm.leave import leave, plan_departure

    if yes and only_print:
        raise InputError("--print changes nothing, so there is nothing to say --yes to; leave one of them out")
    slurm, refused = Slurm(), list[str]()
    choose("partition", partition, slurm.partitions())
    with ExitStack() as held:
        if not only_print:
            _lock(state, held)
        plan = left = plan_departure(slurm.queue(), partition)
        if plan.commands and not only_print:
            _agree(f"release {counted(len(plan.release), 'job')} of partition {partition} to Slurm?", yes, output)
            left, refused = leave(slurm, partition, plan)
    if output is Format.json:
        print_json(
            {
                "partition": partition,
                "commands": [shlex.join(words) for words in plan.commands],
                "released": [job for job in plan.release if job not in left.release],
                "still_held": plan.stay | left.stay,
                "refused": refused,
            }
        )
    elif only_print:
        print_lines(*(shlex.join(words) for words in plan.commands))
    else:
        print_lines(f"released {counted(len(set(plan.release) - set(left.release)), 'job')} of partition {partition}")
        print_lines(*(f"{job} stays on hold, which {_WHO[who]} wants" for job, who in (plan.stay | left.stay).items()))
        print_lines(*refused, to_stderr=True)
    if not only_print and "lua" in slurm.config().words("JobSubmitPlugins"):
        print_lines(
            f"New jobs of {partition} are held as long as job_submit.lua is in place: "
            "`fairlead slurm setup --print --part undo` shows how to remove it.",
            to_stderr=True,
        )
    if refused:
        raise typer.Exit(1)


class Part(StrEnum):
    conf = "conf"
    lua = "lua"
    accounts = "accounts"
    undo = "undo"


@app.command("setup")
def setup_slurm(
    partition: Partition = PARTITION,
    user: Annotated[
        str | None, typer.Option(help="The user that the service runs as (default: you).", metavar="NAME")
    ] = None,
    nodes: Annotated[str, typer.Option(help="Nodes of the partition (default: all with GPUs).", metavar="NODES")] = "",
    part: Annotated[Part | None, typer.Option(help="Print one part alone, to be written to a file.")] = None,
    only_print: Annotated[bool, typer.Option("--print", help="Print, and change nothing.")] = False,
    output: Output = Format.table,
) -> None:
    """Print the lines of slurm.conf, job_submit.lua and the commands that let Fairlead steer a partition.

    Nothing is changed: an administrator reads them and carries them out. The last part undoes it all.
    """
    from dataclasses import asdict

    from fairlead.engines.slurm.commands import Slurm
    from fairlead.engines.slurm.facts import LUA, gather
    from fairlead.engines.slurm.preparation import prepare

    if not only_print:
        raise InputError("this command changes nothing by itself; call it with --print to see what to change")
    facts = gather(Slurm())
    name, uid = _user(user) if user else (facts.user, facts.uid)
    texts = {Part(key): text for key, text in asdict(prepare(facts, partition, name, uid, nodes)).items()}
    if facts.config is None:
        print_lines(f"fairlead: {facts.trouble}; the lines do not consider what Slurm has", to_stderr=True)
    elif facts.lua is not None and facts.lua != texts[Part.lua]:
        path = facts.slurm_conf.parent / LUA
        print_lines(f"fairlead: {path} exists and differs; keep what it does for other partitions", to_stderr=True)
    shown = texts if part is None else {part: texts[part]}
    if output is Format.json:
        print_json(shown)
        return
    folder = facts.slurm_conf.parent
    titles = {
        Part.conf: f"{facts.slurm_conf}: add or change these lines, then run `scontrol reconfigure`",
        Part.lua: f"{folder / LUA}: this whole file, next to slurm.conf of the controller",
        Part.accounts: "accounting: run once, as an administrator",
        Part.undo: "undo",
    }
    for key, text in shown.items():
        print_lines(*([] if part else [f"===== {titles[key]} =====", ""]), *text.splitlines(), *([] if part else [""]))


@app.command("doctor")
def check_slurm(
    steer: Annotated[
        bool, typer.Option("--steer", help="Check what steering the users' jobs needs (default).")
    ] = False,
    shadow: Annotated[bool, typer.Option("--shadow", help="Check what watching needs.")] = False,
    leases: Annotated[bool, typer.Option("--leases", help="Check what leases as Slurm jobs of yours need.")] = False,
    partition: Partition = PARTITION,
    state: Annotated[Path | None, typer.Option(help="Also check the file system of this state directory.")] = None,
    output: Output = Format.table,
) -> None:
    """Check this Slurm; exit code 1 if something is missing. Nothing is changed."""
    from dataclasses import asdict

    from fairlead.engines.slurm.checks import Mode, check
    from fairlead.engines.slurm.commands import Slurm
    from fairlead.engines.slurm.facts import gather

    if steer + shadow + leases > 1:
        raise InputError("--steer, --shadow and --leases are different checks; choose one of them")
    mode = Mode.SHADOW if shadow else Mode.LEASES if leases else Mode.STEER
    findings = check(gather(Slurm(), state), mode, partition)
    words = {True: "ok", False: "missing", None: "warning"}
    if output is Format.json:
        print_json([{**asdict(finding), "mark": words[finding.ok]} for finding in findings])
    else:
        for finding in findings:
            remedy = "" if finding.ok else f"; {finding.remedy}"
            print_lines(f"{words[finding.ok]:8} {finding.check}: {finding.found}{remedy}")
    if any(finding.ok is False for finding in findings):
        raise typer.Exit(1)


def _lock(state: Path, held: ExitStack) -> None:
    """Refuse if a service uses the directory, and keep one from starting meanwhile."""
    from fairlead.service.store.directory import StateDirectory

    for name in ("service", "scheduler"):
        if (state / f"{name}.lock").exists():
            held.callback(os.close, StateDirectory(state).lock(name))


def _agree(question: str, yes: bool, output: Format) -> None:
    if yes:
        return
    if output is Format.json:
        raise InputError("with -o json nothing is asked; add --yes, or --print to see the commands only")
    if not typer.confirm(question, err=True):
        raise typer.Exit(1)


def _user(name: str) -> tuple[str, int]:
    import pwd

    try:
        return name, pwd.getpwnam(name).pw_uid
    except KeyError:
        raise InputError(f'this machine has no user "{name}"; create it, or name another with --user') from None
