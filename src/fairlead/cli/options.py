"""Options that several verbs share, and what they mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead.model.errors import InputError

if TYPE_CHECKING:
    from fairlead.rates.profile import Profile

Cluster = Annotated[
    str, typer.Option("--cluster", help="Cluster file, or GPUs by type: v100:36,p100:36x8.", metavar="FILE|TYPES")
]
Seed = Annotated[int, typer.Option("--seed", help="Seed of everything random.", min=0)]
Throughputs = Annotated[
    str | None,
    typer.Option("--throughputs", help="Speeds: a profile file or Gavel's JSON (default: built in).", metavar="FILE"),
]
Aliases = Annotated[
    list[str] | None,
    typer.Option("--alias", help="Read a GPU name as one of ours.", metavar="SPELLING=TYPE"),
]


def open_profile(throughputs: str | None) -> Profile:
    """The profile that was asked for, or the one that ships."""
    from fairlead.traces.profiles import load_default_profile, read_profile

    return read_profile(throughputs) if throughputs else load_default_profile()


def gpu_aliases(pairs: list[str] | None) -> dict[str, str]:
    """Spellings of GPU names: those of the user's configuration, then those of --alias."""
    from fairlead.traces.configuration import read_aliases

    return {**read_aliases(), **parse_pairs(pairs or [], "--alias")}


def parse_pairs(pairs: list[str], option: str) -> dict[str, str]:
    """`a=1` options as a mapping."""
    found: dict[str, str] = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not sign or not name:
            raise InputError(f'{option} "{pair}" is not NAME=VALUE')
        if name in found:
            raise InputError(f"{option} {name} is given twice")
        found[name] = value
    return found


def parse_parameters(pairs: list[str], known: dict[str, Any]) -> dict[str, Any]:
    """Policy parameters, each read as the kind of value that it has by default."""
    return {name: _like(known.get(name), value, name) for name, value in parse_pairs(pairs, "--param").items()}


def _like(default: Any, text: str, name: str) -> Any:
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
