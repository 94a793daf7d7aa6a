"""Profile files: the speeds of models on GPU types, every row with its source. Two formats are recognised by content.

**Ours** is a YAML head, a line `---`, and CSV rows; `#` starts a comment line in both:

    fairlead: profile/1
    name: default
    models:
      resnet50: {memory_gib: 5, restart_s: 25, spread: 0.9, checkpoint_gib: 0.2, sample: image, source: "why these numbers"}
    ---
    model,gpu,gpus,nodes,batch,rate,unit,source
    resnet50,v100,1,1,64,833,samples/s,"Lambda deeplearning-benchmark aa5addb6"

`batch` is samples per GPU and step. `rate` is of the whole job, as its source published it: `unit` is steps/s,
samples/s or samples/s/gpu; 0 means that the model was tried and does not run. Facts of a model that are left out are 0
GiB, 0 s and a spread (rate over several nodes / on one, where no row has it) of 1; the last three are for readers. A
source that begins with `estimate:` means that the row was not measured, and names the rule behind it.

A model may have the profiled parts of an iteration by GPU, `parts: {v100: {batch: 64, forward_s: 0.02, ...}}`, and the
head the GPUs' `links: {v100: {link_gib_per_s: 20, net_gib_per_s: 1.2, source: "..."}}`; their keys are the fields of
`Parts` and `Links`. Rates that no row has then come from the iteration-time formula, and rows are not needed.

**Gavel's throughput JSON**: {type: {"('model (batch size b)', GPUs)": {"null": rate alone, ...pairs}}}. Types ending in
`_unconsolidated` are rows over 2 nodes. Gavel counts the steps of every worker, so its rate on n GPUs is n of our
steps.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, replace
from importlib import resources
from io import StringIO
from pathlib import Path
from typing import Any, TypeVar

from fairlead.model.errors import InputError
from fairlead.model.gpus import canonical_gpu, is_gpu_name
from fairlead.model.words import did_you_mean
from fairlead.rates.iteration import Links, Parts
from fairlead.rates.profile import ModelFacts, Profile, Speed, chip_of
from fairlead.traces.files import create_text, read_text
from fairlead.traces.marked_yaml import Marked, check_kind, parse_yaml

KIND = "profile/1"
COLUMNS = ("model", "gpu", "gpus", "nodes", "batch", "rate", "unit", "source")
UNITS = ("steps/s", "samples/s", "samples/s/gpu")
_FACTS = ("memory_gib", "restart_s", "spread")
_FOR_READERS = ("checkpoint_gib", "sample", "source")
_PARTS, _LINKS = "parts", "links"
_GAVEL_KEY = re.compile(r"\('(.+)', ([1-9]\d{0,5})\)\Z")
_GAVEL_BATCH = re.compile(r"\(batch size ([1-9]\d{0,8})\)\Z")
_UNCONSOLIDATED = "_unconsolidated"


def read_profile(path: str | Path) -> Profile:
    """A profile from our format or from Gavel's JSON, whichever the file holds."""
    text = read_text(path)
    if text.lstrip().startswith("{"):
        return parse_gavel_table(text, str(path))
    return parse_profile(text, str(path))


def load_default_profile() -> Profile:
    """The profile that ships with Fairlead; every row names its source."""
    return parse_profile(default_profile_text(), "default_profile.txt")


def default_profile_text() -> str:
    return resources.files("fairlead.traces").joinpath("data/default_profile.txt").read_text(encoding="utf-8")


def parse_profile(text: str, path: str) -> Profile:
    head, mark, body = _split(text)
    if not mark:
        raise InputError(f"is not a profile: wanted a head with fairlead: {KIND}, a line ---, and rows", path=path)
    document = parse_yaml(head, path, "a profile")
    head_fields = document.mapping(("fairlead", "name", "models", _LINKS))
    if "fairlead" not in head_fields:
        raise document.error(f"does not begin with fairlead: {KIND}; add that line")
    check_kind(head_fields, KIND)
    models = head_fields["models"].mapping() if "models" in head_fields else {}
    entries = {name: entry.mapping((*_FACTS, *_FOR_READERS, _PARTS)) for name, entry in models.items()}
    facts = {name: _facts(entry) for name, entry in entries.items()}
    links = _links(head_fields[_LINKS]) if _LINKS in head_fields else {}
    parts = {
        (name, gpu): value
        for name, entry in entries.items()
        if _PARTS in entry
        for gpu, value in _parts(entry[_PARTS], links).items()
    }
    rows, lines = _rows(body, path, first_line=head.count("\n") + 2, needed=not parts)
    unknown = set(facts) - {row.model for row in rows} - {model for model, _ in parts}
    if unknown:
        name = min(unknown)
        known = {row.model for row in rows}
        raise models[name].error(f'model "{name}" has facts but neither rows nor parts; {did_you_mean(name, known)}')
    _refuse_repeats(rows, lines, path)
    name = head_fields["name"].text() if "name" in head_fields else Path(path).stem
    return Profile(name, tuple(rows), facts, parts, links)


def write_profile(profile: Profile, path: str | Path) -> None:
    with create_text(path) as file:
        file.write(format_profile(profile))


