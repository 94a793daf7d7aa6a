"""A training script that imports the worker side pays for nothing else."""

from __future__ import annotations

import subprocess
import sys

import pytest

COUNT = """
import sys
before = set(sys.modules)
import fairlead.lease
new = {name.partition(".")[0] for name in set(sys.modules) - before}
print("\\n".join(sorted(new - set(sys.stdlib_module_names) - {"fairlead"})))
print(sum(name.startswith("fairlead") for name in sys.modules))
"""


@pytest.mark.parametrize("flags", [[], ["-W", "error"]])
def test_the_worker_side_needs_nothing_but_the_standard_library(flags: list[str]) -> None:
    done = subprocess.run([sys.executable, *flags, "-c", COUNT], capture_output=True, text=True, check=True)

    *foreign, ours = done.stdout.split()

    assert foreign == []
    assert int(ours) <= 6  # fairlead, model, handshake, lease and its two modules
