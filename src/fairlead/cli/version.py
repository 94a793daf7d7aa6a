from __future__ import annotations

from fairlead import __version__
from fairlead.cli.output import Format, Output, print_json


def version(output: Output = Format.table) -> None:
    """Print the version."""
    if output is Format.json:
        print_json({"version": __version__})
    else:
        print(f"fairlead {__version__}")
