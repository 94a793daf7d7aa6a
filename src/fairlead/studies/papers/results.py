"""What a study has measured, as a document: part by part, with the scale and the code that it was measured at."""

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
# What experiments use of studies/.
SHARED = ("runs/simulate.py", "runs/summary.py", "fairness/instances.py", "papers/spread.py")


@dataclass(frozen=True)
class StudyResults:
    """What one study measured: numbers and CPU seconds by part."""

    name: str
    scale: Any  # the study's own, such as `OefScale`
    parts: Mapping[str, Any] = field(default_factory=dict)
    cpu_s: Mapping[str, float] = field(default_factory=dict)
    version: str = ""
    code: str = ""

    @property
    def made(self) -> str:
        """A sentence for the page. It names the code that measured the numbers, which is not always what writes the page."""
        minutes = sum(self.cpu_s.values()) / 60
        return f"Measured by Fairlead {self.version}, sources {self.code[:12]}, in {minutes:.1f} CPU minutes."

    def with_part(self, part: str, numbers: Any, cpu_s: float, order: Sequence[str]) -> StudyResults:
        """One part more. Parts may be measured in any order; here they have that of the experiment."""
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
        """JSON with a line for every part, so that a change shows where it is."""
        value = self.to_json()
        head = json.dumps({key: value[key] for key in value if key != "parts"})
        parts = [f"{json.dumps(part)}: {dump_numbers(numbers)}" for part, numbers in self.parts.items()]
        return f'{head[:-1]}, "parts": {{\n' + ",\n".join(parts) + "\n}}\n"


def new_results(name: str, scale: Any) -> StudyResults:
    return StudyResults(name, scale, version=fairlead.__version__, code=study_digest(name))


def find_results(store: Store, name: str, scale: Any, label: str, *, older: bool = False) -> tuple[StudyResults, str]:
    """What is stored, and a remark on what is stored and cannot be used; no parts where nothing can.

    `older` takes results that other code measured, too, and the remark says so.
    """
    nothing = new_results(name, scale)
    text, path = store.find(file_name(name, label)), store.path(file_name(name, label))
    if text is None:
        return nothing, ""
    try:
        read = load_numbers(text)
        if read.get("fairlead") != KIND:
            return nothing, f"{path} is of another version of this file ({read.get('fairlead')}, wanted {KIND})"
        if read["scale"] != scale_json(scale):
            return nothing, f"{path} is of another scale ({read['scale']})"
        stored = StudyResults(name, scale, read["parts"], read["cpu_s"], read["version"], read["code"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"does not hold a study's results ({error}); remove it", path=str(path)) from None
    if stored.code == nothing.code:
        return stored, ""
    remark = f"{path} was measured by other code ({stored.code[:12]}, this is {nothing.code[:12]})"
    return (stored, f"{remark} and is used all the same") if older else (nothing, remark)


def keep_results(store: Store, results: StudyResults, label: str) -> None:
    store.keep(file_name(results.name, label), results.to_text())


def file_name(name: str, label: str) -> str:
    return f"{name}-{label}"


def scale_digest(scale: Any) -> str:
    return hashlib.sha256(json.dumps(asdict(scale), sort_keys=True).encode()).hexdigest()[:8]


@cache
def study_digest(name: str) -> str:
    """Of the code that a study's numbers come from."""
    return code_digest(partial(measures, name))


def measures(name: str, source: Path) -> bool:
    """Whether the numbers of study `name` may depend on a source file.

    What shows numbers is left out, and what only another paper's study runs: its experiment and its policies.
    """
    layer = source.parts[0]
    if layer == "studies":
        room = source.relative_to("studies").as_posix()
        return room in SHARED or (room.startswith(f"papers/{name}/") and source.stem != "claims")
    if layer == "policies":
        return not any(source.stem.startswith(other) for other in NAMES if other != name)
    return layer in LAYERS


def scale_json(scale: Any) -> Any:
    return json.loads(json.dumps(asdict(scale)))


def as_stored(numbers: Any) -> Any:
    """As they come back from a file, so that what was measured now and what was stored look the same."""
    return load_numbers(dump_numbers(numbers))
