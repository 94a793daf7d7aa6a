"""The service on a real Ray cluster, as its user would run it. `ray_faults.py` is the long run of the same."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray_faults
from ray_faults import RaySite, site_in

from ray_cluster import missing, shared_cluster
from waiting import PATIENCE_S, wait_for

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(missing() is not None, reason=missing() or ""),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RaySite]:
    made = site_in(tmp_path_factory.mktemp("home"), shared_cluster())
    daemon = made.serve()
    yield made
    made.stop(daemon)
    made.cluster.clear()


def test_the_cluster_is_that_of_ray(site: RaySite) -> None:
    nodes = site.read("nodes")["nodes"]
    assert sorted((node["name"], node["type"], node["gpus"]) for node in nodes) == [
        ("k80-1", "k80", 1),
        ("v100-1", "v100", 2),
    ]


def test_a_job_ends_with_its_exit_code_and_its_log_and_sees_the_devices_of_ray(site: RaySite) -> None:
    good = site.submit("echo GPUs $CUDA_VISIBLE_DEVICES", resources={"accelerators": "V100:2"})
    bad = site.submit("exit 7")

    assert site.run("wait", good).strip() == "finished"
    assert site.run("wait", bad, code=7).strip() == "failed"
    assert site.run("logs", good) == "GPUs 0,1\n"


def test_gpus_that_other_work_of_ray_holds_are_not_used(site: RaySite) -> None:
    site.cluster.hold("k80-1", 1)
    wait_for(lambda: site.free("k80-1") == 0, "the service to see the other work")
    job = site.submit("true", resources={"accelerators": "K80:1"})
    assert site.phase(job) == "waiting"

    site.cluster.clear()

    assert site.run("wait", job).strip() == "finished"


def test_jobs_survive_the_ends_of_a_node_of_the_head_and_of_the_service(tmp_path: Path) -> None:
    gangs = 0 if importlib.util.find_spec("torch") is None else 1
    assert ray_faults.run(tmp_path, 3, gangs=gangs).startswith("12 jobs ended once")


def test_without_a_head_the_service_says_where_it_looked(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "fairlead.cli.main", "serve", "--engine", "ray", "--state", str(tmp_path / "s")]

    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=PATIENCE_S)

    assert done.returncode == 2
    assert "add --address HOST:PORT" in done.stderr
