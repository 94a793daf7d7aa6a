"""A standby takes over from a service that is killed, and two services never both write."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest
from takeovers import take_overs

from daemons import Service, insist, running
from waiting import wait_for


@pytest.mark.slow
def test_a_standby_takes_over_from_a_service_that_is_killed(tmp_path: Path) -> None:
    assert len(take_overs(tmp_path, kills=3)) == 3


@pytest.mark.slow
def test_a_service_whose_locks_were_removed_stops_before_it_writes_beside_another(tmp_path: Path) -> None:
    with running(tmp_path) as service:
        first = service.process
        assert first is not None
        job = {"name": "short", "run": "true"}
        before = insist(partial(service.client().post, "/jobs", job, {"Idempotency-Key": "before"}))["id"]
        for name in ("service.lock", "scheduler.lock"):
            (service.state / name).unlink()  # by an operator who took them for leftovers
        second = Service(tmp_path)
        second.start()
        service.process = second.process
        client = second.client()
        after = insist(partial(client.post, "/jobs", job, {"Idempotency-Key": "after"}))["id"]
        assert (before, after) == ("j1", "j2")
        old = service.client()
        wait_for(lambda: first.poll() is not None or _is_refused(old, job), "the first service to notice")
        first.wait()
        wait_for(lambda: client.get(f"/jobs/{after}")["phase"] == "finished", "a job of the second service")
        assert [row["id"] for row in client.get("/jobs")["jobs"]] == [before, after]
        assert "another service has taken over" in (tmp_path / "serve.log").read_text()
        assert first.returncode not in (0, None)
        assert os.path.exists(service.state / "service.lock")


def _is_refused(client: object, job: dict[str, str]) -> bool:
    """Ask the first service to write, which it must not do any more."""
    try:
        client.post("/jobs", job)  # type: ignore[attr-defined]
    except Exception:
        return True
    raise AssertionError("two services write")
