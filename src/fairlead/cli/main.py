"""The command line. A command is imported when it is called, so that each of them starts quickly."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from fairlead import __version__
from fairlead.cli.commands import COMMANDS, INTRODUCTION, overview
from fairlead.cli.configured import apply_defaults
from fairlead.cli.output import print_lines
from fairlead.cli.plain_values import pass_plain_values, without_conversion
from fairlead.cli.repeated import refuse_repeated
from fairlead.model.errors import FairleadError

# Our matrices are small. A pool of threads for them would spin through 0.05 s of CPU time whenever numpy is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


class LazyCommands(Mapping[str, Any]):
    """The commands by name; one is imported when it is looked up. The types are those of click, or of typer's copy."""

    def __init__(self) -> None:
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            self._loaded[name] = load_command(name)
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class FairleadGroup(TyperGroup):
    """All commands, and the overview of them as their help."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = LazyCommands()  # type: ignore[assignment]  # nothing is ever added to it

    def get_params(self, ctx: Any) -> list[Any]:
        return without_conversion(super().get_params(ctx))

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        print(overview())  # at once, like the help of the other commands


def load_command(name: str) -> Any:
    """The command of this name, which is a function or a group of commands in its module. It is strict about options."""
    module, _, attribute = COMMANDS[name].where.partition(":")
    value = getattr(import_module(f"fairlead.cli.{module}"), attribute or module)
    if not isinstance(value, typer.Typer):
        alone = typer.Typer(add_completion=False)
        alone.command(name)(value)
    command: Any = typer.main.get_group(value) if isinstance(value, typer.Typer) else typer.main.get_command(alone)
    command.name = name
    refuse_repeated(command)
    apply_defaults(name, command)
    pass_plain_values(command)
    return command


app = typer.Typer(
    name="fairlead",
    cls=FairleadGroup,
    help=INTRODUCTION,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"fairlead {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """The options that come before the command."""


def main() -> None:
    """Run a command; an error that the user can fix becomes one message and an exit code."""
    try:
        typer.main.get_command(app)(prog_name="fairlead")
    except FairleadError as error:
        print_lines(f"fairlead: {error}", to_stderr=True)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
