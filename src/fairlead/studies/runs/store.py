"""Finished results on disk: nothing is computed twice, and an interruption loses nothing."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from fairlead.model.errors import InputError


@dataclass(frozen=True, slots=True)
class Store:
    """A folder of JSON files. The study that wrote a file knows its content and whether it can be used."""

    folder: Path
    option: str  # the command-line option that chooses another folder
    fresh: bool = False  # `find` returns nothing, so that everything is computed again

    def path(self, name: str) -> Path:
        return self.folder / f"{name}.json"

    def find(self, name: str) -> str | None:
        """The text of the file; None if there is none."""
        if self.fresh:
            return None
        try:
            return self.path(name).read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._refusal("read", error) from None

    def keep(self, name: str, text: str) -> None:
        """Write a file atomically: it appears whole or not at all, even if this process is killed."""
        path = self.path(name)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, writing = tempfile.mkstemp(dir=path.parent, prefix=".writing-")
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as file:
                    file.write(text)
                    file.flush()
                    os.fsync(file.fileno())
                os.chmod(writing, 0o644)
                os.replace(writing, path)
            except BaseException:
                Path(writing).unlink(missing_ok=True)
                raise
        except OSError as error:
            raise self._refusal("keep", error) from None

    def _refusal(self, verb: str, error: OSError) -> InputError:
        reason = f"cannot {verb} results here: {error.strerror}; choose a folder with {self.option}"
        return InputError(reason, path=str(self.folder))


def default_folder(study: str) -> Path:
    """Where results are kept unless the command line names a folder."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fairlead" / study
