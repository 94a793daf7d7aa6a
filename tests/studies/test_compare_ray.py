"""The same sweep on a Ray cluster gives the same numbers; without Ray there is a clear message."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ray_cluster import missing, shared_cluster

ARGS = ["compare", "--cluster", "v100:4,k80:4", "--generate", "durations=gavel,load=1.2,tenants=2", "--jobs", "12"]
ARGS += ["--policies", "fifo,las", "--seeds", "0,1", "-o", "json"]


def compared(*more: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "fairlead.cli.main", *ARGS, *more],
        capture_output=True,
        text=True,
        env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0"},
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout[done.stdout.index("{") :])
    return [(run["policy"], run["seed"], run["summary"]) for run in answer["runs"]], answer["failures"]


@pytest.mark.slow
@pytest.mark.skipif(missing() is not None, reason=missing() or "")
def test_ray_gives_the_same_numbers(tmp_path: Path) -> None:
    there = ("--executor", "ray", "--ray-address", shared_cluster().address)
    assert compared(*there, "--state", str(tmp_path / "ray")) == compared("--state", str(tmp_path / "here"))


@pytest.mark.skipif(missing() is None, reason="Ray is installed here, so there is nothing to complain about")
def test_without_ray_the_command_says_what_to_install(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fairlead.cli.main", *ARGS, "--executor", "ray", "--state", str(tmp_path)],
        capture_output=True,
        text=True,
    )

    assert done.returncode == 2
    assert "pip install 'fairlead[ray]'" in done.stderr
