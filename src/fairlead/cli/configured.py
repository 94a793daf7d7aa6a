"""Options of the user's configuration become the defaults of a command, as if they had been typed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairlead.model.words import did_you_mean
from fairlead.traces.configuration import configuration_path, read_defaults

if TYPE_CHECKING:
    from fairlead.traces.marked_yaml import Marked


def apply_defaults(name: str, command: Any) -> None:
    """Give the command `name`, and the commands below it, the defaults of the configuration."""
    if configuration_path() is None:
        return
    for path, options in read_defaults().items():
        first, *below = path.split()
        if first != name:
            continue
        target = command
        for word in below:
            if word not in getattr(target, "commands", {}):
                raise options.error(
                    f'there is no command "{path}"; {did_you_mean(word, getattr(target, "commands", ()))}'
                )
            target = target.commands[word]
        _set(path, target, options)


def _set(path: str, command: Any, options: Marked) -> None:
    known = {
        max(one.opts, key=len).removeprefix("--"): one for one in command.params if one.param_type_name == "option"
    }
    known.pop("help", None)
    for option, value in options.mapping().items():
        if option not in known:
            raise value.error(f'fairlead {path} has no option "--{option}"; {did_you_mean(option, known)}')
        one = known[option]
        one.default = [item.text() for item in value.items()] if one.multiple else _word(value, is_flag=one.is_flag)
        one.required = False


def _word(value: Marked, *, is_flag: bool) -> str | bool:
    text = value.text()
    if not is_flag:
        return text
    if text not in ("true", "false"):
        raise value.error(f'{value.name} is "{text}"; wanted true or false')
    return text == "true"
