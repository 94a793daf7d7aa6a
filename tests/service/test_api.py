"""What the API does for callers with permission: jobs, nodes, tenants, policy, streams, limits."""

from __future__ import annotations

import json
import math
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import numpy as np
import pytest

from fairlead.model.arrays import NO_JOBS
from fairlead.model.decision import Cause, Decision, Why
from fairlead.model.events import Arrived, Finished, Lost, NodeDown, Refused
from fairlead.model.jobs import JobSpec
from fairlead.model.outcomes import Outcomes, Reason
from fairlead.service.api.guard import Buckets
from fairlead.service.api.limits import Limits
from fairlead.service.store.tokens import Role
from serving import JOB, World, start, world


@pytest.fixture
def here(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as made:
        yield made


# ---- jobs ---------------------------------------------------------------------------------------------------------


def test_a_job_is_submitted_then_waits_then_runs_then_ends(here: World) -> None:
    id_ = here.submit(tenant="vision", steps=10, env={"SECRET": "hunter2"})
    shown = here.client.get(f"/v1/jobs/{id_}", headers=here.admin).json()
    assert (shown["phase"], shown["tenant"], shown["progress"]) == ("submitted", "vision", None)
    assert "hunter2" not in json.dumps(shown)

    here.take()
    assert here.client.get(f"/v1/jobs/{id_}", headers=here.admin).json()["phase"] == "waiting"

    start(here, id_)
    shown = here.client.get(f"/v1/jobs/{id_}", headers=here.admin).json()
    assert (shown["phase"], shown["held"]["gpus"], shown["held"]["nodes"]) == ("running", 1, {"v100-1": 1})
    assert 0.0 <= shown["progress"]["fraction"] < 0.5
    assert shown["progress"]["total_steps"] == 10

    here.happen(Finished(time.time(), np.array([0]), np.array([10.0])))
    here.log.commit(here.log.taken)
    shown = here.client.get(f"/v1/jobs/{id_}", headers=here.admin).json()
    assert (shown["phase"], shown["held"], shown["progress"]["fraction"]) == ("finished", None, 1.0)


def test_the_same_key_submits_once(here: World) -> None:
    key = {**here.admin, "Idempotency-Key": "abc"}
    first = here.client.post("/v1/jobs", json=JOB, headers=key)
    again = here.client.post("/v1/jobs", json=JOB, headers=key)
    other = here.client.post("/v1/jobs", json={**JOB, "name": "else"}, headers=key)

    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == again.json()
    assert (other.status_code, other.json()["error"]["code"]) == (409, "idempotency_conflict")
    assert len(here.client.get("/v1/jobs", headers=here.admin).json()["jobs"]) == 1


def test_a_key_belongs_to_its_token(here: World) -> None:
    for tenant in ("a", "b"):
        headers = {**here.token(Role.MEMBER, tenant), "Idempotency-Key": "same"}
        assert here.client.post("/v1/jobs", json=JOB, headers=headers).status_code == 201


def test_jobs_come_in_pages_and_by_phase(here: World) -> None:
    ids = [here.submit() for _ in range(5)]
    here.take()
    ids.append(here.submit())
    start(here, ids[2])

    listed, after = [], 0
    for _ in range(9):
        page = here.client.get("/v1/jobs", params={"limit": 2, "after": after}, headers=here.admin).json()
        listed += [job["id"] for job in page["jobs"]]
        if page["next"] is None:
            break
        after = page["next"]
    assert listed == ids

    def of(*phases: str) -> list[str]:
        page = here.client.get("/v1/jobs", params={"phase": phases}, headers=here.admin).json()
        return [job["id"] for job in page["jobs"]]

    assert of("running") == [ids[2]]
    assert of("submitted") == [ids[5]]
    assert of("active") == ids
    assert of("finished") == []
    assert here.client.get("/v1/jobs", params={"phase": "lost"}, headers=here.admin).status_code == 422


def test_what_has_ended_cannot_be_changed(here: World) -> None:
    id_ = here.submit()
    here.take()
    start(here, id_)
    assert here.client.post(f"/v1/jobs/{id_}/hold", headers=here.admin).status_code == 202
    here.happen(Finished(time.time(), np.array([0]), np.array([1.0])))
    here.log.commit(here.log.taken)

    for verb in ("cancel", "hold", "release"):
        response = here.client.post(f"/v1/jobs/{id_}/{verb}", headers=here.admin)
        assert (response.status_code, response.json()["error"]["code"]) == (409, "job_ended")


def test_a_reason_goes_when_it_no_longer_holds(here: World) -> None:
    id_ = here.submit()
    here.take()
    jobs = np.array([0])
    decision = Decision(time.time(), Cause.ROUND, jobs[:0], jobs, (((0, 1),),), math.inf, "")
    here.log.decision(decision)
    here.log.state.fold(decision)
    here.happen(Refused(time.time(), jobs, "no such workdir"))
    here.log.commit(here.log.taken)
    assert here.client.get(f"/v1/jobs/{id_}", headers=here.admin).json()["reason"] == "no such workdir"

    start(here, id_)
    here.happen(Lost(time.time(), jobs, np.array([0.0])))
    here.log.commit(here.log.taken)
    shown = here.client.get(f"/v1/jobs/{id_}", headers=here.admin).json()
    assert (shown["phase"], shown["reason"]) == ("waiting", None)


def test_a_job_that_can_never_run_is_refused(here: World) -> None:
    wide = here.client.post("/v1/jobs", json={**JOB, "resources": {"accelerators": "V100:8"}}, headers=here.admin)
    other = here.client.post("/v1/jobs", json={**JOB, "resources": {"accelerators": "H100:1"}}, headers=here.admin)

    assert wide.json()["error"]["code"] == other.json()["error"]["code"] == "can_never_run"
    assert "needs 8 GPUs of one type; the cluster has 4 x v100, 2 x k80" in wide.json()["error"]["message"]


@pytest.mark.parametrize(
    "bad",
    [
        {"run": ""},
        {"name": "../../etc"},
        {"tenant": "a/b"},
        {"workdir": "relative/dir"},
        {"workdir": "/tmp/../etc"},
        {"checkpoint_dir": "../../outside"},
        {"env": {"LD_PRELOAD": "x"}},
        {"env": {"A": "nul\0l"}},
        {"steps": -1},
        {"unknown": 1},
    ],
    ids=str,
)
def test_a_bad_job_is_refused_without_repeating_what_was_sent(here: World, bad: dict[str, object]) -> None:
    response = here.client.post("/v1/jobs", json={**JOB, "env": {"KEY": "hunter2"}, **bad}, headers=here.admin)

    assert (response.status_code, response.json()["error"]["code"]) == (422, "invalid_request")
    assert "hunter2" not in response.text
    assert here.client.get("/v1/jobs", headers=here.admin).json()["jobs"] == []


# ---- the cluster --------------------------------------------------------------------------------------------------


def test_nodes_show_what_is_free_and_up(here: World) -> None:
    id_ = here.submit()
    here.take()
    start(here, id_)
    here.happen(NodeDown(time.time(), 1))
    here.log.commit(here.log.taken)

    nodes = here.client.get("/v1/nodes", headers=here.admin).json()["nodes"]
    assert [(node["name"], node["gpus"], node["free"], node["up"]) for node in nodes] == [
        ("v100-1", 4, 3, True),
        ("k80-1", 2, 2, False),
    ]
    status = here.client.get("/v1/status", headers=here.admin).json()
    assert status["gpus"]["v100"] == {"total": 4, "up": 4, "held": 1}
    assert status["nodes_down"] == ["k80-1"]
    assert status["jobs"]["running"] == 1


def test_changes_of_tenants_and_policy_are_asked_for_and_written_down(here: World) -> None:
    terms = {"weight": 2.5, "quotas": [{"type": "v100", "nominal": 2, "borrowing_limit": 1, "lending_limit": 0}]}
    assert here.client.put("/v1/tenants/vision", json=terms, headers=here.admin).status_code == 202
    assert here.client.put("/v1/policy", json={"name": "las"}, headers=here.admin).status_code == 202
    here.take()

    tenants = here.client.get("/v1/tenants", headers=here.admin).json()["tenants"]
    assert [{name: row[name] for name in ("name", *terms)} for row in tenants] == [{"name": "vision", **terms}]
    shown = here.client.get("/v1/policy", headers=here.admin).json()
    assert (shown["name"], shown["parameters"]) == ("las", {"queues_gpu_s": [3600.0, 36000.0]})
    changes = here.client.get("/v1/changes", headers=here.admin).json()["changes"]
    assert [(change["action"], change["target"]) for change in changes] == [
        ("policy.set", "las"),
        ("tenant.set", "vision"),
    ]
    assert changes[1]["detail"] == terms
    assert "admin" in changes[0]["actor"]


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        ("/v1/policy", {"name": "os.system"}, "no_such_policy"),
        ("/v1/policy", {"name": "las", "parameters": {"nonsense": 1}}, "invalid_request"),
        ("/v1/policy", {"name": "las", "parameters": {"queues_gpu_s": "x"}}, "invalid_request"),
        ("/v1/policy", {"name": "las", "parameters": {"queues_gpu_s": [5.0, 1.0, -1.0]}}, "invalid_request"),
        ("/v1/policy", {"name": "themis", "parameters": {"fairness": 2.0}}, "invalid_request"),
        ("/v1/policy", {"name": "fft", "parameters": {"work": "x"}}, "invalid_request"),
        ("/v1/policy", {"name": "gavel-hierarchical", "parameters": {"inside": "x"}}, "invalid_request"),
        ("/v1/tenants/a", {"weight": 0}, "invalid_request"),
        ("/v1/tenants/a", {"quotas": [{"type": "h100", "nominal": 1}]}, "invalid_request"),
        ("/v1/tenants/a", {"quotas": [{"type": "v100", "nominal": 1, "lending_limit": 2}]}, "invalid_request"),
        ("/v1/tenants/a", {"quotas": [{"type": "v100", "nominal": 1}] * 2}, "invalid_request"),
    ],
)
def test_what_cannot_be_is_not_asked_for(here: World, path: str, body: dict[str, object], code: str) -> None:
    response = here.client.put(path, json=body, headers=here.admin)

    assert (response.status_code, response.json()["error"]["code"]) == (422, code)
    assert here.client.get("/v1/changes", headers=here.admin).json()["changes"] == []


