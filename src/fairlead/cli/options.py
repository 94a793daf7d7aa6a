"""Options that several commands share."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from fairlead.library.reading import Reading
from fairlead.library.reading import gpu_aliases as gpu_aliases  # for the commands, like the next four
from fairlead.library.reading import open_profile as open_profile
from fairlead.library.rules import gpu_time as gpu_time
from fairlead.model.units import positive_duration as positive_duration
from fairlead.model.words import parse_pairs as parse_pairs

if TYPE_CHECKING:
    from fairlead.policies.policy import AnyPolicy
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
CheckShare = Annotated[
    float,
    typer.Option(
        "--check-share",
        help="Part of a tenant's GPU time that checks of its declared speeds may take (0 = no checks).",
        min=0.0,
        max=1.0,
    ),
]
PreemptionLimit = Annotated[
    str | None,
    typer.Option(
        "--preemption-limit",
        help="GPU time that pre-emption may cost in an hour: restarts of jobs that decisions stop or move.",
        metavar="2gpu-h/h",
    ),
]
TenantPreemptionLimit = Annotated[
    str | None,
    typer.Option(
        "--tenant-preemption-limit",
        help="The same for the jobs of any one tenant.",
        metavar="30gpu-min/h",
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
    models: Annotated[
        str | None,
        typer.Option(
            "--models", help="File of job names and their models, such as '*bert*': bert-base.", metavar="FILE"
        ),
    ] = None
    completed_only: Annotated[
        bool, typer.Option("--completed-only", help="Leave out jobs that failed or were cancelled.")
    ] = False
    pin_types: Annotated[bool, typer.Option("--pin-types", help="Keep every job on the GPU type that it ran on.")] = (
        False
    )
    skip_bad_lines: Annotated[
        bool, typer.Option("--skip-bad-lines", help="Leave out lines that cannot be read, and count them.")
    ] = False

    def given(self) -> dict[str, Any]:
        """The options by their names, as the functions of the library take them."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def reading(self) -> Reading:
        return Reading(**self.given())

    def profile(self) -> Profile:
        return self.reading().profile()

    def aliases(self) -> dict[str, str]:
        return self.reading().aliases()

    def choices(self) -> dict[str, Any]:
        return self.reading().choices()

    def read(self, path: str, profile: Profile, seed: int) -> Trace:
        return self.reading().read(path, profile, seed)


def options_set(context: typer.Context) -> set[str]:
    """The options that the command line sets, by the names of their parameters."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return {name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"}


def parse_parameters(pairs: list[str], policy: AnyPolicy | None) -> dict[str, Any]:
    """The values of `--param`. If only a service knows the policy (None), they are parsed as numbers where possible."""
    from fairlead.policies.parameter_text import parse_parameters as parse

    return parse(pairs, policy)
