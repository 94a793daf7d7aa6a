"""The service on a real Slurm cluster, as one user of it would run it: every lease is a Slurm job of that user."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from homes import Site

from slurm_cluster import SlurmCluster, TestNode, missing
from waiting import PATIENCE_S, wait_for

pytestmark = pytest.mark.slow
SlurmSite = Site[SlurmCluster]
RANKS = """
echo rank $RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE on $SLURMD_NODENAME with $CUDA_VISIBLE_DEVICES
"""
TRAINING = """
import os, sys, time
from fairlead import lease
saved = lease.restore()
step = int((saved / "step").read_text()) if saved else 0
print("from", step)
save = lambda folder: (folder / "step").write_text(str(step))
while step < 200:
    time.sleep(0.05)
    step += step < 40 or os.path.exists(sys.argv[1])
    lease.report(step)
    if lease.should_stop():
        lease.stop(save)
print("to", step)
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmSite]:
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    slurm = SlurmCluster([TestNode("gpu01", "v100", 2), TestNode("gpu02", "v100", 2), TestNode("old7", "k80", 1)])
    more = {"SLURM_CONF": slurm.environment["SLURM_CONF"]}
    yield Site(
        slurm, tmp_path_factory.mktemp("home"), ("--engine", "slurm", "--look", "0.5s"), slurm.environment["PATH"], more
    )
    slurm.stop()


@pytest.fixture(scope="module")
def served(site: SlurmSite) -> Iterator[list[subprocess.Popen[bytes]]]:
    """The running service; a test may replace it."""
    daemons = [site.serve()]
    yield daemons
    site.stop(daemons[-1])


def test_the_cluster_is_that_of_slurm(site: SlurmSite, served: list[subprocess.Popen[bytes]]) -> None:
    nodes = site.read("nodes")["nodes"]
    assert [(node["name"], node["type"], node["gpus"]) for node in nodes] == [
        ("gpu01", "v100", 2),
        ("gpu02", "v100", 2),
        ("old7", "k80", 1),
    ]


def test_a_job_ends_with_its_exit_code_and_its_log(site: SlurmSite, served: list[subprocess.Popen[bytes]]) -> None:
    good, bad = site.submit("echo slurm job $SLURM_JOB_ID, GPU $CUDA_VISIBLE_DEVICES"), site.submit("exit 7")

    assert site.run("wait", good).strip() == "finished"
    assert site.run("wait", bad, code=7).strip() == "failed"
    assert site.run("logs", good).startswith("slurm job ")


def test_every_rank_of_a_gang_over_two_nodes_knows_its_place(
    site: SlurmSite, served: list[subprocess.Popen[bytes]]
) -> None:
    job = site.submit(RANKS, resources={"accelerators": "V100:4"}, processes="per-gpu")

    assert site.run("wait", job).strip() == "finished"

    lines = sorted(line for line in site.run("logs", job).splitlines() if line.startswith("rank "))
    assert [line.split(" on ")[0] for line in lines] == [f"rank {rank} of 4, {rank % 2} of 2" for rank in range(4)]
    assert [line.split(" on ")[1].split()[0] for line in lines] == ["gpu01", "gpu01", "gpu02", "gpu02"]


def test_a_job_is_held_with_its_work_and_continues_and_survives_a_restart_of_the_service(
    site: SlurmSite, served: list[subprocess.Popen[bytes]]
) -> None:
    (site.home / "train.py").write_text(TRAINING)
    run = f"exec {sys.executable} train.py {site.home}/over"
    job = site.submit(run, steps=200, resources={"accelerators": "V100:1"}, grace="60s")
    wait_for(lambda: site.phase(job) == "running", "the job to run")
    number = site.cluster.run("squeue", "-h", "-o", "%i").strip()

    site.stop(served.pop())
    assert number in site.cluster.run("squeue", "-h", "-o", "%i"), "a job runs on without the service"
    served.append(site.serve())
    site.run("hold", job)
    wait_for(lambda: site.phase(job) == "held", "the job to be held")
    wait_for(lambda: not site.cluster.run("squeue", "-h", "-o", "%i").strip(), "its Slurm job to end")
    site.run("release", job)
    (site.home / "over").touch()

    assert site.run("wait", job).strip() == "finished"
    lines = site.run("logs", job).split("\n")
    assert lines[0] == "from 0"
    assert any(line.startswith("from ") and int(line.split()[1]) > 0 for line in lines)
    assert "to 200" in lines


def test_gpus_of_foreign_jobs_are_not_used(site: SlurmSite, served: list[subprocess.Popen[bytes]]) -> None:
    foreign = site.cluster.run(
        "sbatch", "--parsable", "--nodelist=old7", "--gres=gpu:1", "--output=/dev/null", "--wrap=sleep 9999"
    ).strip()
    job = site.submit("true", resources={"accelerators": "K80:1"})

    wait_for(lambda: site.free("old7") == 0, "the service to see the foreign job")
    assert site.phase(job) in ("waiting", "starting")
    site.cluster.run("scancel", foreign)

    assert site.run("wait", job).strip() == "finished"


def test_without_slurm_the_service_says_what_is_missing(site: SlurmSite, tmp_path: Path) -> None:
    environment = {**site.environment, "PATH": os.path.dirname(sys.executable), "HOME": str(tmp_path)}
    words = [sys.executable, "-m", "fairlead.cli.main", "serve", "--engine", "slurm", "--state", str(tmp_path / "s")]

    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE_S)

    assert done.returncode == 1
    assert "sinfo is not installed on this machine; install Slurm's client commands" in done.stderr
