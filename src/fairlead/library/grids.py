"""Grids: a comparison is repeated for every combination of some options' values."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from fairlead.library.reading import ALWAYS_READ, Reading
from fairlead.library.rules import WorldRules
from fairlead.model.errors import InputError
from fairlead.model.words import did_you_mean

JOBS, LOAD = "jobs", "load"
MOST_POINTS = 10_000

Labels = dict[str, str]  # of a setting, by column


@dataclass(frozen=True)
class GridPoint:
    """One combination of values, divided by where they belong."""

    options: Mapping[str, Any]  # of the simulation
    generator: Mapping[str, Any]
    jobs: int | None
    labels: Labels


def grid_of(
    vary: Mapping[str, Sequence[Any]], generator: Collection[str], fixed: Mapping[str, Any], *, reads: bool
) -> list[GridPoint]:
    """Every combination; the last name changes fastest. `generator` are options of the generator, if one is used.

    An option with a `fixed` value cannot be varied too, nor can one for files unless the comparison `reads` any.
    """
    simulation = {*(Reading.__dataclass_fields__ if reads else ALWAYS_READ), *WorldRules.__dataclass_fields__}
    known = [name for name in (*generator, *sorted(simulation - {*generator}), JOBS) if name != LOAD]
    points = 1
    for name, values in vary.items():
        if name == LOAD:
            raise InputError(f'"{LOAD}" cannot be varied; write loads: [0.8, 1.5] instead')
        if name not in known:
            raise InputError(f'"{name}" cannot be varied; {did_you_mean(name, known)}')
        if fixed.get(name) is not None:
            raise InputError(f'"{name}" is varied and also has the value {fixed[name]}; keep one of the two')
        if isinstance(values, str) or not values:
            raise InputError(f'"{name}" is varied without a list of values; write for example {name}: [a, b]')
        if len({str(value) for value in values}) < len(values):
            raise InputError(f'a value of "{name}" appears twice: {", ".join(map(str, values))}')
        points *= len(values)
    if points > MOST_POINTS:
        raise InputError(f"this grid has {points} points; at most {MOST_POINTS} are allowed")
    return [_point(dict(zip(vary, values, strict=True)), generator) for values in product(*vary.values())]


def _point(values: Mapping[str, Any], generator: Collection[str]) -> GridPoint:
    jobs = values.get(JOBS)
    if jobs is not None and (not isinstance(jobs, int) or jobs < 1):
        raise InputError(f'"{JOBS}" is varied over {jobs!r}; wanted whole numbers above 0')
    return GridPoint(
        options={name: value for name, value in values.items() if name != JOBS and name not in generator},
        generator={name: value for name, value in values.items() if name in generator},
        jobs=jobs,
        labels={name: str(value) for name, value in values.items()},
    )