def test_shares_stand_beside_what_weights_alone_would_give(here: World) -> None:
    here.client.put("/v1/tenants/a", json={"weight": 3}, headers=here.admin)
    id_ = here.submit(tenant="a")
    here.submit(tenant="b")
    here.take()
    start(here, id_)

    rows = {row["tenant"]: row for row in here.client.get("/v1/shares", headers=here.admin).json()["shares"]}
    assert (rows["a"]["held"], rows["a"]["entitled"]) == ({"v100": 1}, {"v100": 3.0, "k80": 1.5})
    assert (rows["b"]["held"], rows["b"]["entitled"]["v100"], rows["b"]["waiting"]) == ({}, 1.0, 1)


def test_shares_carry_the_verdicts_of_the_audit_if_they_are_requested(here: World) -> None:
    id_ = here.submit(tenant="a")
    here.submit(tenant="b")
    here.take()
    start(here, id_)
    member = here.token(Role.MEMBER, "b")

    plain = here.client.get("/v1/shares", headers=member).json()
    judged = here.client.get("/v1/shares", params={"promises": True}, headers=member).json()

    assert (plain["policy"], plain["promises"]) == ("fifo", None)
    assert judged["promises"] == here.client.get("/v1/audit", headers=member).json()["promises"]
    assert {one["promise"] for one in judged["promises"]} >= {"sharing incentive", "no envy"}
    assert [row["tenant"] for row in judged["shares"]] == ["a", "b"]
    assert here.client.get("/v1/shares", params={"promises": "perhaps"}, headers=member).status_code == 422


