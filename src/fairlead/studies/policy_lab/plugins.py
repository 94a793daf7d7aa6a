"""Policies by reference on the command line: a registered name, a file of the user's own, or an entry point.

Only the command line uses this module: loading a file runs it, so no network client may choose one.
"""

from __future__ import annotations

import hashlib
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType

from fairlead.model.errors import InputError
from fairlead.model.words import did_you_mean
from fairlead.policies import REGISTRY, find_policy
from fairlead.policies.policy import AnyPolicy, RoundPolicy, TaskPolicy
from fairlead.studies.policy_lab.beside import Beside, brought_in, importable_from, importable_sources

GROUP = "fairlead.policies"  # of entry points


@dataclass(frozen=True, slots=True)
class PolicyRef:
    """A policy in a form that can be sent to another process, or to another machine that lacks the file."""

    text: str  # as the user wrote it
    source: str = ""  # of the file, if it is one
    beside: tuple[Beside, ...] = ()  # the user's other modules that the file imports

    def load(self) -> AnyPolicy:
        if self.source:
            return _from_source(self)
        known = _installed()
        return known[self.text].load_checked() if self.text in known else find_policy(self.text)


def refer(text: str) -> PolicyRef:
    """The reference of a policy. The file and its imports are read now, so that later changes do not affect the run."""
    path, _ = _split(text)
    if path is None:
        if text not in REGISTRY and text not in _installed():
            hint = did_you_mean(text, [*REGISTRY, *_installed()])
            raise InputError(
                f'policy "{text}" is not known (`fairlead policies` lists all, your own is FILE.py:NAME); {hint}'
            )
        return PolicyRef(text)
    try:
        source = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read: {getattr(error, 'strerror', error)}", path=str(path)) from None
    with _saying_where(path), importable_from(path.parent) as new:
        _run(source, text)
        return PolicyRef(text, source, brought_in(new()))


def load_policy(text: str) -> AnyPolicy:
    return refer(text).load()


def installed_policies() -> dict[str, AnyPolicy]:
    """Policies of other packages, by entry point."""
    return {name: installed.load_checked() for name, installed in _installed().items()}


@dataclass(frozen=True, slots=True)
class _Installed:
    point: EntryPoint

    def load_checked(self) -> AnyPolicy:
        try:
            loaded = self.point.load()
        except Exception as error:  # anything can go wrong in another package
            raise InputError(
                f'entry point "{self.point.name}" ({self.point.value}) cannot be loaded: {_described(error)}'
            ) from error
        return _checked(loaded, f'entry point "{self.point.name}" ({self.point.value})')


@cache
def _installed() -> dict[str, _Installed]:
    return {point.name: _Installed(point) for point in entry_points(group=GROUP) if point.name not in REGISTRY}


def _split(text: str) -> tuple[Path | None, str]:
    """(file, name in it); no file if the text is a name."""
    path, _, name = text.rpartition(":") if not text.endswith(".py") else (text, "", "")
    return (Path(path), name) if path.endswith(".py") else (None, text)


@cache
def _from_source(ref: PolicyRef) -> AnyPolicy:
    path, name = _split(ref.text)
    with _saying_where(path), importable_sources(ref.beside):
        module = _run(ref.source, ref.text)
    policies = {key: value for key, value in vars(module).items() if isinstance(value, (RoundPolicy, TaskPolicy))}
    if not name and len(policies) == 1:
        return next(iter(policies.values()))
    if name not in vars(module):
        have = ", ".join(policies) or "none"
        raise InputError(f'has no "{name}"; wanted FILE.py:NAME of a policy (policies in it: {have})', path=str(path))
    return _checked(vars(module)[name], f'{path}: "{name}"')


def _run(source: str, text: str) -> ModuleType:
    path, _ = _split(text)
    module = ModuleType(f"fairlead_own_policy_{hashlib.sha256((text + source).encode()).hexdigest()[:12]}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # dataclasses look up their module
    exec(compile(source, str(path), "exec"), module.__dict__)
    return module


@contextmanager
def _saying_where(path: Path | None) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        line = next(
            (f.lineno for f in reversed(traceback.extract_tb(error.__traceback__)) if f.filename == str(path)), None
        )
        raise InputError(f"is not a policy: {_described(error)}", path=str(path), line=line) from error


def _checked(value: object, where: str) -> AnyPolicy:
    if isinstance(value, (RoundPolicy, TaskPolicy)):
        return value
    raise InputError(
        f"{where} is a {type(value).__name__}; wanted a RoundPolicy (or a TaskPolicy) of fairlead.policies.policy, such as "
        'RoundPolicy("mine", "What it does.", "made up", Level.GRANTS, allocate)'
    )


def _described(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
