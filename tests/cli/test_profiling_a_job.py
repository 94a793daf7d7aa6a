"""`fairlead profile`: a real job, a few steps on each type, a file that the simulator reads."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fairlead.traces.profiles import read_profile


def profile(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fairlead.cli.main", "profile", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.slow
def test_speeds_are_measured_and_written_down(tmp_path: Path) -> None:
    src = Path(__file__).parents[2] / "src"
    run = f"exec {sys.executable} -m fairlead.lease.example --steps 100000"
    job = {"name": "classifier", "run": run, "env": {"PYTHONPATH": str(src)}, "grace": 5}
    (tmp_path / "job.json").write_text(json.dumps(job))
    out = tmp_path / "speeds.txt"

    done = profile(
        str(tmp_path / "job.json"), "--cluster", "v100:1,k80:1", "--out", str(out), "-o", "json", "--emulate"
    )

    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    speed = {row["gpu"]: row["steps_per_s"] for row in found["speeds"]}
    assert found["note"].startswith("EMULATED")
    assert 0 < speed["k80"] < speed["v100"]
    assert {row.gpu for row in read_profile(out).speeds} == {"v100", "k80"}


def test_a_job_that_reports_nothing_cannot_be_measured(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("name: silent\nrun: 'true'\n")

    done = profile(str(tmp_path / "job.yaml"), "--cluster", "v100:1", "--emulate")

    assert done.returncode == 1
    assert "fairlead.lease.report" in done.stdout
    assert "nothing could be measured" in done.stderr
