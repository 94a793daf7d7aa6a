"""Limits of tenants: set by an operator, checked at every submission, and cut logs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from daemons import insist, running
from fairlead.engines.local.files import LocalReader
from fairlead.engines.local.log_limits import cut_log
from fairlead.model.limits import BUILT_IN, EVERY_TENANT, TenantLimits, limits_of
from fairlead.service.store.tokens import Role
from serving import JOB, World, world
from waiting import wait_for


@pytest.fixture
def here(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as made:
        yield made


def limit(here: World, tenant: str | None = "vision", **limits: int) -> None:
    path = "/v1/limits" if tenant is None else f"/v1/tenants/{tenant}/limits"
    assert here.client.put(path, json=limits, headers=here.admin).status_code == 202
    here.take()


def refused(here: World, headers: dict[str, str] | None = None, **job: Any) -> tuple[int, str, str]:
    answer = here.client.post("/v1/jobs", json={**JOB, "tenant": "vision", **job}, headers=headers or here.admin)
    error = answer.json()["error"]
    return answer.status_code, error["code"], f"{error['message']}; {error['remedy']}"


def test_a_full_queue_refuses_more_jobs_with_its_number(here: World) -> None:
    limit(here, max_queued=2)
    here.submit(tenant="vision")
    here.take()
    here.submit(tenant="vision")  # not taken yet, and counted all the same

    assert refused(here) == (
        403,
        "queue_full",
        (
            "tenant vision has 2 jobs in the queue; its limit is 2; wait until some have started, cancel some, or ask an "
            "operator to raise max_queued"
        ),
    )
    here.submit(tenant="speech")  # others are not affected


def test_too_many_submits_are_refused_until_a_minute_has_passed(here: World) -> None:
    limit(here, max_submits=2)
    for _ in range(2):
        here.submit(tenant="vision")

    status, code, message = refused(here)
    assert (status, code) == (429, "too_many_submits")
    assert message.startswith("tenant vision has submitted 2 jobs within a minute, which is its limit; try again in ")
    here.service.writer.write_now(lambda c: c.execute("UPDATE jobs SET submitted_s = submitted_s - 60").rowcount)
    here.submit(tenant="vision")


def test_a_repeated_submission_is_answered_although_the_queue_is_full(here: World) -> None:
    limit(here, max_queued=1)
    headers = {**here.admin, "Idempotency-Key": "same"}
    first = here.submit(headers, tenant="vision")

    again = here.client.post("/v1/jobs", json={**JOB, "tenant": "vision"}, headers=headers)

    assert (again.status_code, again.json()["id"]) == (200, first)


def test_checkpoints_over_their_limit_refuse_new_jobs_and_stay(here: World) -> None:
    headers = {**here.admin, "Idempotency-Key": "same"}
    job = here.submit(headers, tenant="vision")
    stored = here.service.directory.path / "leases" / job / "checkpoints" / "12"
    stored.mkdir(parents=True)
    (stored / "state").write_bytes(b"x" * 1000)
    limit(here, checkpoint_bytes=900)

    status, code, message = refused(here)

    assert (status, code) == (403, "checkpoints_full")
    assert message.startswith("the checkpoints of tenant vision take 1000 bytes; its limit is 900")
    assert (stored / "state").exists()
    again = here.client.post("/v1/jobs", json={**JOB, "tenant": "vision"}, headers=headers)
    assert (again.status_code, again.json()["id"]) == (200, job), "a repeated submission adds nothing"
    row = here.client.get("/v1/tenants", headers=here.token(Role.MEMBER, "vision")).json()["tenants"][0]
    assert (row["stored_bytes"], row["applied"]["checkpoint_bytes"]) == (1000, 900)


def test_limits_of_every_tenant_apply_to_tenants_without_their_own(here: World) -> None:
    limit(here, None, max_queued=7, max_submits=50)
    limit(here, max_queued=3)

    document = here.client.get("/v1/tenants", headers=here.admin).json()

    assert document["every_tenant"] == asdict(TenantLimits(max_queued=7, max_submits=50))
    rows = {row["name"]: row for row in document["tenants"]}
    assert rows["vision"]["limits"] == asdict(TenantLimits(max_queued=3))
    assert rows["vision"]["applied"] == asdict(TenantLimits(3, 50, BUILT_IN.log_bytes))


def test_only_admins_set_limits_and_each_change_is_in_the_audit_log(here: World) -> None:
    member = here.token(Role.MEMBER, "vision")
    assert here.client.put("/v1/limits", json={}, headers=member).status_code == 403
    assert here.client.put("/v1/tenants/vision/limits", json={}, headers=member).status_code == 403
    limit(here, max_queued=3)

    change = here.client.get("/v1/changes", headers=here.admin).json()["changes"][0]
    assert (change["action"], change["target"], change["detail"]["max_queued"]) == ("limits.set", "vision", 3)


def test_limits_are_there_after_the_log_is_opened_again(here: World) -> None:
    limit(here, log_bytes=5)
    settings = here.service.reads.limits()

    assert limits_of("vision", settings) == TenantLimits(BUILT_IN.max_queued, None, 5, None)
    assert limits_of(EVERY_TENANT, settings) == BUILT_IN


# ---- logs -----------------------------------------------------------------------------------------------------------


def test_a_log_is_cut_at_its_limit_and_says_so_and_the_job_writes_on(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("ab", buffering=0) as job:
        job.write(b"a" * 1000)
        cut_log(log, 100)
        once = log.read_bytes()
        for _ in range(3):
            job.write(b"b" * 1000)
            cut_log(log, 100)

    assert once == log.read_bytes()
    assert once[:101] == b"a" * 100 + b"\n"
    assert once.endswith(b"the log ends here, because it has reached its limit of 100 bytes; the job is not affected\n")


def test_a_log_within_its_limit_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"a" * 100)
    cut_log(tmp_path / "log", 100)
    cut_log(tmp_path / "none", 100)

    assert (tmp_path / "log").read_bytes() == b"a" * 100
    assert not (tmp_path / "none").exists()


def test_checkpoints_are_measured_without_following_links(tmp_path: Path) -> None:
    folder = tmp_path / "leases" / "j1" / "checkpoints" / "3"
    folder.mkdir(parents=True)
    (tmp_path / "large").write_bytes(b"x" * 10_000)
    (folder / "state").write_bytes(b"x" * 10)
    (folder / "link").symlink_to(tmp_path / "large")

    assert LocalReader(tmp_path).checkpoint_bytes()["j1"] < 1000


@pytest.mark.slow
def test_a_job_that_floods_its_log_runs_to_its_end(tmp_path: Path) -> None:
    with running(tmp_path) as service:
        client = service.client()
        insist(lambda: client.put("/tenants/a/limits", {"log_bytes": 10_000}))
        flood = "head -c 3000000 /dev/zero | tr '\\0' x; sleep 1; head -c 3000000 /dev/zero | tr '\\0' y"
        job = client.post("/jobs", {"name": "flood", "run": flood, "tenant": "a"})["id"]
        wait_for(lambda: client.get(f"/jobs/{job}")["phase"] == "finished", "the job to end")
        (log,) = service.state.glob(f"leases/{job}/*/log")
        wait_for(lambda: log.stat().st_size < 20_000, "the log to be cut")
        lines = list(client.lines(f"/jobs/{job}/logs"))

    assert lines[0] == "x" * 10_000 + "\n"
    assert "the log ends here" in lines[1]
