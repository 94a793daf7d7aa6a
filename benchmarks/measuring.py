"""What a command line of ours costs: CPU seconds and memory of its whole process."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from compileall import compile_dir
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Spent:
    cpu_s: float  # user and system, start-up included
    memory_mib: float  # at its peak
    output: str


def spend(arguments: Sequence[str]) -> Spent:
    """`fairlead ARGUMENTS...` from the root of the checkout, with its modules compiled, as they are once it is installed."""
    compile_dir(str(ROOT / "src"), quiet=1)
    with tempfile.TemporaryFile("w+", encoding="utf-8") as output:
        process = subprocess.Popen([sys.executable, "-m", "fairlead", *arguments], cwd=ROOT, stdout=output)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, process.args)
        output.seek(0)
        return Spent(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, output.read())
