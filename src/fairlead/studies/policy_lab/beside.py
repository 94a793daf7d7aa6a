"""The user's own modules that a policy's file imports: found next to it, kept as text, and imported again from that text.

A change in any of them is therefore a change of the policy, and a machine without the files runs what this one read.
"""

from __future__ import annotations

import site
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType

import fairlead

_LIBRARIES = sorted(
    {
        Path(folder).resolve()
        for folder in (
            *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
            *site.getsitepackages(),
            site.getusersitepackages(),
            str(Path(fairlead.__file__).parent),
        )
    }
)


@dataclass(frozen=True, slots=True)
class Beside:
    name: str
    path: str
    source: str


@contextmanager
def importable_from(folder: Path) -> Iterator[Callable[[], list[str]]]:
    """Make the modules of a folder importable unless a library has their name. Yields a function that returns new names.

    Afterwards the user's modules are forgotten, so that the next policy gets its own modules of the same names.
    """
    before = set(sys.modules)
    with _finding(_Folder(folder), at=len(sys.meta_path)):
        try:
            yield lambda: [name for name in sys.modules if name not in before]
        finally:
            _forget([module.name for module in brought_in(name for name in sys.modules if name not in before)])


@contextmanager
def importable_sources(modules: Sequence[Beside]) -> Iterator[None]:
    """Import these modules from their text, regardless of the present content of the files."""
    with _finding(_Texts({module.name: module for module in modules}), at=0):
        try:
            yield
        finally:
            _forget([module.name for module in modules])


def brought_in(names: Iterator[str] | Sequence[str]) -> tuple[Beside, ...]:
    """The user's modules among the imported ones: not of Python, of installed packages or of Fairlead."""
    own = []
    for name in sorted(names):
        path = getattr(sys.modules[name], "__file__", None)
        if path and path.endswith(".py") and not name.startswith("fairlead_own_policy_") and _is_own(Path(path)):
            own.append(Beside(name, path, Path(path).read_text(encoding="utf-8")))
    return tuple(own)


def _is_own(path: Path) -> bool:
    return not any(path.resolve().is_relative_to(folder) for folder in _LIBRARIES)


def _forget(names: Sequence[str]) -> None:
    for name in names:
        sys.modules.pop(name, None)


@contextmanager
def _finding(finder: MetaPathFinder, at: int) -> Iterator[None]:
    sys.meta_path.insert(at, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


@dataclass(frozen=True)
class _Folder(MetaPathFinder):
    folder: Path

    def find_spec(self, name: str, path: object, target: object = None) -> ModuleSpec | None:
        base = self.folder.joinpath(*name.split("."))
        for file in (base / "__init__.py", base.with_name(base.name + ".py")):
            if file.is_file():
                return _spec(Beside(name, str(file), file.read_text(encoding="utf-8")))
        return None


@dataclass(frozen=True)
class _Texts(MetaPathFinder):
    modules: Mapping[str, Beside]

    def find_spec(self, name: str, path: object, target: object = None) -> ModuleSpec | None:
        return _spec(self.modules[name]) if name in self.modules else None


@dataclass(frozen=True)
class _Text(Loader):
    """Runs the text itself, because compiled files are compared with sources by whole seconds only."""

    module: Beside

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self.module.source, self.module.path, "exec"), module.__dict__)


def _spec(module: Beside) -> ModuleSpec | None:
    places = [str(Path(module.path).parent)] if Path(module.path).name == "__init__.py" else None
    return spec_from_file_location(module.name, module.path, loader=_Text(module), submodule_search_locations=places)
