"""Fixtures for shared data, which is stored next to the checkout; tests that need it are skipped if it is missing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fairlead.rates.profile import Profile
from fairlead.traces.profiles import load_default_profile

_SHARED = Path(__file__).parents[3] / "shared" / "data"

Shared = Callable[[str], Path]
Write = Callable[[str], Path]


@pytest.fixture(scope="session")
def shared() -> Shared:
    """The path of a file under ../shared/data."""

    def find(name: str) -> Path:
        path = _SHARED / name
        if not path.exists():
            pytest.skip(f"needs ../shared/data/{name}")
        return path

    return find


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a text to a file and returns its path."""

    def put(text: str) -> Path:
        path = tmp_path / "file.txt"
        path.write_text(text, encoding="utf-8")
        return path

    return put


@pytest.fixture(scope="session")
def default_profile() -> Profile:
    return load_default_profile()