def test_shares_know_a_tenant_whose_first_job_was_taken_a_moment_ago(here: World) -> None:
    here.happen(Arrived(time.time(), JobSpec("j1", "new", "m", time.time(), 1, None)))
    start(here, "j1")

    rows = here.client.get("/v1/shares", headers=here.admin).json()["shares"]
    assert [(row["tenant"], row["held"]) for row in rows] == [("new", {"v100": 1})]


def test_a_journal_whose_next_record_was_archived_meanwhile_is_broken_off(here: World) -> None:
    for _ in range(2):
        here.submit()
    here.take()
    with closing(sqlite3.connect(here.service.directory.events)) as events, events:
        events.execute("DELETE FROM log WHERE seq = 1")

    with pytest.raises(httpx.RemoteProtocolError):
        here.client.get("/v1/journal", headers=here.admin)


def test_the_audit_and_the_journal_come_from_the_log(here: World, tmp_path: Path) -> None:
    from fairlead.studies.fairness.journal_audit import audit_journal
    from fairlead.studies.journals.folding import state_at

    id_ = here.submit(tenant="a")
    here.submit(tenant="b")
    here.take()
    start(here, id_)
    here.happen(Finished(time.time(), np.array([0]), np.array([1.0])))
    here.log.commit(here.log.taken)

    response = here.client.get("/v1/audit", headers=here.admin).json()
    (tmp_path / "journal").write_text(here.client.get("/v1/journal", headers=here.admin).text)
    assert response == audit_journal(tmp_path / "journal").to_json()
    assert response["tenants"]["a"]["gpu_hours"]["v100"] > 0
    assert state_at(tmp_path / "journal").jobs == 2


