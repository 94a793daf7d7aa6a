"""Policies by reference on the command line: a registered name, a file of the user's own, or an entry point.

Each may have parameters, as in `fft:kappa=2` or `mine.py:policy:kappa=2,rho=1`. Only the command line and the library
use this module: loading a file runs it, so no network client may choose one.
"""

from __future__ import annotations

import hashlib
import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from fairlead.model.errors import InputError
from fairlead.model.words import did_you_mean
from fairlead.policies import REGISTRY, find_policy
from fairlead.policies.parameter_text import parse_parameters
from fairlead.policies.policy import AnyPolicy, RoundPolicy, TaskPolicy
from fairlead.studies.policy_lab.beside import Beside, brought_in, importable_from, importable_sources

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "fairlead.policies"  # of entry points


@dataclass(frozen=True, slots=True)
class PolicyRef:
    """A policy in a form that can be sent to another process, or to another machine that lacks the file."""

    text: str  # as the user wrote it
    source: str = ""  # of the file, if it is one
    beside: tuple[Beside, ...] = ()  # the user's other modules that the file imports
    value: AnyPolicy | None = None  # a policy of this process, which may not be sent to another

    def load(self) -> AnyPolicy:
        """The policy; one with parameters has them in its name, which differs from those of others in a comparison."""
        policy, (_, parameters) = self.load_unnamed(), split_parameters(self.text)
        if self.value is not None or not parameters:
            return policy
        return replace(policy, name=f"{policy.name}:{parameters}")

    def load_unnamed(self) -> AnyPolicy:
        """The policy under its own name, by which journals refer to it."""
        if self.value is not None:
            return self.value
        name, parameters = split_parameters(self.text)
        known = {} if name in REGISTRY else _installed()
        if self.source:
            policy = _from_source(name, self.source, self.beside)
        else:
            policy = known[name].load_checked() if name in known else find_policy(name)
        pairs = re.split(r",(?=\w+=)", parameters) if parameters else []
        return policy.with_parameters(parse_parameters(pairs, policy))


def refer(text: str) -> PolicyRef:
    """The reference of a policy. The file and its imports are read now, so that later changes do not affect the run."""
    name, _ = split_parameters(text)
    path, _ = _split(name)
    if path is None:
        if name not in REGISTRY and name not in _installed():
            hint = did_you_mean(name, [*REGISTRY, *_installed()])
            raise InputError(
                f'policy "{name}" is not known (`fairlead policies` lists all, your own is FILE.py:NAME); {hint}'
            )
        return PolicyRef(text)
    try:
        source = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read: {getattr(error, 'strerror', error)}", path=str(path)) from None
    with _saying_where(path), importable_from(path.parent) as new:
        _run(source, name)
        return PolicyRef(text, source, brought_in(new()))


def load_policy(text: str) -> AnyPolicy:
    """The policy with its parameters, under its own name."""
    return refer(text).load_unnamed()


def split_parameters(text: str) -> tuple[str, str]:
    """(`mine.py:policy`, `kappa=2,rho=1`) of `mine.py:policy:kappa=2,rho=1`."""
    match = re.fullmatch(r"(.*?)(?::(\w+=.*))?", text, re.DOTALL)
    assert match is not None, "every text matches"
    return match[1], match[2] or ""


def absolute_reference(text: str) -> str:
    """The same reference for a process that may run in another directory."""
    path, name = _split(text)
    return text if path is None else f"{path.absolute()}:{name}" if name else str(path.absolute())


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
    from importlib.metadata import entry_points  # takes 0.01 s, and most policies are ours

    return {point.name: _Installed(point) for point in entry_points(group=GROUP) if point.name not in REGISTRY}


def _split(text: str) -> tuple[Path | None, str]:
    """(file, name in it); no file if the text is a name."""
    path, _, name = text.rpartition(":") if not text.endswith(".py") else (text, "", "")
    return (Path(path), name) if path.endswith(".py") else (None, text)


@cache
def _from_source(text: str, source: str, beside: tuple[Beside, ...]) -> AnyPolicy:
    path, name = _split(text)
    with _saying_where(path), importable_sources(beside):
        module = _run(source, text)
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
