"""The file in which the scheduler's process leaves its last look at Slurm."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from fake_slurm import FakeSlurm

from fairlead.engines.slurm.shared_looks import NAME, LookReader, SharedLook, write_look
from fairlead.engines.slurm.steer_runner import SlurmSteerRunner


@pytest.fixture
def slurm() -> FakeSlurm:
    made = FakeSlurm({"n1": ("v100", 4), "n2": ("k80", 2)})
    made.submit_held("7", "8_1")
    made.run("scontrol", "release", "7")
    return made


def test_a_look_of_the_runner_is_read_as_it_was_with_one_call_of_each_command(tmp_path: Path, slurm: FakeSlurm) -> None:
    before_s = time.monotonic()
    SlurmSteerRunner(tmp_path, slurm, "fair", gpus_of=lambda: {"n1": 4, "n2": 2}).look([])

    look = LookReader(tmp_path / NAME, "fair").look_after(before_s)

    assert (slurm.count("squeue"), slurm.count("sinfo")) == (1, 1)
    assert look is not None
    assert look.jobs == {job.id: job for job in slurm.queue(partition="fair")}
    assert look.nodes == slurm.nodes()


def look_of(slurm: FakeSlurm, began_s: float) -> SharedLook:
    return SharedLook(began_s, {job.id: job for job in slurm.queue()}, slurm.nodes())


def test_a_look_counts_only_for_what_was_known_before_it_began(tmp_path: Path, slurm: FakeSlurm) -> None:
    path, began_s = tmp_path / NAME, time.monotonic()
    write_look(path, "fair", look_of(slurm, began_s))
    reader = LookReader(path, "fair")

    assert reader.look_after(began_s - 1.0) is not None
    assert reader.look_after(began_s) is None, "a job could have ended in between"
    assert LookReader(path, "other").look_after(began_s - 1.0) is None


def test_a_look_from_before_the_machine_was_started_does_not_count(tmp_path: Path, slurm: FakeSlurm) -> None:
    write_look(tmp_path / NAME, "fair", look_of(slurm, time.monotonic() + 1e6))

    assert LookReader(tmp_path / NAME, "fair").look_after(0.0) is None


@pytest.mark.parametrize(
    "content",
    ["", "{", "[1]", "{}", '{"partition": "fair", "began_s": "?", "jobs": [], "nodes": []}']
    + [json.dumps({"partition": "fair", "began_s": 1.0, "jobs": jobs, "nodes": []}) for jobs in ([[1]], 3, [None])],
)
def test_a_file_that_makes_no_sense_is_no_look_until_it_is_replaced(
    tmp_path: Path, slurm: FakeSlurm, content: str
) -> None:
    path = tmp_path / NAME
    path.write_text(content)
    reader = LookReader(path, "fair")
    assert reader.look_after(0.0) is None

    write_look(path, "fair", look_of(slurm, time.monotonic()))
    os.utime(path, ns=(1, 1))  # file systems with coarse times: any change counts, not only a later one

    assert reader.look_after(0.0) is not None


def test_a_disk_that_cannot_be_written_costs_no_look_at_slurm(tmp_path: Path, slurm: FakeSlurm) -> None:
    (tmp_path / NAME).mkdir()
    runner = SlurmSteerRunner(tmp_path, slurm, "fair", gpus_of=lambda: {"n1": 4, "n2": 2})

    assert runner.look([]).usable == {"n1": 3, "n2": 2}