def test_the_audit_shows_a_member_no_models_of_other_tenants(here: World) -> None:
    for tenant in ("a", "b"):
        here.submit(tenant=tenant)
    here.take()

    whole = here.client.get("/v1/audit", headers=here.admin).json()
    mine = here.client.get("/v1/audit", headers=here.token(Role.MEMBER, "b")).json()

    assert {rate["tenant"] for rate in whole["rates"]} == {"a", "b"}
    assert mine["rates"] == [rate for rate in whole["rates"] if rate["tenant"] == "b"]
    assert set(mine["trials"]) <= {"b"}
    assert mine["tenants"] == whole["tenants"]


# ---- streams ------------------------------------------------------------------------------------------------------


def test_events_are_lines_or_server_sent(here: World) -> None:
    here.submit()
    here.submit()
    here.take()

    lines = here.client.get("/v1/events", headers=here.admin).text.splitlines()
    assert [json.loads(line)["event"] for line in lines] == ["arrived", "arrived"]
    later = here.client.get("/v1/events", params={"after": 1}, headers=here.admin).text.splitlines()
    assert [json.loads(line)["seq"] for line in later] == [2]
    sent = here.client.get("/v1/events", headers={**here.admin, "Accept": "text/event-stream"})
    assert sent.text.startswith("id: 1\ndata: {")


def test_events_of_others_do_not_use_up_the_limit(here: World) -> None:
    for tenant in ("b", "b", "a", "b", "a", "b"):
        here.submit(tenant=tenant)
    here.take()
    mine = here.token(Role.MEMBER, "a")

    def seen(after: int, limit: int) -> tuple[list[int], str]:
        response = here.client.get("/v1/events", params={"after": after, "limit": limit}, headers=mine)
        return [json.loads(line)["seq"] for line in response.text.splitlines()], response.headers["Fairlead-Last-Seq"]

    assert seen(0, 1) == ([3], "6")
    assert seen(3, 2) == ([5], "6")
    assert seen(0, 9) == ([3, 5], "6")


