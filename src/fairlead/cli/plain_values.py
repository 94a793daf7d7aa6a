"""Words that need no conversion are passed on unchanged: importing the library that converts them takes 0.05 s."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any


def pass_plain_values(command: Any) -> None:
    """Make the command and all below it convert only values that are not of their type already."""
    for below in getattr(command, "commands", {}).values():
        pass_plain_values(below)
    get_params = command.get_params
    command.get_params = lambda context: without_conversion(get_params(context))


def without_conversion(parameters: list[Any]) -> list[Any]:
    """The parameters, of which a method of newer versions of typer is replaced; those of older ones do not change."""
    for parameter in parameters:
        convert = getattr(parameter, "get_runtime_param", None)
        if convert is not None and "get_runtime_param" not in vars(parameter):
            parameter.get_runtime_param = _OnlyIfNeeded(parameter.type_descriptor, convert).itself
    return parameters


class _OnlyIfNeeded:
    """What typer calls to convert the value of one parameter."""

    def __init__(self, descriptor: Any, convert: Callable[[], Any]) -> None:
        self._kind, self._convert = descriptor.annotation, convert
        self._is_plain = not (descriptor.parameter_info.parser or descriptor.is_path or descriptor.is_file)

    def itself(self) -> _OnlyIfNeeded:
        return self

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        may_have_limits = self._kind not in (str, bool) and value != param.default
        if self._is_plain and type(value) is self._kind and not may_have_limits:
            return value
        if self._is_plain and isinstance(self._kind, type) and issubclass(self._kind, Enum):
            for choice in self._kind:
                if value in (choice, choice.value):
                    return choice
        return self._convert().coerce(value, param=param, ctx=ctx)
