"""The user's own configuration: `$FAIRLEAD_CONFIG`, else `~/.config/fairlead/config.yaml`. The file is optional.

aliases:
  GRID-V100D-16Q: v100      # a spelling of a GPU name -> its type
defaults:
  simulate: {round: 5m}     # options of a command, as if they had been typed
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from fairlead.model.errors import InputError

if TYPE_CHECKING:
    from fairlead.traces.marked_yaml import Marked

VARIABLE = "FAIRLEAD_CONFIG"
ALIASES, DEFAULTS = "aliases", "defaults"


def configuration_path() -> Path | None:
    """The file; None if there is none. One that the variable names must be there."""
    named = os.environ.get(VARIABLE)
    path = Path(named) if named else Path.home() / ".config" / "fairlead" / "config.yaml"
    if path.is_file():
        return path
    if named:
        raise InputError(
            f"no such file, but {VARIABLE} names it; unset the variable or create the file", path=str(path)
        )
    return None


def read_aliases() -> dict[str, str]:
    """GPU types by spelling; empty if there is no configuration."""
    fields = _read()
    return (
        {spelling: value.text() for spelling, value in fields[ALIASES].mapping().items()} if ALIASES in fields else {}
    )


def read_defaults() -> dict[str, Marked]:
    """The options of each command that has some, with their lines."""
    fields = _read()
    return fields[DEFAULTS].mapping() if DEFAULTS in fields else {}


def _read() -> Mapping[str, Marked]:
    path = configuration_path()
    if path is None:
        return {}
    # Every command looks for the file, and only those that find one need what reads it.
    from fairlead.traces.files import read_text
    from fairlead.traces.marked_yaml import parse_yaml

    return parse_yaml(read_text(path), str(path), "configuration").mapping((ALIASES, DEFAULTS))
