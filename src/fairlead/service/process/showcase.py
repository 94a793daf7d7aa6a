"""The live demo: a separate service, three tenants, a dozen real training processes, and their audit."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fairlead
from fairlead.model.errors import FairleadError
from fairlead.service.client import CREDENTIALS, Client

CLUSTER = "v100:4,p100:4,k80:4"
POLICY = "oef-coop"
TENANTS = {"vision": 2.0, "speech": 1.0, "text": 1.0}  # weights
JOBS_EACH = 4
GPUS = 2
STEPS = 500
_START_S, _LIMIT_S = 300.0, 900.0  # only to end a hang
_LISTENS = re.compile(r"listens on (http://\S+),")


def showcase(tick: Callable[[int], None]) -> dict[str, Any]:
    """Run the jobs to their end; `tick` is called with the number that have ended."""
    with tempfile.TemporaryDirectory(prefix="fairlead-demo-") as folder, _service(Path(folder)) as client:
        began_s = time.monotonic()
        for tenant, weight in TENANTS.items():
            client.put(f"/tenants/{tenant}", {"weight": weight})
        for i in range(JOBS_EACH):
            for tenant in TENANTS:
                client.post("/jobs", _job(f"{tenant}-{i + 1}", tenant, seed=i))
        jobs = _until_ended(client, began_s, tick)
        return {
            "cluster": CLUSTER,
            "policy": POLICY,
            "wall_s": time.monotonic() - began_s,
            "jobs": jobs,
            "tenants": [_tenant(name, jobs) for name in TENANTS],
            "audit": client.get("/audit"),
        }


def _job(name: str, tenant: str, seed: int) -> dict[str, Any]:
    return {
        "name": name,
        "tenant": tenant,
        "model": "small-classifier",
        "resources": {"gpus": [GPUS]},
        "run": f"exec {sys.executable} -m fairlead.lease.example --steps {STEPS} --seed {seed}",
        "env": {"PYTHONPATH": str(Path(fairlead.__file__).parents[1]), "OPENBLAS_NUM_THREADS": "1"},
        "grace": 5,
        "steps": STEPS,
    }


def _until_ended(client: Client, began_s: float, tick: Callable[[int], None]) -> list[dict[str, Any]]:
    while True:
        jobs: list[dict[str, Any]] = client.get("/jobs", limit=1000)["jobs"]
        ended = sum(job["end_s"] is not None for job in jobs)
        tick(ended)
        if ended == len(jobs):
            return jobs
        if time.monotonic() - began_s > _LIMIT_S:
            raise FairleadError(f"only {ended} of {len(jobs)} jobs of the live demo ended within {_LIMIT_S:g} s")
        time.sleep(0.3)


def _tenant(name: str, jobs: list[dict[str, Any]]) -> dict[str, Any]:
    mine = [job for job in jobs if job["tenant"] == name]
    return {
        "name": name,
        "weight": TENANTS[name],
        "finished": sum(job["phase"] == "finished" for job in mine),
        "resumed": sum(job["restarts"] for job in mine),
        "gpu_s": 3600 * sum(job["gpu_hours"] for job in mine),
        "mean_jct_s": sum(job["end_s"] - job["submitted_s"] for job in mine) / len(mine),
    }


@contextmanager
def _service(folder: Path) -> Iterator[Client]:
    """A daemon with separate state and credentials, which ends with the context."""
    credentials = folder / "credentials.json"
    command = [sys.executable, "-m", "fairlead.cli.main", "serve", "--cluster", CLUSTER, "--policy", POLICY]
    command += ["--state", str(folder / "state"), "--port", "0"]
    command += ["--round", "2s", "--min-run", "1s", "--restart-cost", "0.5s"]
    environment = {**os.environ, CREDENTIALS: str(credentials)}
    log = folder / "serve.log"
    with log.open("w", encoding="utf-8") as file:
        daemon = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, env=environment)
    try:
        yield _connected(daemon, log, credentials)
    finally:
        daemon.terminate()
        try:
            daemon.wait(60)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()


def _connected(daemon: subprocess.Popen[bytes], log: Path, credentials: Path) -> Client:
    until_s = time.monotonic() + _START_S
    while time.monotonic() < until_s and daemon.poll() is None:
        match = _LISTENS.search(log.read_text(encoding="utf-8"))
        if match and credentials.is_file():
            return Client.saved_in(credentials)
        time.sleep(0.1)
    raise FairleadError(f"the service of the live demo did not start: {log.read_text(encoding='utf-8').strip()[-500:]}")
