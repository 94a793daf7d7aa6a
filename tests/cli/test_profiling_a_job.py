"""`fairlead profile`: a real job, a few steps on each type, a file that the simulator reads."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fairlead.lease.example import STEP_S
from fairlead.rates.profile import Layer
from fairlead.traces.profiles import read_profile
from waiting import PATIENCE_S


def profile(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fairlead.cli.main", "profile", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


@pytest.mark.slow
def test_speeds_are_measured_and_written(tmp_path: Path) -> None:
    src = Path(__file__).parents[2] / "src"
    run = f"exec {sys.executable} -m fairlead.lease.example --steps 100000"
    job = {"name": "classifier", "run": run, "env": {"PYTHONPATH": str(src)}, "grace": 5}
    (tmp_path / "job.json").write_text(json.dumps(job))
    out = tmp_path / "speeds.txt"

    done = profile(
        str(tmp_path / "job.json"), "--cluster", "v100:1,k80:1", "--out", str(out), "-o", "json", "--emulate"
    )

    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    speed = {row["gpu"]: row["steps_per_s"] for row in answer["speeds"]}
    assert answer["note"].startswith("EMULATED")
    # A step takes its time on the fastest type, and more than twice as long on the other; longer if the machine is busy.
    assert 0 < speed["v100"] <= 1 / STEP_S
    assert 0 < speed["k80"] <= 0.5 / STEP_S
    assert {row.gpu for row in read_profile(out).speeds} == {"v100", "k80"}


SCRIPT = """\
import time
from fairlead import lease
lease.restore()
for step in range(100000):
    time.sleep(0.01)
    lease.report(step + 1, 16 * (step + 1), parts={"forward_s": 0.002, "backward_s": 0.006, "update_s": 0.002, "params_gib": 0.1})
    if lease.should_stop():
        break
"""
LINKS = """\
fairlead: profile/1
models: {}
links:
  v100: {link_gib_per_s: 20, net_gib_per_s: 1}
---
model,gpu,gpus,nodes,batch,rate,unit,source
other,v100,1,1,1,2,steps/s,made up
other,k80,1,1,1,1,steps/s,made up
"""


@pytest.mark.slow
def test_parts_that_a_job_reports_are_written_where_links_are_known(tmp_path: Path) -> None:
    """The parts of a V100 also apply to its 32 GiB card; the K80 has none because its links are unknown."""
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "links.txt").write_text(LINKS)
    src = Path(__file__).parents[2] / "src"
    run = f"exec {sys.executable} {tmp_path / 'train.py'}"
    (tmp_path / "job.json").write_text(json.dumps({"name": "parts", "run": run, "env": {"PYTHONPATH": str(src)}}))
    out = tmp_path / "speeds.txt"
    words = ("--cluster", "v100-32:1,k80:1", "--throughputs", str(tmp_path / "links.txt"), "--emulate", "-o", "json")

    done = profile(str(tmp_path / "job.json"), *words, "--out", str(out))

    assert done.returncode == 0, done.stderr
    assert "no links of k80 are known" in json.loads(done.stdout)["failures"]["k80, parts"]
    written = read_profile(out)
    (parts,) = written.parts.values()
    assert (parts.batch, parts.backward_s, parts.params_gib) == (16.0, 0.006, 0.1)
    (model,) = written.models
    assert written.known(model, "v100-32", 1).layer is Layer.ROW
    assert written.known(model, "v100-32", 4).layer is Layer.FORMULA


def test_a_job_that_reports_nothing_cannot_be_measured(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("name: silent\nrun: 'true'\n")

    done = profile(str(tmp_path / "job.yaml"), "--cluster", "v100:1", "--emulate")

    assert done.returncode == 1
    assert "fairlead.lease.report" in done.stdout
    assert "nothing could be measured" in done.stderr
