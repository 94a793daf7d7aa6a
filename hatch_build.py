"""Compiles src/fairlead/numerics/c when the package is built or installed; without a compiler it is left out."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCES = "src/fairlead/numerics/c"
COMPILED = "src/fairlead/numerics/_kernel.abi3.so"  # for Python 3.11 and newer, by the stable interface
# Without contraction a * b + c is rounded twice, as in Python, and journals are the same with and without this module.
FLAGS = ("-O2", "-fPIC", "-shared", "-ffp-contract=off", "-DNDEBUG")
SWITCH = "FAIRLEAD_COMPILE"  # 0: leave it out; 1: fail where it cannot be compiled


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """What hatchling calls before it writes a wheel, or the links of an editable installation."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root, wanted = Path(self.root), os.environ.get(SWITCH, "")
        problem = "it is switched off" if wanted == "0" else _compile(root / SOURCES, root / COMPILED)
        if problem is None:
            build_data["pure_python"] = False
            build_data["tag"] = f"cp311-abi3-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
            build_data["artifacts"].append(COMPILED)
            return
        (root / COMPILED).unlink(missing_ok=True)
        if wanted == "1":
            raise RuntimeError(f"{SOURCES} could not be compiled: {problem}")
        self.app.display_warning(f"Fairlead is installed without compiled code, so rounds take longer: {problem}")


def _compile(sources: Path, target: Path) -> str | None:
    """Compile with the C compiler of this system. Returns None, or why that is not possible."""
    if sys.platform == "win32":
        return "this is not done on Windows"
    compiler = shlex.split(os.environ.get("CC", "cc"))
    include = sysconfig.get_path("include")
    written = target.with_suffix(f".{os.getpid()}.so")  # processes that use the old one keep it
    linking = ("-undefined", "dynamic_lookup") if sys.platform == "darwin" else ()
    files = [str(file) for file in sorted(sources.glob("*.c"))]
    command = [*compiler, *FLAGS, *linking, f"-I{include}", *files, "-o", str(written), "-lm"]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        return f"{compiler[0]}: {error.strerror}"
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "error" in line] or ["the compiler failed"]
        return lines[0]
    written.replace(target)
    return None