def format_profile(profile: Profile) -> str:
    """The profile in our format, in steps/s, so that it reads back as the same profile."""
    out = StringIO()
    described = dict.fromkeys((*profile.facts, *(model for model, _ in profile.parts)))
    out.write(f"fairlead: {KIND}\nname: {json.dumps(profile.name)}\nmodels:{'' if described else ' {}'}\n")
    for model in described:
        facts = profile.facts_of(model)
        out.write(f"  {json.dumps(model)}:\n" + "".join(f"    {n}: {getattr(facts, n)!r}\n" for n in _FACTS))
        parts = {gpu: value for (name, gpu), value in profile.parts.items() if name == model}
        if parts:
            out.write(f"    {_PARTS}:\n" + "".join(f"      {gpu}: {_flow(value)}\n" for gpu, value in parts.items()))
    if profile.links:
        out.write(f"{_LINKS}:\n" + "".join(f"  {gpu}: {_flow(value)}\n" for gpu, value in profile.links.items()))
    out.write("---\n")
    rows = csv.writer(out, lineterminator="\n")
    rows.writerow(COLUMNS)
    for row in profile.speeds:
        rows.writerow(
            (row.model, row.gpu, row.gpus, row.nodes, repr(row.batch), repr(row.steps_per_s), "steps/s", row.source)
        )
    return out.getvalue()


def _flow(value: Parts | Links) -> str:
    return "{" + ", ".join(f"{f.name}: {json.dumps(getattr(value, f.name))}" for f in fields(value)) + "}"


def parse_gavel_table(text: str, path: str) -> Profile:
    try:
        table = json.loads(text)
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", None)
        raise InputError(f"is not JSON: {getattr(error, 'msg', error)}", path=path, line=line) from None
    source = f"gavel:{Path(path).name}"
    rows: list[Speed] = []
    for label, cells in _objects(table, path, "the table"):
        gpu = label.removesuffix(_UNCONSOLIDATED)
        if not is_gpu_name(gpu):
            raise InputError(f'GPU type "{label}" is not a name; write it in lower case, such as v100', path=path)
        nodes = 1 if gpu == label else 2
        for key, cell in _objects(cells, path, label):
            model, gpus = _gavel_key(key, label, path)
            if gpus >= nodes:  # on one GPU the two columns are the same measurement
                rows.append(_gavel_speed(cell, model, gpu, gpus, nodes, source, path))
    if not rows:
        raise InputError("has no speeds; wanted Gavel's table by GPU type and job type", path=path)
    return Profile(Path(path).stem, tuple(rows))


def _objects(table: object, path: str, name: str) -> Iterator[tuple[str, object]]:
    if not isinstance(table, dict):
        raise InputError(f"{name} is {json.dumps(table)[:40]}; wanted an object {{name: ...}} of speeds", path=path)
    return iter(table.items())


def _gavel_key(key: str, label: str, path: str) -> tuple[str, int]:
    match = _GAVEL_KEY.match(key)
    if match is None:
        raise InputError(
            f"""key "{key}" of {label} is not understood; wanted, for example, "('ResNet-50 (batch size 64)', 4)\"""",
            path=path,
        )
    return match[1], int(match[2])


def _gavel_speed(cell: object, model: str, gpu: str, gpus: int, nodes: int, source: str, path: str) -> Speed:
    where = f"{model} on {gpus} x {gpu}"
    alone = cell.get("null") if isinstance(cell, dict) else None
    if not isinstance(alone, int | float) or isinstance(alone, bool):
        raise InputError(f'{where}: "null", the rate alone, is {alone!r}; wanted a number of steps/s', path=path)
    batch = _GAVEL_BATCH.search(model)
    try:
        return Speed(model, gpu, gpus, nodes, float(batch[1]) if batch else 1.0, alone / gpus, source)
    except (InputError, OverflowError) as error:
        raise InputError(str(error), path=path) from None


def _split(text: str) -> tuple[str, bool, str]:
    match = re.search(r"^---[ \t]*\r?\n", text, re.MULTILINE)
    return (text[: match.start()], True, text[match.end() :]) if match else (text, False, "")


def _facts(entry: dict[str, Marked]) -> ModelFacts:
    values = {name: entry[name].number() for name in _FACTS if name in entry}
    try:
        return ModelFacts(**values)
    except InputError as error:
        wrong = entry[error.message.partition(" ")[0]]
        raise error.at(wrong.path, wrong.line) from None


def _links(entry: Marked) -> dict[str, Links]:
    return {_gpu(name, value): _record(value, Links, f"links of {name}") for name, value in entry.mapping().items()}


def _parts(entry: Marked, links: dict[str, Links]) -> dict[str, Parts]:
    """The parts by GPU. Each GPU needs links; without them the formula would assume communication without cost."""
    parts: dict[str, Parts] = {}
    for name, value in entry.mapping().items():
        gpu = _gpu(name, value)
        if gpu not in links and chip_of(gpu) not in links:
            line = f"{_LINKS}: {{{gpu}: {{link_gib_per_s: 20, net_gib_per_s: 1.2}}}}"
            raise value.error(
                f"parts on {gpu}, but there are no links of {gpu}; add to the head, with your numbers, {line}"
            )
        parts[gpu] = _record(value, Parts, f"parts on {gpu}")
    return parts


