"""The command `fairlead`: it starts also where only `fairlead.lease` is installed, and says there what is missing."""

from __future__ import annotations

import gc
import os
import sys

from fairlead import __version__
from fairlead.cli.commands import overview

# A command imports 600 modules, which stay. By default Python would look for garbage among them a hundred times.
OBJECTS_PER_COLLECTION = (200_000, 20, 100)
PURE = "FAIRLEAD_PURE"  # if this variable is set, compiled code is not used


def main() -> None:
    """Run the command line, and end quietly if whatever reads the output has had enough, such as `head`."""
    gc.set_threshold(*OBJECTS_PER_COLLECTION)
    if os.environ.get(PURE):
        sys.modules["fairlead.numerics._kernel"] = None  # type: ignore[assignment]  # as if it were not installed
    try:
        try:
            _main()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # Python writes what is left when it exits, which would fail again and say so.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    finally:
        gc.freeze()  # nothing needs to be collected at the exit


def _main() -> None:
    """The overview and the version need nothing but the standard library."""
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
