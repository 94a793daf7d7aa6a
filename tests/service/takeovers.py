"""Kills a service that has a standby, again and again, and measures how long clients wait: `make takeovers`."""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from daemons import Service, insist, running
from waiting import until_told, wait_for


def take_overs(folder: Path, kills: int) -> list[float]:
    """Seconds from each kill to the next acknowledged submit, through the same port. One job runs through all of it."""
    over, began = folder / "over", folder / "began"
    waits_s, acknowledged = [], []
    with running(folder) as service:
        client = service.client()
        job = {"name": "long", "run": f"echo . >> {began}; {until_told(over)}", "grace": 0.2}
        long = insist(partial(client.post, "/jobs", job, {"Idempotency-Key": "long"}))["id"]
        wait_for(lambda: client.get(f"/jobs/{long}")["phase"] == "running", "the job to run")
        waiting = f"on standby until no other service uses {service.state}"
        for kill in range(kills):
            first, standby = service.process, Service(folder)
            assert first is not None
            standby.port = service.port
            standby.start("--standby")
            wait_for(lambda n=kill: (folder / "serve.log").read_text().count(waiting) > n, "the standby")  # type: ignore[misc]
            since_s = time.monotonic()
            first.kill()
            service.process = standby.process
            key = {"Idempotency-Key": f"after kill {kill}"}
            acknowledged.append(insist(partial(client.post, "/jobs", {"name": "next", "run": "true"}, key))["id"])
            waits_s.append(time.monotonic() - since_s)
            first.wait()
        over.touch()
        for id_ in (long, *acknowledged):
            ask = partial(client.get, f"/jobs/{id_}")
            wait_for(lambda ask=ask: insist(ask)["phase"] == "finished", f"the end of {id_}")  # type: ignore[misc]
        shown = {row["id"] for row in client.get("/jobs")["jobs"]}
    assert shown == {long, *acknowledged}, "a job was lost, or appeared from nowhere"
    assert began.read_text().count(".") == 1, "the job that ran through all of it was started again"
    assert "Traceback" not in (folder / "serve.log").read_text()
    return waits_s


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        waits_s = take_overs(Path(made), int(sys.argv[1]))
    print(f"{len(waits_s)} take-overs: median {statistics.median(waits_s):.2f} s, worst {max(waits_s):.2f} s")
