"""Results of the studies on disk: by study and scale, with the code that measured them, written after every part."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import fairlead
from fairlead.model.errors import InputError

KIND = "reproduction/1"
NAMES = ("oef", "hare", "fft", "hops")  # in the order of the page
LAYERS = ("model", "numerics", "rates", "placement", "policies", "rounds", "sim", "traces")
RUNS = ("runs/simulate.py", "runs/summary.py", "fairness/instances.py")  # what experiments use of studies/
LIBRARIES = ("numpy", "highspy", "numba")


@dataclass(frozen=True)
class Found:
    """What one study measured: numbers and CPU seconds by part, in the order in which they were done."""

    name: str
    scale: Any  # the study's own `Scale`
    parts: dict[str, Any] = field(default_factory=dict)
    cpu_s: dict[str, float] = field(default_factory=dict)
    version: str = ""
    code: str = ""

    @property
    def as_json(self) -> dict[str, Any]:
        return {
            "fairlead": KIND,
            "name": self.name,
            "version": self.version,
            "code": self.code,
            "scale": plain(asdict(self.scale)),
            "cpu_s": self.cpu_s,
            "parts": self.parts,
        }

    @property
    def made(self) -> str:
        """A sentence for the page. It tells what measured the numbers, which is not always what writes the page."""
        minutes = sum(self.cpu_s.values()) / 60
        return f"Measured by Fairlead {self.version}, sources {self.code[:12]}, in {minutes:.1f} CPU minutes."

    def with_part(self, part: str, numbers: Any, cpu_s: float) -> Found:
        parts, spent = {**self.parts, part: plain(numbers)}, {**self.cpu_s, part: round(cpu_s, 3)}
        return Found(self.name, self.scale, parts, spent, self.version, self.code)


@dataclass(frozen=True)
class Results:
    """A folder of results. `older` takes those that other code measured, too, and says so; `fresh` takes none."""

    folder: Path
    older: bool = False
    fresh: bool = False

    def find(self, name: str, scale: Any, label: str) -> tuple[Found, str]:
        """What there is, and a remark on what there is and cannot be used. Nothing is an empty `Found`."""
        nothing = new(name, scale)
        path = self._path(name, label)
        if self.fresh or not path.exists():
            return nothing, ""
        try:
            read = json.loads(path.read_text(encoding="utf-8"))
            if read.get("fairlead") != KIND:
                return nothing, f"{path} is of another version of this file ({read.get('fairlead')}, wanted {KIND})"
            if read["scale"] != plain(asdict(scale)):
                return nothing, f"{path} is of another scale ({read['scale']})"
            found = Found(name, scale, read["parts"], read["cpu_s"], read["version"], read["code"])
        except (json.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"does not hold a study's results ({error}); remove it", path=str(path)) from None
        if found.code == nothing.code:
            return found, ""
        told = f"{path} was measured by other code ({found.code[:12]}, this is {nothing.code[:12]})"
        return (found, f"{told} and is used all the same") if self.older else (nothing, told)

    def keep(self, found: Found, label: str) -> None:
        """The file appears whole or not at all, even if we are killed in the middle."""
        path = self._path(found.name, label)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self.folder, prefix=".writing-")
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as file:
                    file.write(_text(found.as_json))
                os.chmod(name, 0o644)
                os.replace(name, path)
            except BaseException:
                Path(name).unlink(missing_ok=True)
                raise
        except OSError as error:
            raise InputError(f"cannot keep results: {error.strerror}", path=str(self.folder)) from None

    def _path(self, name: str, label: str) -> Path:
        return self.folder / f"{name}-{label}.json"


def _text(found: Mapping[str, Any]) -> str:
    """JSON with a line for every part, so that a change shows where it is."""
    head = json.dumps({key: value for key, value in found.items() if key != "parts"})
    parts = [f"{json.dumps(part)}: {json.dumps(numbers, allow_nan=False)}" for part, numbers in found["parts"].items()]
    return f'{head[:-1]}, "parts": {{\n' + ",\n".join(parts) + "\n}}\n"


def new(name: str, scale: Any) -> Found:
    return Found(name, scale, version=fairlead.__version__, code=code_digest(name))


def default_folder() -> Path:
    """Where results are kept unless --results says otherwise."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fairlead" / "reproduce"


@cache
def code_digest(name: str) -> str:
    """Of the libraries and of our sources that a study's numbers come from.

    What shows numbers is left out, and what only another paper's study runs: its experiment and its policies.
    """
    digest = hashlib.sha256("".join(f"{library} {version(library)}\n" for library in LIBRARIES).encode())
    root = Path(fairlead.__file__).parent
    for path in sorted(root.rglob("*.py")):
        if measures(name, path.relative_to(root)):
            digest.update(f"{path.relative_to(root)}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def measures(name: str, source: Path) -> bool:
    """Whether the numbers of study `name` may depend on a source file."""
    layer = source.parts[0]
    if layer == "studies":
        room = source.relative_to("studies").as_posix()
        return room in RUNS or (room.startswith(f"papers/{name}/") and source.stem != "claims")
    if layer == "policies":
        return not any(source.stem.startswith(other) for other in NAMES if other != name)
    return layer in LAYERS


def plain(value: Any) -> Any:
    """As it comes back from a file, so that what was measured now and what was kept look the same."""
    return json.loads(json.dumps(value, allow_nan=False)) if isinstance(value, Mapping | list | tuple) else value
