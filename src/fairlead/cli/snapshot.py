"""`fairlead snapshot`: the state of a service in one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.output import Format, Output, print_json, print_lines
from fairlead.model.errors import InputError


def snapshot(
    file: Annotated[Path, typer.Argument(help="Where to write it.", metavar="FILE")],
    anonymise: Annotated[
        bool, typer.Option("--anonymise", help="Replace all names of jobs, tenants, nodes and models.")
    ] = False,
    state: Annotated[
        Path | None, typer.Option(help="State directory (default: ask the running service).", metavar="DIR")
    ] = None,
    output: Output = Format.table,
) -> None:
    """Write the state of the service, for `what-if --from` and `simulate --from` on any machine."""
    from fairlead.traces.files import create_text

    text = _running(anonymise=anonymise) if state is None else _stored(state, anonymise=anonymise)
    if file.is_dir():
        raise InputError("is a directory; wanted a file name", path=str(file))
    with create_text(file) as out:
        out.write(text)
    if output is Format.json:
        print_json({"file": str(file), "bytes": len(text.encode()), "anonymised": anonymise})
    else:
        print_lines(f"wrote {file} ({len(text.encode()):,} bytes{', without names' if anonymise else ''})")


def _running(*, anonymise: bool) -> str:
    from fairlead.service.client import Client

    return "".join(Client.from_environment().lines("/snapshot", anonymise="true" if anonymise else None))


def _stored(directory: Path, *, anonymise: bool) -> str:
    from fairlead.service.store.directory import read_directory
    from fairlead.studies.what_if.snapshot_file import snapshot_line

    return snapshot_line(*read_directory(directory), anonymise=anonymise)
