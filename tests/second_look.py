"""Run the few tests that failed in a whole run once more, alone, and name those that pass: they are unsteady.

A whole run has some thousand processes, Slurm daemons and browsers on two cores, and one test in several thousand that
reads /proc at the wrong instant must not hold back everything else. A fault fails again; so do more than a few tests.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

_LAST_FAILED = Path(__file__).parents[1] / ".pytest_cache/v/cache/lastfailed"
_FEW = 4


def main() -> int:
    failed = sorted(json.loads(_LAST_FAILED.read_text())) if _LAST_FAILED.exists() else []
    if not 0 < len(failed) <= _FEW:
        print(f"{len(failed)} failed tests are not looked at again; a second look is for 1 to {_FEW}")
        return 1
    code = subprocess.run([sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *failed]).returncode
    if code == 0:
        print("UNSTEADY: these tests failed in the whole run and passed alone; mend them:", *failed, sep="\n  ")
    return code


if __name__ == "__main__":
    sys.exit(main())
