"""The command `fairlead`: it starts also where only `fairlead.lease` is installed, and says there what is missing."""

from __future__ import annotations

import sys

from fairlead import __version__
from fairlead.cli.commands import overview


def main() -> None:
    """Run the command line; its overview and its version need nothing but the standard library."""
    if sys.argv[1:] in (["-h"], ["--help"]):
        print(overview())
        return
    if sys.argv[1:] == ["--version"]:
        print(f"fairlead {__version__}")
        return
    try:
        from fairlead.cli.main import main as run

        run()
    except ModuleNotFoundError as missing:
        from fairlead.model.extras import how_to_install

        advice = how_to_install(missing)
        if advice is None:
            raise
        sys.stderr.write(f"fairlead: {advice}\n")
        sys.exit(1)