def test_reading_from_many_threads_one_after_another_opens_one_connection(here: World) -> None:
    opened: list[int] = []
    reads = here.service.reads
    before = reads._idle.qsize()
    for _ in range(20):
        thread = threading.Thread(target=lambda: opened.append(reads.last_seq()))
        thread.start()
        thread.join()

    assert len(opened) == 20
    assert reads._idle.qsize() <= max(before, 1)


def test_logs_of_all_leases_follow_each_other(here: World) -> None:
    id_ = here.submit()
    here.take()
    assert here.client.get(f"/v1/jobs/{id_}/logs", headers=here.admin).text == ""
    for number, text in ((1, "first\n"), (2, "second\n")):
        lease = here.service.directory.leases / id_ / str(number)
        lease.mkdir(parents=True)
        (lease / "log").write_text(text)
        (lease / "exit.json").write_text('{"code": 7}')
        here.log.state.leases[0] = number
    start(here, id_)
    here.log.state.leases[0] = 2
    here.happen(Finished(time.time(), np.array([0]), np.array([1.0])))
    here.log.commit(here.log.taken)

    assert here.client.get(f"/v1/jobs/{id_}/logs", headers=here.admin).text == "first\nsecond\n"
    assert here.client.get(f"/v1/jobs/{id_}/logs?follow=true", headers=here.admin).text == "first\nsecond\n"
    assert here.client.get(f"/v1/jobs/{id_}/logs?lease=2", headers=here.admin).text == "second\n"
    assert here.client.get(f"/v1/jobs/{id_}", headers=here.admin).json()["exit_code"] == 7


def test_a_log_that_is_a_link_is_not_followed(here: World, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("hunter2")
    id_ = here.submit()
    here.take()
    lease = here.service.directory.leases / id_ / "1"
    lease.mkdir(parents=True)
    (lease / "log").symlink_to(tmp_path / "secret")
    start(here, id_)

    assert here.client.get(f"/v1/jobs/{id_}/logs", headers=here.admin).text == ""


# ---- limits and errors ----------------------------------------------------------------------------------------------


def test_a_large_body_is_refused(tmp_path: Path) -> None:
    with world(tmp_path, Limits(body_bytes=1000)) as here:
        declared = here.client.post("/v1/jobs", json={**JOB, "run": "x" * 2000}, headers=here.admin)
        chunks = (b'{"name": "a", "run": "' + b"x" * 600, b"x" * 600 + b'"}')
        counted = here.client.post("/v1/jobs", content=iter(chunks), headers=here.admin)

    for response in (declared, counted):
        assert (response.status_code, response.json()["error"]["code"]) == (413, "too_large")


def test_a_token_that_asks_too_often_waits(tmp_path: Path) -> None:
    with world(tmp_path, Limits(requests_per_s=0.001, burst=3)) as here:
        codes = [here.client.get("/v1/me", headers=here.admin).status_code for _ in range(5)]
        other = here.client.get("/v1/me", headers=here.token(Role.VIEWER)).status_code

    assert codes == [200, 200, 200, 429, 429]
    assert other == 200


def test_guessing_tokens_is_slowed_down(tmp_path: Path) -> None:
    with world(tmp_path, Limits(failures_per_s=0.001, failures_burst=3)) as here:
        codes = [here.client.get("/v1/me", headers={"Authorization": "Bearer x"}).status_code for _ in range(5)]
        valid = here.client.get("/v1/me", headers=here.admin).status_code

    assert codes == [401, 401, 401, 429, 429]
    assert valid == 200


def test_a_bucket_fills_again() -> None:
    now_s = 0.0
    buckets = Buckets(2.0, 2.0, lambda: now_s)
    assert [buckets.take("a") for _ in range(3)] == [True, True, False]
    now_s = 0.5
    assert [buckets.take("a") for _ in range(2)] == [True, False]


def test_a_full_disk_is_answered_with_507(here: World) -> None:
    def shrink(connection: object) -> None:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]  # type: ignore[attr-defined]
        connection.execute(f"PRAGMA max_page_count = {pages}")  # type: ignore[attr-defined]

    here.service.writer.write_now(shrink)
    large = {**JOB, "env": {"A": "x" * 30_000}}
    answers = [here.client.post("/v1/jobs", json=large, headers=here.admin) for _ in range(3)]
    shown = here.client.get("/v1/jobs", headers=here.admin).json()["jobs"]

    assert answers[-1].status_code == 507
    assert answers[-1].json()["error"]["code"] == "disk_full"
    assert len(shown) == sum(response.status_code == 201 for response in answers)


