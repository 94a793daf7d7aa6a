"""`fairlead config`: what is configured, and where each value comes from."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from fairlead.cli.output import Format, Output, print_json, print_table

app = typer.Typer(help="The configuration of this user.", no_args_is_help=True)
NONE = "-"


@app.command()
def show(
    origin: Annotated[bool, typer.Option("--origin", help="Also show where each value comes from.")] = False,
    output: Output = Format.table,
) -> None:
    """Show every setting: the service and the token of the commands, spellings of GPUs, defaults of options."""
    rows = [*_service(), *_file()]
    if output is Format.json:
        print_json([dict(zip(("setting", "value", "origin"), row, strict=True)) for row in rows])
        return
    columns = ["setting", "value", *(["origin"] if origin else [])]
    print_table("Configuration", columns, [list(row[: len(columns)]) for row in rows], left=len(columns))


def _service() -> list[tuple[str, str, str]]:
    from fairlead.service import client

    saved, path = client.credentials_path(), "default"
    stored = client.Client.saved_in(saved)
    if saved.is_file():
        path = str(saved)
    used = client.Client.from_environment()
    return [
        ("url", used.url, client.URL if os.environ.get(client.URL) else path),
        (
            "token",
            "set" if used.token else NONE,  # the token itself belongs on no screen
            client.TOKEN if os.environ.get(client.TOKEN) else path if used.token and stored.token else "default",
        ),
    ]


def _file() -> list[tuple[str, str, str]]:
    from fairlead.cli.commands import COMMANDS
    from fairlead.cli.main import load_command
    from fairlead.model.words import did_you_mean
    from fairlead.traces.configuration import VARIABLE, configuration_path, read_aliases, read_defaults

    path = configuration_path()
    if path is None:
        return [("file", NONE, "default")]
    rows = [("file", str(path), VARIABLE if os.environ.get(VARIABLE) else "default")]
    rows += [(f"alias {spelling}", type_, str(path)) for spelling, type_ in read_aliases().items()]
    for command, options in read_defaults().items():
        if command.split()[0] not in COMMANDS:
            raise options.error(f'there is no command "{command}"; {did_you_mean(command, COMMANDS)}')
        load_command(command.split()[0])  # which checks the options
        for name, value in options.mapping().items():
            text = (
                ", ".join(item.text() for item in value.items())
                if hasattr(value.node.value, "append")
                else value.text()
            )
            rows.append((f"{command} --{name}", text, f"{path} line {value.line}"))
    return rows
