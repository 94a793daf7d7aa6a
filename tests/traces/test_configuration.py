from __future__ import annotations

from pathlib import Path

import pytest

from fairlead.model.errors import InputError
from fairlead.traces.configuration import VARIABLE, read_aliases


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "config.yaml"))
    return tmp_path / "config.yaml"


def test_aliases_come_from_the_configuration(config: Path) -> None:
    config.write_text("aliases:\n  GRID-V100D-16Q: v100\n")
    assert read_aliases() == {"GRID-V100D-16Q": "v100"}


def test_without_a_configuration_there_are_no_aliases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert read_aliases() == {}


def test_a_configuration_that_was_named_must_be_there(config: Path) -> None:
    with pytest.raises(InputError, match=rf"config\.yaml: no such file, but {VARIABLE} names it"):
        read_aliases()


def test_an_unknown_key_is_refused_with_its_line(config: Path) -> None:
    config.write_text("# mine\nalias: {a: b}\n")
    with pytest.raises(InputError, match=r'line 2: .*"alias"'):
        read_aliases()
