from __future__ import annotations

from typing import Annotated

import typer

from fairlead.cli.options import Importing, Seed, options_set, spread
from fairlead.cli.output import Format, Output, show_progress
from fairlead.cli.own_policies import PolicyFile, register_files
from fairlead.cli.run_table import print_run
from fairlead.cli.world import WorldOptions
from fairlead.model.errors import InputError
from fairlead.model.words import counted


@spread
def simulate(
    *,
    context: typer.Context,
    cluster: Annotated[
        str | None,
        typer.Option("--cluster", help="Cluster file, or GPUs by type: v100:36,p100:36x8.", metavar="FILE|TYPES"),
    ] = None,
    trace: Annotated[str | None, typer.Option("--trace", help="Workload file.", metavar="FILE")] = None,
    policy: Annotated[
        str | None,
        typer.Option("--policy", help="One of `fairlead policies`, or your own.", metavar="NAME|FILE.py:NAME"),
    ] = None,
    param: Annotated[list[str] | None, typer.Option(help="Parameter of the policy.", metavar="NAME=VALUE")] = None,
    importing: Importing,
    rules: WorldOptions,
    seed: Seed = 0,
    journal: Annotated[str | None, typer.Option(help="Write every event and decision here.", metavar="FILE")] = None,
    from_: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="Continue a journal, from its end or a time, or a service's state directory.",
            metavar="FILE.jsonl[@TIME]|DIR",
        ),
    ] = None,
    unknown_lasts: Annotated[
        str | None,
        typer.Option(
            "--unknown-lasts", help="With --from: how much longer jobs of unknown length run.", metavar="DURATION"
        ),
    ] = None,
    until: Annotated[str | None, typer.Option("--until", help="With --from: end at this time.", metavar="TIME")] = None,
    policy_file: PolicyFile = None,
    output: Output = Format.table,
) -> None:
    """Simulate one policy on a workload and print a summary.

    With --from the simulation starts from the state of a journal or of a live service, with its cluster, its settings
    and, for a journal, its later arrivals; --policy and the options of the world replace the recorded ones.
    """
    if from_ is not None:
        from fairlead.library.continuing import simulate_onwards

        register_files(policy_file)
        typed = options_set(context)
        given = {**importing.given(), **rules.given()}
        with show_progress(f"simulating {policy or 'onwards'}") as report:
            continued = simulate_onwards(
                from_,
                {name: value for name, value in given.items() if typed & {name, f"{name}_"}},
                cluster=cluster,
                policy=policy,
                param=param or (),
                trace=trace,
                seed=seed if "seed" in typed else None,
                unknown_lasts=unknown_lasts,
                until=until,
                journal=journal,
                progress=report,
            )
        print_run(continued.origin.name, continued.summary, output)
        return
    if unknown_lasts is not None or until is not None or policy_file:
        raise InputError("--unknown-lasts, --until and --policy-file need --from")
    if cluster is None or trace is None or policy is None:
        options = {"--cluster": cluster, "--trace": trace, "--policy": policy}
        missing = ", ".join(option for option, value in options.items() if value is None)
        raise InputError(f"{missing}: missing; a simulation needs --cluster, --trace and --policy, or --from")
    from fairlead.library.simulating import simulate as run_simulation

    with show_progress(f"simulating {policy}") as report:
        run = run_simulation(
            cluster,
            trace,
            policy,
            param=param or (),
            seed=seed,
            journal=journal,
            progress=report,
            **importing.given(),
            **rules.given(),
        )
    if run.skipped:
        typer.echo(f"left out {counted(run.skipped, 'job')} that can never run on this cluster", err=True)
    print_run(run.setup.trace.name, run.summary, output)