def _gpu(name: str, value: Marked) -> str:
    try:
        return canonical_gpu(name)
    except InputError as error:
        raise error.at(value.path, value.line) from None


_Record = TypeVar("_Record", Parts, Links)


def _record(entry: Marked, kind: type[_Record], name: str) -> _Record:
    """The dataclass whose fields are the keys of `entry`."""
    known = {f.name: f for f in fields(kind)}
    values = replace(entry, name=name).mapping(known)
    for field in known.values():
        if field.default is MISSING and field.name not in values:
            raise entry.error(f"{name} lack {field.name}; wanted {', '.join(known)}")
    arguments = {key: _READ.get(key, Marked.number)(value) for key, value in values.items()}
    try:
        return kind(**arguments)
    except InputError as error:
        raise error.at(entry.path, values[error.message.partition(" ")[0]].line) from None


def _boolean(value: Marked) -> bool:
    word = value.text()
    if word not in ("true", "false"):
        raise value.error(f'{value.name} is "{word}"; wanted true or false')
    return word == "true"


_READ: dict[str, Callable[[Marked], Any]] = {"source": Marked.text, "loads_ahead": _boolean}


def _rows(body: str, path: str, first_line: int, *, needed: bool) -> tuple[list[Speed], list[int]]:
    reader = csv.reader(body.splitlines())
    columns: list[str] | None = None
    rows: list[Speed] = []
    lines: list[int] = []
    for cells in reader:
        line = first_line + reader.line_num - 1
        if not cells or cells[0].startswith("#"):
            continue
        if columns is None:
            columns = _columns(cells, path, line)
            continue
        try:
            rows.append(_speed(cells, columns))
        except InputError as error:
            raise error.at(path, line) from None
        lines.append(line)
    if not rows and needed:
        raise InputError(f"has no rows; wanted {','.join(COLUMNS)} and at least one row below ---", path=path)
    return rows, lines


def _columns(cells: list[str], path: str, line: int) -> list[str]:
    names = [cell.strip() for cell in cells]
    for name in names:
        if name not in COLUMNS:
            raise InputError(f'unknown column "{name}"; {did_you_mean(name, COLUMNS)}', path=path, line=line)
    missing = [name for name in COLUMNS if names.count(name) != 1]
    if missing:
        raise InputError(f'column "{missing[0]}" must appear once; wanted {",".join(COLUMNS)}', path=path, line=line)
    return names


def _speed(cells: list[str], columns: list[str]) -> Speed:
    if len(cells) != len(columns):
        raise InputError(f"has {len(cells)} fields; wanted {len(columns)}: {','.join(columns)}")
    field = {name: cell.strip() for name, cell in zip(columns, cells, strict=True)}
    for name in ("model", "source"):
        if not field[name]:
            raise InputError(f"{name} is empty; fill it in")
    gpus, nodes = (_whole(field, name) for name in ("gpus", "nodes"))
    batch, rate = (_number(field, name) for name in ("batch", "rate"))
    if not 0 < batch <= 1e9:
        raise InputError(f"batch is {batch}; wanted a number above 0")
    if rate < 0:
        raise InputError(f"rate is {field['rate']}; wanted a number of {field['unit']}, or 0 if it does not run")
    return Speed(
        field["model"],
        canonical_gpu(field["gpu"]),
        gpus,
        nodes,
        batch,
        _steps_per_s(rate, field["unit"], batch, gpus),
        field["source"],
    )


def _steps_per_s(rate: float, unit: str, batch: float, gpus: int) -> float:
    if unit == "steps/s":
        return rate
    if unit == "samples/s":
        return rate / (batch * gpus)
    if unit == "samples/s/gpu":
        return rate / batch
    raise InputError(f'unit "{unit}" is not known; {did_you_mean(unit, UNITS)}')


def _whole(field: dict[str, str], name: str) -> int:
    try:
        value = int(field[name])
    except ValueError:
        raise InputError(f'{name} is "{field[name]}"; wanted a whole number') from None
    if not 1 <= value <= 100_000:
        raise InputError(f"{name} is {field[name]}; wanted a whole number from 1 to 100000")
    return value


def _number(field: dict[str, str], name: str) -> float:
    try:
        value = float(field[name])
    except ValueError:
        raise InputError(f'{name} is "{field[name]}"; wanted a number') from None
    if not math.isfinite(value):
        raise InputError(f'{name} is "{field[name]}"; wanted a finite number')
    return value


def _refuse_repeats(rows: list[Speed], lines: list[int], path: str) -> None:
    first_lines: dict[tuple[str, str, int, int], int] = {}
    for row, line in zip(rows, lines, strict=True):
        first = first_lines.setdefault((row.model, row.gpu, row.gpus, row.nodes), line)
        if first != line:
            message = (
                f"{row.model} on {row.gpus} x {row.gpu} over {row.nodes} nodes is already in line {first}; keep one"
            )
            raise InputError(message, path=path, line=line)
