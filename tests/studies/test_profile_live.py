"""A job is measured on every type by running it, and leaves nothing behind."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from building import profile
from fairlead.engines.requests import Command
from fairlead.model.cluster import parse_short_form
from fairlead.model.jobs import JobSpec
from fairlead.studies.speeds.measuring import profile_job
from fairlead.traces.profiles import read_profile, write_profile
from waiting import PATIENCE_S

SOURCE = Path(__file__).resolve().parents[2] / "src"
SCRIPT = """
import time
from fairlead import lease
for step in range(1, 10_000):
    time.sleep(0.02)
    lease.report(step, samples=16 * step)
    if lease.should_stop():
        lease.stop()
"""
KNOWN = profile({"m": {"v100": 4.0, "k80": 1.0}})
SPEC = JobSpec("a", "t", "mine", 0.0, 1, None)


def command(folder: Path, run: str) -> Command:
    (folder / "train.py").write_text(SCRIPT)
    env = {"PYTHONPATH": str(SOURCE), "PYTHONDONTWRITEBYTECODE": "1"}
    return Command(run.format(python=sys.executable), workdir=str(folder), env=env, grace_s=2.0, checkpoint_dir="mine")


def test_every_type_gets_a_row_at_its_emulated_pace(tmp_path: Path) -> None:
    """The script's own sleep allows 50 steps per second, a k80 a quarter of that; a busy machine makes fewer."""
    cluster = parse_short_form("v100:1,k80:1")

    measured = profile_job(SPEC, command(tmp_path, "exec {python} train.py"), cluster, KNOWN, steps=20, emulate=True)

    rows = {row.gpu: row for row in measured.rows}
    assert set(rows) == {"v100", "k80"}
    assert measured.failures == {}
    assert 0 < rows["v100"].steps_per_s <= 50
    assert 0 < rows["k80"].steps_per_s <= 50 / 4
    assert rows["v100"].batch == 16.0
    assert "EMULATED" in rows["v100"].source
    assert measured.note.startswith("EMULATED")
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]  # its checkpoints are left alone

    write_profile(measured.profile("mine"), tmp_path / "mine.txt")
    assert read_profile(tmp_path / "mine.txt").speeds == measured.rows


@pytest.mark.parametrize(
    ("run", "limit_s", "why"),
    [
        ("exit 3", PATIENCE_S, "exit code 3, before 3 steps were reported"),
        ("sleep infinity", 1.0, "1 s passed, before 3 steps were reported"),
    ],
)
def test_a_job_that_reports_nothing_has_no_row_and_a_reason(tmp_path: Path, run: str, limit_s: float, why: str) -> None:
    cluster = parse_short_form("v100:1")
    measured = profile_job(SPEC, command(tmp_path, run), cluster, KNOWN, limit_s=limit_s, emulate=True)

    assert measured.rows == ()
    assert why in measured.failures["v100"]


def test_a_type_that_is_too_small_is_not_tried(tmp_path: Path) -> None:
    wide = JobSpec("a", "t", "mine", 0.0, 4, None)
    measured = profile_job(wide, command(tmp_path, "exit 1"), parse_short_form("v100:2"), KNOWN, emulate=True)

    assert measured.failures == {"v100": "the cluster has 2 GPUs of this type, the job needs 4"}
