"""All commands and options as plain values, for shell completion, the manual page and the reference in the book."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ParameterNode:
    """An option or an argument of a command."""

    names: tuple[str, ...]  # --round; of an argument, its place in the usage, such as FILE
    is_option: bool
    value: str  # what it takes, such as DURATION; empty for a flag
    choices: tuple[str, ...]
    help: str
    default: str
    required: bool
    repeatable: bool


@dataclass(frozen=True, slots=True)
class CommandNode:
    """A command, or a group of commands."""

    path: tuple[str, ...]  # ("trace", "convert"); empty for the whole
    help: str
    parameters: tuple[ParameterNode, ...]
    children: tuple[CommandNode, ...]

    @property
    def summary(self) -> str:
        return " ".join(self.help.partition("\n\n")[0].split())

    def walk(self) -> Iterator[CommandNode]:
        """This command and all below it."""
        yield self
        for child in self.children:
            yield from child.walk()


def command_tree() -> CommandNode:
    """The whole tree, which imports every command."""
    from typer.main import get_command

    from fairlead.cli.main import app

    return _node((), get_command(app))


def _node(path: tuple[str, ...], command: Any) -> CommandNode:
    below = getattr(command, "commands", {})
    return CommandNode(
        path=path,
        help=(command.help or "").strip(),
        parameters=tuple(_parameter(one) for one in command.params if not getattr(one, "hidden", False)),
        children=tuple(_node((*path, name), child) for name, child in below.items()),
    )


def _parameter(one: Any) -> ParameterNode:
    is_option = one.param_type_name == "option"
    flag = is_option and one.is_flag
    kind = getattr(one, "type_descriptor", None) or one.type  # of typer's copy of click, or of click itself
    choices = tuple(str(choice) for choice in getattr(kind, "choices", None) or ())
    metavar = one.metavar or "|".join(choices) or "VALUE"
    default = one.default if isinstance(one.default, str | int | float) and not flag else None
    return ParameterNode(
        names=(*one.opts, *one.secondary_opts) if is_option else (metavar,),
        is_option=is_option,
        value="" if flag or not is_option else metavar,
        choices=choices,
        help=(getattr(one, "help", None) or "").strip(),
        default="" if default is None else str(default),
        required=one.required,
        repeatable=bool(getattr(one, "multiple", False)) or one.nargs == -1,
    )
