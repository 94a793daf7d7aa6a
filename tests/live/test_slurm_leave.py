"""`fairlead slurm` on a real cluster: it is found ready, and after Fairlead is gone everything drains through Slurm."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from fairlead.service.store.directory import open_directory
from slurm_cluster import OPERATOR, STEERED, SlurmCluster, missing, steered_cluster
from waiting import PATIENCE_S, until_told, wait_for

pytestmark = pytest.mark.slow
SOURCE = Path(__file__).resolve().parents[2] / "src"


@dataclass(frozen=True)
class Site:
    slurm: SlurmCluster
    home: Path

    def fairlead(self, *words: str, code: int = 0, text: str = "") -> str:
        done = subprocess.run(
            [sys.executable, "-m", "fairlead.cli.main", "slurm", *words],
            env=self.slurm.environment | {"PYTHONPATH": str(SOURCE), "HOME": str(self.home)},
            cwd=self.home,
            input=text,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout if code == 0 else done.stdout + done.stderr

    def submit(self, user: str, script: str, *options: str) -> str:
        return self.slurm.submit(user, script, f"--partition={STEERED}", "--output=/dev/null", *options)

    def steer(self, *words: str) -> None:
        self.slurm.run_as(OPERATOR, "scontrol", *words)

    def start(self, job: str, nodes: str) -> None:
        self.steer("update", f"jobid={job}", f"NodeList={nodes}")
        self.steer("release", job)

    def states(self) -> dict[str, str]:
        lines = self.slurm.run("squeue", "-h", "-r", "--states=all", "-o", "%i %T").split("\n")
        return dict(line.split() for line in lines if line)

    def hold_of(self, job: str) -> str:
        return self.slurm.run("squeue", "-h", "-r", f"--jobs={job}", "-O", "Reason:|,PriorityLong:|,ReqNodes:|").strip()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    reason = missing(accounting=True)
    if reason is not None:
        pytest.skip(reason)
    yield Site(steered_cluster(), tmp_path)
    steered_cluster().clear()


def test_after_leaving_all_jobs_of_two_users_end_through_slurm_alone(site: Site) -> None:
    over = site.slurm.home("games") / "over"
    over.unlink(missing_ok=True)
    running = site.submit("games", until_told(over), "--gres=gpu:2")
    requeued = site.submit("news", until_told(over), "--gres=gpu:1")
    for job in (running, requeued):
        site.start(job, "k80-1" if job == running else "v100-1")
    wait_for(lambda: {site.states()[job] for job in (running, requeued)} == {"RUNNING"}, "two jobs to run")
    waits_for_a_node = site.submit("news", "true", "--gres=gpu:1")
    site.start(waits_for_a_node, "k80-1")
    site.steer("uhold", running)  # as if it was about to be stopped
    site.steer("requeuehold", requeued)
    array = site.submit("games", "true", "--gres=gpu:1", "--array=1-3")
    wide = site.submit("news", "srun true", "--gres=gpu:4", "--nodes=2")
    site.slurm.run_as("games", "scontrol", "hold", f"{array}_3")
    kept = site.submit("news", "true")
    site.slurm.run("scontrol", "hold", kept)

    wait_for(lambda: site.states()[requeued] == "PENDING", "the job to be requeued")
    report = json.loads(site.fairlead("leave", "--yes", "-o", "json"))
    over.touch()

    assert report["still_held"] == {f"{array}_3": "owner", kept: "administrator"}
    drained = {running, requeued, waits_for_a_node, wide, f"{array}_1", f"{array}_2"}
    wait_for(lambda: {job for job, state in site.states().items() if state == "COMPLETED"} >= drained, "jobs to end")
    assert site.hold_of(f"{array}_3").startswith("JobHeldUser|0")
    assert site.hold_of(kept).startswith("JobHeldAdmin|0")
    assert json.loads(site.fairlead("leave", "--yes", "-o", "json"))["commands"] == []


def test_an_operator_can_run_the_printed_commands_instead(site: Site) -> None:
    job = site.submit("games", "true")
    site.steer("update", f"jobid={job}", "NodeList=v100-2")

    commands = site.fairlead("leave", "--print").strip().split("\n")

    assert commands == [f"scontrol update JobId={job} NodeList=", f"scontrol release {job}"]
    assert site.hold_of(job).startswith("JobHeldUser|0|v100-2")
    for command in commands:
        site.slurm.run_as(OPERATOR, *shlex.split(command))
    wait_for(lambda: site.states()[job] == "COMPLETED", "the job to end")


def test_nothing_is_released_without_consent_or_while_the_service_runs(site: Site) -> None:
    job = site.submit("games", "true")
    lock = open_directory(site.home / "fairlead-state").lock("service")

    assert "another fairlead uses fairlead-state" in site.fairlead("leave", "--yes", code=1)
    with open(lock):
        pass  # the service ends
    assert "[y/N]" in site.fairlead("leave", text="n\n", code=1)

    assert site.hold_of(job).startswith("JobHeldUser|0")


def test_a_partition_that_does_not_exist_is_named(site: Site) -> None:
    assert 'partition "fare" is not known; did you mean "fair"?' in site.fairlead("leave", "--partition=fare", code=2)


def test_the_doctor_finds_nothing_missing_on_a_prepared_cluster(site: Site) -> None:
    findings = json.loads(site.fairlead("doctor", "--steer", "-o", "json"))

    assert {finding["mark"] for finding in findings} == {"ok"}
    assert "job_submit.lua" in [finding["check"] for finding in findings]


def test_the_printed_undo_ends_the_holding_of_new_jobs(site: Site) -> None:
    held = site.submit("games", "true")
    conf = site.slurm.root / "slurm.conf"
    steering = conf.read_text()
    undo = site.fairlead("setup", "--print", "--part", "undo")
    assert "remove the lines JobSubmitPlugins and RequeueExitHold" in undo

    names = ("JobSubmitPlugins", "RequeueExitHold")
    conf.write_text("\n".join(line for line in steering.split("\n") if not line.startswith(names)))
    try:
        site.slurm.run("scontrol", "reconfigure")
        new = site.submit("news", "true")
        wait_for(lambda: site.states()[new] == "COMPLETED", "a new job to run without Fairlead")
        site.fairlead("leave", "--yes")
        wait_for(lambda: site.states()[held] == "COMPLETED", "the job that was held to run")
    finally:
        conf.write_text(steering)
        site.slurm.run("scontrol", "reconfigure")