def test_errors_of_the_frame_look_like_all_others(here: World) -> None:
    for method, path, status in (("GET", "/v1/nothing", 404), ("PATCH", "/v1/jobs", 405), ("GET", "/docs", 404)):
        response = here.client.request(method, path, headers=here.admin)
        assert response.status_code == status
        assert set(response.json()["error"]) == {"code", "message", "remedy"}
    broken = here.client.post("/v1/jobs", content=b"{", headers={**here.admin, "Content-Type": "application/json"})
    assert (broken.status_code, broken.json()["error"]["message"]) == (422, "the body is not JSON")


@pytest.mark.parametrize("job", ["j2", "j999999999999999999", "j1-1", "j2-41", "j22-385828539245352"])
def test_a_job_that_does_not_exist_is_not_found_in_any_incarnation(here: World, job: str) -> None:
    here.submit()
    paths = [("GET", ""), ("GET", "/logs"), ("POST", "/cancel"), ("POST", "/hold"), ("POST", "/release")]
    for method, path in paths:
        response = here.client.request(method, f"/v1/jobs/{job}{path}", headers=here.admin)
        assert (response.status_code, response.json()["error"]["code"]) == (404, "no_such_job"), path


def test_an_internal_error_shows_no_stack_trace(here: World, caplog: pytest.LogCaptureFixture) -> None:
    here.service.reads.close()
    here.service.directory.events.unlink()
    response = here.client.get("/v1/status", headers=here.admin)

    assert response.json() == {
        "error": {
            "code": "internal",
            "message": "the service failed",
            "remedy": "try again; the service's log has the details",
        }
    }
    assert "/v1/status failed" in caplog.text
    assert here.admin["Authorization"].partition(" ")[2] not in caplog.text


def test_a_decision_shows_a_tenant_only_the_reasons_of_its_own_jobs(here: World) -> None:
    here.submit(name="theirs", tenant="other")
    here.submit(name="mine", tenant="own")
    here.submit(name="waits", tenant="other")
    here.take()
    two = np.array([0, 2])
    outcomes = Outcomes(two, np.full(2, Reason.ORDER), two, two, two * 1.0, two * 1.0)
    why = Why(outcomes, {1: (0, 2)}, 1.0)
    one = np.array([1])
    decision = Decision(time.time(), Cause.ROUND, NO_JOBS, one, (((0, 1),),), math.inf, "", why, trials=(0,))
    here.log.decision(decision)
    here.log.state.fold(decision)
    here.log.commit(here.log.taken)
    member = here.token(Role.MEMBER, "own")

    listed = here.client.get("/v1/decisions", headers=member)
    streamed = here.client.get("/v1/events", headers=member)

    for text in (listed.text, streamed.text):
        assert '"j2"' in text
        assert '"j1"' not in text
        assert '"j3"' not in text


def test_a_log_begins_near_its_end_if_asked(here: World) -> None:
    id_ = here.submit()
    here.take()
    start(here, id_)
    lease = here.service.directory.leases / id_ / str(here.log.state.leases[0])
    lease.mkdir(parents=True)
    (lease / "log").write_text("".join(f"line {number}\n" for number in range(50_000)))

    def tail(size: int) -> str:
        return here.client.get(f"/v1/jobs/{id_}/logs", params={"tail": size}, headers=here.admin).text

    assert tail(11) == "line 49999\n"
    assert tail(1 << 20) == (lease / "log").read_text()
