"""Study files: a grid of comparisons that can be repeated, shared and resumed.

    fairlead: study/1                             # optional, first
    cluster: ["v100:8,k80:8", lab.yaml]           # one or several; commas inside a list need quotes
    generate: {tenants: 4, durations: gavel}      # `defaults`, or options; or trace: one or several files
    policies: [las, fft, fft:kappa=2]
    seeds: 0..4
    loads: [0.8, 1.5]
    jobs: 100
    audit: true
    options: {restart_cost: 30s}                  # of `fairlead simulate`, for all runs
    vary:                                         # every combination is a setting of its own
      round: [1m, 6m]
      tenants: [4, 20]
    budget: 2h                                    # of CPU time

`fillings` and `fill_types`, as in `fairlead compare`, vary what a trace lacks.

Clusters and traces are looked for beside the study file first.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from fairlead.library.comparing import compare
from fairlead.library.comparison import PolicyComparison
from fairlead.library.reading import File, Reading, known
from fairlead.library.rules import WorldRules
from fairlead.model.errors import InputError
from fairlead.traces.files import read_text
from fairlead.traces.marked_yaml import Marked, check_kind, parse_yaml

if TYPE_CHECKING:
    from fairlead.library.rules import Duration

KIND = "study/1"
KEYS = (
    *("cluster", "trace", "generate", "policies", "seeds", "loads", "jobs", "audit", "fillings", "fill_types"),
    *("options", "vary", "budget"),
)


def study(
    path: File,
    *,
    budget: Duration | None = None,
    state: File | None = None,
    fresh: bool = False,
    workers: int | None = None,
    executor: str = "processes",
    ray_address: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> PolicyComparison:
    """Run the comparisons of a study file. Runs that were finished before are not repeated, so a study can be resumed.

    The keywords are those of `fairlead.compare`; `budget` takes the place of the one in the file.
    """
    keywords = read_study(str(path))
    if budget is not None:
        keywords["budget"] = budget
    try:
        return compare(
            **keywords,
            state=state,
            fresh=fresh,
            workers=workers,
            executor=executor,
            ray_address=ray_address,
            progress=progress,
        )
    except InputError as error:
        raise (error if error.path else error.at(str(path))) from None


def read_study(path: str) -> dict[str, Any]:
    """The keywords of `fairlead.compare` for the study in a file."""
    document = parse_yaml(read_text(path), path, "a study")
    fields = document.mapping(("fairlead", *KEYS))
    check_kind(fields, KIND)
    for key in ("cluster", "policies"):
        if key not in fields:
            raise document.error(f'this study has no "{key}"; wanted it with at least one of them')
    keywords = {key: _value(fields[key]) for key in KEYS if key in fields and key not in ("options", "vary")}
    if not isinstance(keywords.get("audit", False), bool):
        raise fields["audit"].error("audit is neither true nor false")
    for key in ("cluster", "trace"):
        if key in keywords:
            keywords[key] = [_beside(path, str(word)) for word in _listed(keywords[key])]
    for key in ("policies", "loads", "fill_types"):
        if key in keywords:
            keywords[key] = _listed(keywords[key])
    for key in ("jobs", "fillings"):
        if key in fields:
            keywords[key] = fields[key].whole()
    if not isinstance(keywords.get("seeds", 0), str | int | list):
        raise fields["seeds"].error(f"seeds is {keywords['seeds']}; wanted 0..9, or whole numbers")
    if not isinstance(keywords.get("generate", {}), str | dict):
        raise fields["generate"].error("generate is a list; wanted `defaults`, or options such as {tenants: 4}")
    options = (
        {} if "options" not in fields else {name: _value(one) for name, one in fields["options"].mapping().items()}
    )
    for name in options:
        if name in KEYS:
            raise fields["options"].error(f'"{name}" does not belong into options; write it one level higher')
    try:
        known(options, Reading, WorldRules)
    except InputError as error:
        raise fields["options"].error(str(error)) from None
    vary = {} if "vary" not in fields else {name: _values(one) for name, one in fields["vary"].mapping().items()}
    return {**keywords, **options, "vary": vary}


def _values(marked: Marked) -> list[Any]:
    return [_value(item) for item in marked.items()]


def _value(marked: Marked) -> Any:
    """Numbers, true and false as such, other words as text; lists and mappings of them."""
    if isinstance(marked.node, yaml.SequenceNode):
        return _values(marked)
    if isinstance(marked.node, yaml.MappingNode):
        return {name: _value(one) for name, one in marked.mapping().items()}
    word = marked.text()
    if word in ("true", "false"):
        return word == "true"
    for read in (marked.whole, marked.number):
        try:
            return read()
        except InputError:
            continue
    return word


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _beside(path: str, word: str) -> str:
    """The file of that name beside the study; otherwise the word, which may be a path, or GPUs by type."""
    near = Path(path).parent / word
    return str(near) if near.is_file() else word
