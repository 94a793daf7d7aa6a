"""Prints what each extra of the wheel takes: libraries, megabytes, and CPU seconds until its help is printed."""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from test_installation import ROOT, install

EXTRAS = ((), ("sim",), ("fast",), ("service",), ("report",), ("all",))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder, "dist")
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(built)]
        subprocess.run(command, check=True, capture_output=True, cwd=ROOT)
        print(f"{'extra':<9} libraries     MB  CPU s of --help")
        for extras in EXTRAS:
            name = extras[0] if extras else "none"
            made = install(built, Path(folder, name), *extras)
            made.fairlead("--help")  # which compiles what it imports
            before_s = _children_s()
            made.fairlead("--help")
            used_s = _children_s() - before_s
            print(f"{name:<9} {len(made.libraries):>9} {made.megabytes():>6.1f} {used_s:>16.2f}")


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
