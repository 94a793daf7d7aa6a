from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

State = Annotated[Path, typer.Option(help="The state directory of the service.")]


def backup(
    target: Annotated[Path, typer.Argument(help="A new directory for the copy.", metavar="DIR")],
    state: State = Path("fairlead-state"),
) -> None:
    """Copy the state of the service, which may run meanwhile, and check the copy."""
    from fairlead.service.store.backup import back_up

    manifest = back_up(state, target)
    holds = sorted({name.partition("/")[0] for name in manifest.digests})
    typer.echo(f"{target} holds {', '.join(holds)} of {state}; leases/ is not part of it")


def restore(
    source: Annotated[Path, typer.Argument(help="A backup, or a copy of a state directory.", metavar="DIR")],
    state: State = Path("fairlead-state"),
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the state that is there; its files are moved aside.")
    ] = False,
) -> None:
    """Put a backup back as the state of the service, which must not run."""
    from fairlead.service.store.restore import restore as run

    done = run(source, state, overwrite=overwrite)
    typer.echo(f"{state} continues after request {done.requests} as incarnation {done.incarnation}")
    if done.unknown:
        some = ", ".join(done.unknown[:20]) + (" and more" if len(done.unknown) > 20 else "")
        typer.echo(
            f"jobs with leases there that the backup does not contain: {some}; the next start stops those that run"
        )
    if done.replaced is not None:
        typer.echo(f"the files that were there before are in {done.replaced}")
