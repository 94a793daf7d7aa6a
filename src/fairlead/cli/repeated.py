"""An option that takes one value and appears twice is an error: otherwise all but the last would be ignored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from fairlead.model.errors import InputError


def refuse_repeated(command: Any) -> None:
    """Make the command and all below it refuse an option that is repeated but takes one value.

    The types are those of click, or of the copy of it in newer versions of typer.
    """
    for below in getattr(command, "commands", {}).values():
        refuse_repeated(below)
    make_parser = command.make_parser

    def make_strict_parser(context: Any) -> Any:
        parser = make_parser(context)
        parse_args = parser.parse_args

        def parse_strictly(args: list[str]) -> Any:
            values, rest, order = parse_args(args=args)
            _check(order)
            return values, rest, order

        parser.parse_args = parse_strictly
        return parser

    command.make_parser = make_strict_parser


def _check(order: Iterable[Any]) -> None:
    """Look for repetitions among the parameters, one entry for each time that one appears."""
    for parameter, times in Counter(order).items():
        takes_one = parameter.param_type_name == "option" and not parameter.multiple and not parameter.count
        if times > 1 and takes_one:
            name = max(parameter.opts, key=len)
            raise InputError(f"{name} appears {times} times and takes one value; leave out all but one")
