"""Options that several commands share, and functions that parse them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from fairlead.model.errors import InputError

if TYPE_CHECKING:
    from fairlead.rates.profile import Profile
    from fairlead.traces.formats import Trace

Cluster = Annotated[
    str, typer.Option("--cluster", help="Cluster file, or GPUs by type: v100:36,p100:36x8.", metavar="FILE|TYPES")
]
Seed = Annotated[int, typer.Option("--seed", help="Seed of everything random.", min=0)]
Throughputs = Annotated[
    str | None,
    typer.Option("--throughputs", help="Speeds: a profile file or Gavel's JSON (default: built in).", metavar="FILE"),
]
MeasureNew = Annotated[
    str | None,
    typer.Option(
        "--measure-new",
        help="Time to measure a new model on each GPU type first (default: as the policy declares; 0 = never).",
        metavar="DURATION",
    ),
]
Aliases = Annotated[
    list[str] | None,
    typer.Option("--alias", help="Treat this spelling of a GPU name as a known type.", metavar="SPELLING=TYPE"),
]


def spread(command: Callable[..., None]) -> Callable[..., None]:
    """The command with one option per field of its dataclass parameters, so that commands can share groups of options."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        if parameter.name not in groups:
            parameters.append(parameter.replace(annotation=hints[parameter.name], kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        field_hints = get_type_hints(groups[parameter.name], include_extras=True)
        parameters += [
            inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=field_hints[f.name])
            for f in fields(groups[parameter.name])
        ]

    def run(**values: Any) -> None:
        filled = {name: kind(**{f.name: values.pop(f.name) for f in fields(kind)}) for name, kind in groups.items()}
        command(**values, **filled)

    run.__name__, run.__doc__, run.__module__ = command.__name__, command.__doc__, command.__module__
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


@dataclass(frozen=True)
class Importing:
    """Options that say how a workload file is read."""

    trace_format: Annotated[
        str | None, typer.Option("--trace-format", help="Format of the file (default: detected).")
    ] = None
    throughputs: Throughputs = None
    tenants: Annotated[
        int | None, typer.Option("--tenants", help="Divide the jobs of a file without tenants among this many.", min=1)
    ] = None
    reference: Annotated[
        str | None,
        typer.Option("--reference", help="GPU type on which durations were measured (default: the file's, else v100)."),
    ] = None
    timezone: Annotated[str, typer.Option("--timezone", help="Time zone of times without one.")] = "UTC"
    alias: Aliases = None
    completed_only: Annotated[
        bool, typer.Option("--completed-only", help="Leave out jobs that failed or were cancelled.")
    ] = False
    pin_types: Annotated[bool, typer.Option("--pin-types", help="Keep every job on the GPU type that it ran on.")] = (
        False
    )
    skip_bad_lines: Annotated[
        bool, typer.Option("--skip-bad-lines", help="Leave out lines that cannot be read, and count them.")
    ] = False

    def profile(self) -> Profile:
        return open_profile(self.throughputs)

    def aliases(self) -> dict[str, str]:
        return gpu_aliases(self.alias)

    def choices(self) -> dict[str, Any]:
        """The options by the names that `read_trace` and its `Options` use."""
        names = ("tenants", "reference", "timezone", "skip_bad_lines", "completed_only", "pin_types")
        return {"aliases": self.aliases(), **{name: getattr(self, name) for name in names}}

    def read(self, path: str, profile: Profile, seed: int) -> Trace:
        from fairlead.traces.formats import read_trace

        return read_trace(path, self.trace_format, profile=profile, seed=seed, **self.choices())


def open_profile(throughputs: str | None) -> Profile:
    """The profile in the file, or the built-in profile."""
    from fairlead.traces.profiles import load_default_profile, read_profile

    return read_profile(throughputs) if throughputs else load_default_profile()


def gpu_aliases(pairs: list[str] | None) -> dict[str, str]:
    """Spellings of GPU names, from the user's configuration and --alias; the latter wins."""
    from fairlead.traces.configuration import read_aliases

    return {**read_aliases(), **parse_pairs(pairs or [], "--alias")}


def parse_pairs(pairs: list[str], option: str) -> dict[str, str]:
    """Options such as `a=1` as a mapping."""
    values: dict[str, str] = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not sign or not name:
            raise InputError(f'{option} "{pair}" is not NAME=VALUE')
        if name in values:
            raise InputError(f"{option} {name} appears twice")
        values[name] = value
    return values


def parse_parameters(pairs: list[str], known: dict[str, Any]) -> dict[str, Any]:
    """Policy parameters, each parsed as the type of its default value."""
    return {name: _parse_like(known.get(name), value, name) for name, value in parse_pairs(pairs, "--param").items()}


def _parse_like(default: Any, text: str, name: str) -> Any:
    try:
        if isinstance(default, bool):
            return {"true": True, "false": False}[text.lower()]
        if isinstance(default, int):
            return int(text)
        if isinstance(default, float):
            return float(text)
        if default is None:
            return _number_or_text(text)
        if isinstance(default, tuple):
            return tuple(float(part) for part in text.split(","))
    except (ValueError, KeyError):
        raise InputError(f'--param {name}: "{text}" is not a value like {default!r}') from None
    return text


def _number_or_text(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text
