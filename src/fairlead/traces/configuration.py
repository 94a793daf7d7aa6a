"""The user's own configuration: `$FAIRLEAD_CONFIG`, else `~/.config/fairlead/config.yaml`. The file is optional.

aliases:
GRID-V100D-16Q: v100      # a spelling of a GPU name -> its type
"""

from __future__ import annotations

import os
from pathlib import Path

from fairlead.model.errors import InputError
from fairlead.traces.files import read_text
from fairlead.traces.marked_yaml import parse_yaml

VARIABLE = "FAIRLEAD_CONFIG"


def read_aliases() -> dict[str, str]:
    """GPU types by spelling; empty if there is no configuration."""
    named = os.environ.get(VARIABLE)
    path = Path(named) if named else Path.home() / ".config" / "fairlead" / "config.yaml"
    if not named and not path.is_file():
        return {}
    if not path.is_file():
        raise InputError(
            f"no such file, but {VARIABLE} names it; unset the variable or create the file", path=str(path)
        )
    fields = parse_yaml(read_text(path), str(path), "configuration").mapping(("aliases",))
    if "aliases" not in fields:
        return {}
    return {spelling: value.text() for spelling, value in fields["aliases"].mapping().items()}
