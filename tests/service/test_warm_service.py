"""Warm starts through the whole service: a job file, a job that comes back, and the end of the service."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from daemons import Service, insist, running
from waiting import wait_for

SOURCE = Path(__file__).resolve().parents[2] / "src"
SCRIPT = """
import time
from fairlead import lease
saved = lease.restore()
step = int((saved / "step").read_text()) if saved else 0
print("from", step, flush=True)
while True:
    time.sleep(0.02)
    step += 1
    lease.report(step)
    if lease.should_stop():
        lease.stop(lambda folder: (folder / "step").write_text(str(step)))
"""


def processes_in(folder: Path) -> list[int]:
    """Processes that work in the folder: the job's and its standbys."""
    pids = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            if os.readlink(f"/proc/{entry}/cwd") == str(folder):
                pids.append(int(entry))
    return pids


class Job:
    def __init__(self, service: Service, document: dict[str, Any]) -> None:
        self._service = service
        self.id: str = insist(lambda: service.client().post("/jobs", document))["id"]

    def post(self, verb: str) -> None:
        insist(lambda: self._service.client().post(f"/jobs/{self.id}/{verb}"))

    def wait(self, phase: str) -> None:
        client = self._service.client()
        wait_for(lambda: insist(lambda: client.get(f"/jobs/{self.id}"))["phase"] == phase, f"phase {phase}")

    def begun(self, number: int) -> bool:
        path = self._service.state / "leases" / self.id / str(number) / "log"
        return path.exists() and "from" in path.read_text()

    def warm(self, number: int) -> bool:
        claim = self._service.state / "leases" / self.id / str(number) / "claim"
        return bool(json.loads(claim.read_text()).get("warm"))


def test_a_job_that_comes_back_starts_warm_and_no_standby_outlives_the_service(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    document = {
        "name": "train",
        "run": f"{sys.executable} train.py",
        "workdir": str(folder),
        "env": {"PYTHONPATH": str(SOURCE)},
        "warm": ["json", "fairlead.lease"],
    }
    with running(tmp_path) as service:
        job = Job(service, document)
        number = 1
        while True:  # until a standby was ready in time
            wait_for(lambda number=number: job.begun(number), "the job")  # type: ignore[misc]
            if job.warm(number):
                break
            job.wait("running")
            wait_for(lambda: len(processes_in(folder)) > 1, "a standby")
            job.post("hold")
            job.wait("held")
            job.post("release")
            number += 1
        figures = insist(lambda: service.client().get("/status"))["scheduler"]["warm"]
        assert figures["standbys_limit"] == 2
        assert figures["cold_starts"] >= 1
        job.post("cancel")
        job.wait("cancelled")

    wait_for(lambda: not processes_in(folder), "the end of all standbys")
