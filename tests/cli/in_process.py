"""The command line in this process."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fairlead.cli.main import main


class Fairlead:
    """The command in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys

    def __call__(self, *words: object) -> tuple[int, str, str]:
        """Exit code, stdout, stderr."""
        self._capsys.readouterr()
        self._monkeypatch.setattr("sys.argv", ["fairlead", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), *self._capsys.readouterr()

    def summary(self, *words: object) -> dict[str, Any]:
        code, out, err = self("simulate", *words, "-o", "json")
        assert code == 0, err
        summary: dict[str, Any] = json.loads(out)
        return summary
