"""Finished runs on disk, each under the key of its content: what was found once is not computed again."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairlead.model.errors import InputError
from fairlead.studies.compare.cases import KIND, Case


@dataclass(frozen=True, slots=True)
class Store:
    folder: Path

    def find(self, case: Case) -> dict[str, Any] | None:
        """None where there is none, or where the file is not one that was written whole."""
        try:
            record: dict[str, Any] = json.loads(self._path(case).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        good = isinstance(record, dict) and record.get("fairlead") == KIND and record.get("key") == case.key
        return {**record, "load": case.load, "seed": case.seed} if good else None

    def keep(self, case: Case, record: dict[str, Any]) -> None:
        """The file appears whole or not at all, even if we are killed in the middle."""
        path = self._path(case)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=".writing-")
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as file:
                    json.dump(record, file, allow_nan=False)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(name, path)
            except BaseException:
                Path(name).unlink(missing_ok=True)
                raise
        except OSError as error:
            raise InputError(
                f"cannot keep finished runs here: {error.strerror}; choose a folder with --state", path=str(self.folder)
            ) from None

    def _path(self, case: Case) -> Path:
        return self.folder / case.key[:2] / f"{case.key}.json"


@dataclass(frozen=True, slots=True)
class NothingKept:
    """Keeps what is found and finds nothing: all runs are done again."""

    store: Store

    def find(self, case: Case) -> dict[str, Any] | None:
        return None

    def keep(self, case: Case, record: dict[str, Any]) -> None:
        self.store.keep(case, record)


def default_folder() -> Path:
    """Where finished runs are kept unless --state says otherwise."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "fairlead" / "compare"
