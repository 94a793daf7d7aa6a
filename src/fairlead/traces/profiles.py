"""Profile files: how fast models run where, every row with its source. Two formats are read, told apart by content.

**Ours** is a YAML head, a line `---`, and CSV rows; `#` opens a comment line in both:

    fairlead: profile/1
    name: default
    models:
      resnet50: {memory_gib: 5, restart_s: 25, spread: 0.9, checkpoint_gib: 0.2, sample: image, source: "why these numbers"}
    ---
    model,gpu,gpus,nodes,batch,rate,unit,source
    resnet50,v100,1,1,64,833,samples/s,"Lambda deeplearning-benchmark aa5addb6"

`batch` is samples per GPU and step. `rate` is of the whole job and stands as its source published it: `unit` is
steps/s, samples/s or samples/s/gpu; 0 says that it was tried and does not run. Facts of a model that are left out are
0 GiB, 0 s and a spread (rate over several nodes / on one, where no row says) of 1; the last three are for readers. A
source that opens with `estimate:` says that nobody measured the row, and by what rule it was made.

**Gavel's throughput JSON**: {type: {"('model (batch size b)', GPUs)": {"null": rate alone, ...pairs}}}. Types ending in
`_unconsolidated` are rows over 2 nodes. Gavel counts the steps of every worker, so its rate on n GPUs is n of our steps.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterator
from importlib import resources
from io import StringIO
from pathlib import Path

from fairlead.model.errors import InputError
from fairlead.model.gpus import canonical_gpu, is_gpu_name
from fairlead.rates.profile import ModelFacts, Profile, Speed
from fairlead.traces.files import create_text, did_you_mean, read_text
from fairlead.traces.marked_yaml import Marked, check_kind, parse_yaml

KIND = "profile/1"
COLUMNS = ("model", "gpu", "gpus", "nodes", "batch", "rate", "unit", "source")
UNITS = ("steps/s", "samples/s", "samples/s/gpu")
_FACTS = ("memory_gib", "restart_s", "spread")
_FOR_READERS = ("checkpoint_gib", "sample", "source")
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
        raise InputError(f"is no profile: wanted a head with fairlead: {KIND}, a line ---, and rows", path=path)
    document = parse_yaml(head, path, "a profile")
    fields = document.mapping(("fairlead", "name", "models"))
    if "fairlead" not in fields:
        raise document.error(f"does not open with fairlead: {KIND}; add that line")
    check_kind(fields, KIND)
    models = fields["models"].mapping() if "models" in fields else {}
    facts = {name: _facts(entry) for name, entry in models.items()}
    rows, lines = _rows(body, path, first_line=head.count("\n") + 2)
    unknown = set(facts) - {row.model for row in rows}
    if unknown:
        name = min(unknown)
        raise models[name].error(f'model "{name}" has facts but no row; {did_you_mean(name, {r.model for r in rows})}')
    _refuse_repeats(rows, lines, path)
    name = fields["name"].text() if "name" in fields else Path(path).stem
    return Profile(name, tuple(rows), facts)


def write_profile(profile: Profile, path: str | Path) -> None:
    with create_text(path) as file:
        file.write(format_profile(profile))


def format_profile(profile: Profile) -> str:
    """Our format, in steps/s, so that it reads back as the same profile."""
    out = StringIO()
    out.write(f"fairlead: {KIND}\nname: {json.dumps(profile.name)}\nmodels:{'' if profile.facts else ' {}'}\n")
    for model, facts in profile.facts.items():
        values = ", ".join(f"{name}: {getattr(facts, name)!r}" for name in _FACTS)
        out.write(f"  {json.dumps(model)}: {{{values}}}\n")
    out.write("---\n")
    rows = csv.writer(out, lineterminator="\n")
    rows.writerow(COLUMNS)
    for row in profile.speeds:
        rows.writerow(
            (row.model, row.gpu, row.gpus, row.nodes, repr(row.batch), repr(row.steps_per_s), "steps/s", row.source)
        )
    return out.getvalue()


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
        raise InputError("holds no speeds; wanted Gavel's table by GPU type and job type", path=path)
    return Profile(Path(path).stem, tuple(rows))


def _objects(table: object, path: str, name: str) -> Iterator[tuple[str, object]]:
    if not isinstance(table, dict):
        raise InputError(f"{name} is {json.dumps(table)[:40]}; wanted an object {{name: ...}} of speeds", path=path)
    return iter(table.items())


def _gavel_key(key: str, label: str, path: str) -> tuple[str, int]:
    match = _GAVEL_KEY.match(key)
    if match is None:
        raise InputError(
            f"""key "{key}" of {label} is not understood; wanted such as "('ResNet-50 (batch size 64)', 4)\"""",
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


def _facts(entry: Marked) -> ModelFacts:
    fields = entry.mapping((*_FACTS, *_FOR_READERS))
    values = {name: fields[name].number() for name in _FACTS if name in fields}
    try:
        return ModelFacts(**values)
    except InputError as error:
        raise error.at(entry.path, fields[error.message.partition(" ")[0]].line) from None


def _rows(body: str, path: str, first_line: int) -> tuple[list[Speed], list[int]]:
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
    if not rows:
        raise InputError(f"holds no rows; wanted {','.join(COLUMNS)} and at least one row below ---", path=path)
    return rows, lines


def _columns(cells: list[str], path: str, line: int) -> list[str]:
    names = [cell.strip() for cell in cells]
    for name in names:
        if name not in COLUMNS:
            raise InputError(f'unknown column "{name}"; {did_you_mean(name, COLUMNS)}', path=path, line=line)
    missing = [name for name in COLUMNS if names.count(name) != 1]
    if missing:
        raise InputError(f'column "{missing[0]}" must stand once; wanted {",".join(COLUMNS)}', path=path, line=line)
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
    raise InputError(f'unit is "{unit}"; wanted one of {", ".join(UNITS)}')


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
    seen: dict[tuple[str, str, int, int], int] = {}
    for row, line in zip(rows, lines, strict=True):
        first = seen.setdefault((row.model, row.gpu, row.gpus, row.nodes), line)
        if first != line:
            message = (
                f"{row.model} on {row.gpus} x {row.gpu} over {row.nodes} nodes stands already in line {first}; keep one"
            )
            raise InputError(message, path=path, line=line)
