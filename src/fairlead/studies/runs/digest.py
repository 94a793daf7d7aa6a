"""The digest of the code that computes numbers, so that results of other code are not used as results of this code."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import fairlead

LIBRARIES = ("numpy", "highspy", "numba")  # whose version can change a result


def every_source(source: Path) -> bool:
    return True


@cache
def code_digest(counts: Callable[[Path], bool] = every_source) -> str:
    """The digest of the libraries and of our sources; `counts` excludes sources on which the results do not depend.

    `counts` receives paths relative to the package, such as `rounds/decide.py`.
    """
    digest = hashlib.sha256("".join(f"{library} {_version(library)}\n" for library in LIBRARIES).encode())
    root = Path(fairlead.__file__).parent
    for path in sorted((*root.rglob("*.py"), *root.rglob("*.[ch]"))):
        source = path.relative_to(root)
        if counts(source):
            digest.update(f"{source}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def _version(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return "none"
