"""The measurements of a study as a document: part by part, with the scale and the code that measured them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import fairlead
from fairlead.model.errors import InputError
from fairlead.studies.papers.spread import dump_numbers, load_numbers
from fairlead.studies.runs.digest import code_digest
from fairlead.studies.runs.store import Store

KIND = "reproduction/1"
NAMES = ("oef", "hare", "fft", "hops")  # in the order of the page
LAYERS = ("model", "numerics", "rates", "placement", "policies", "rounds", "sim", "traces")
# The parts of studies/ that experiments use.
SHARED = ("runs/simulate.py", "runs/summary.py", "fairness/instances.py", "papers/spread.py")


@dataclass(frozen=True)
class StudyResults:
    """The measurements of one study: numbers and CPU seconds by part."""

    name: str
    scale: Any  # the study's own, such as `OefScale`
    parts: Mapping[str, Any] = field(default_factory=dict)
    cpu_s: Mapping[str, float] = field(default_factory=dict)
    version: str = ""
    code: str = ""

    @property
    def made(self) -> str:
        """A sentence for the page. It names the code that measured the numbers, which may differ from the present code."""
        minutes = sum(self.cpu_s.values()) / 60
        return f"Measured by Fairlead {self.version}, sources {self.code[:12]}, in {minutes:.1f} CPU minutes."

    def with_part(self, part: str, numbers: Any, cpu_s: float, order: Sequence[str]) -> StudyResults:
        """The results with another part. Parts may be measured in any order; here they are in that of the experiment."""
        parts, spent = {**self.parts, part: as_stored(numbers)}, {**self.cpu_s, part: round(cpu_s, 3)}
        done = [name for name in order if name in parts]
        return replace(self, parts={name: parts[name] for name in done}, cpu_s={name: spent[name] for name in done})

    def to_json(self) -> dict[str, Any]:
        return {
            "fairlead": KIND,
            "name": self.name,
            "version": self.version,
            "code": self.code,
            "scale": scale_json(self.scale),
            "cpu_s": dict(self.cpu_s),
            "parts": json.loads(dump_numbers(self.parts)),
        }

    def to_text(self) -> str:
        """JSON with a line for every part, so that diffs show what changed."""
        value = self.to_json()
        head = json.dumps({key: value[key] for key in value if key != "parts"})
        parts = [f"{json.dumps(part)}: {dump_numbers(numbers)}" for part, numbers in self.parts.items()]
        return f'{head[:-1]}, "parts": {{\n' + ",\n".join(parts) + "\n}}\n"


def new_results(name: str, scale: Any) -> StudyResults:
    return StudyResults(name, scale, version=fairlead.__version__, code=study_digest(name))


def find_results(store: Store, name: str, scale: Any, label: str, *, older: bool = False) -> tuple[StudyResults, str]:
    """The stored results, without parts if none can be used, and a remark on results that cannot be used.

    `older` also accepts results that other code measured or that have another scale, which they keep; the remark
    mentions it.
    """
    nothing = new_results(name, scale)
    text, path = store.find(file_name(name, label)), store.path(file_name(name, label))
    if text is None:
        return nothing, ""
    try:
        read = load_numbers(text)
        if read.get("fairlead") != KIND:
            return nothing, f"{path} has another version of the file format ({read.get('fairlead')}, wanted {KIND})"
        same_scale = read["scale"] == scale_json(scale)
        if not same_scale and not older:
            return nothing, f"{path} was measured at another scale ({read['scale']})"
        kept_scale = scale if same_scale else _scale_from_json(type(scale), read["scale"])
        stored = StudyResults(name, kept_scale, read["parts"], read["cpu_s"], read["version"], read["code"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"does not hold a study's results ({error}); remove it", path=str(path)) from None
    if not same_scale:
        return stored, f"{path} was measured at another scale ({read['scale']}) and is used anyway"
    if stored.code == nothing.code:
        return stored, ""
    remark = f"{path} was measured by other code ({stored.code[:12]}, this is {nothing.code[:12]})"
    return (stored, f"{remark} and is used anyway") if older else (nothing, remark)


def keep_results(store: Store, results: StudyResults, label: str) -> None:
    store.keep(file_name(results.name, label), results.to_text())


def file_name(name: str, label: str) -> str:
    return f"{name}-{label}"


def scale_digest(scale: Any) -> str:
    return hashlib.sha256(json.dumps(asdict(scale), sort_keys=True).encode()).hexdigest()[:8]


@cache
def study_digest(name: str) -> str:
    """The digest of the code that produces a study's numbers."""
    return code_digest(partial(measures, name))


def measures(name: str, source: Path) -> bool:
    """Whether the numbers of study `name` may depend on a source file.

    Code that displays numbers does not count, nor does code that only another paper's study runs: its experiment and its
    policies.
    """
    layer = source.parts[0]
    if layer == "studies":
        room = source.relative_to("studies").as_posix()
        return room in SHARED or (room.startswith(f"papers/{name}/") and not source.stem.startswith("claim"))
    if layer == "policies":
        return not any(source.stem.startswith(other) for other in NAMES if other != name)
    return layer in LAYERS


def scale_json(scale: Any) -> Any:
    return json.loads(json.dumps(asdict(scale)))


def _scale_from_json(kind: type, record: Mapping[str, Any]) -> Any:
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in record.items()})


def as_stored(numbers: Any) -> Any:
    """The numbers as they would be read from a file, so that new and stored numbers are the same."""
    return load_numbers(dump_numbers(numbers))
