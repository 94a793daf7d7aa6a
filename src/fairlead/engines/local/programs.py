"""Modules of ours as programs of their own, which read neither the environment nor site packages of others."""

from __future__ import annotations

import sys
from pathlib import Path

import fairlead

_SOURCE = str(Path(fairlead.__file__).parents[1])


def program(module: str, *words: str) -> list[str]:
    """The command line that calls `main` of a module with these words; its result is the exit code."""
    code = f"import sys; sys.path.insert(0, sys.argv[1]); from {module} import main; sys.exit(main(*sys.argv[2:]))"
    return [sys.executable, "-I", "-S", "-c", code, _SOURCE, *words]
