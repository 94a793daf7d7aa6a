"""Who may do what: every verb, every role, own and other tenant; and nothing for those without a token."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from fairlead.service.api.access import RULES
from fairlead.service.api.guard import OPEN
from fairlead.service.store.database import open_reader
from fairlead.service.store.tokens import Role, Tokens, new_token, store_token
from serving import JOB, World, world


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("api")) as made:
        yield made


def ask(here: World, method: str, path: str, headers: dict[str, str], id_: str = "j999") -> httpx.Response:
    bodies: dict[tuple[str, str], object] = {
        ("POST", "/v1/jobs"): JOB,
        ("PUT", "/v1/tenants/{name}"): {"weight": 1},
        ("PUT", "/v1/policy"): {"name": "fifo"},
        ("POST", "/v1/tokens"): {"name": "x", "role": "viewer"},
    }
    place = path.replace("{id}", "0" * 12 if "tokens" in path else id_).replace("{name}", "v100-1")
    return here.client.request(method, place, json=bodies.get((method, path)), headers=headers)


@pytest.mark.parametrize(("method", "path"), RULES)
def test_nobody_gets_anything_without_a_token(here: World, method: str, path: str) -> None:
    for headers in (
        {},
        {"Authorization": "Bearer"},
        {"Authorization": "Basic YTpi"},
        {"Authorization": "Bearer fl_x_y"},
    ):
        here.client.cookies.clear()
        response = ask(here, method, path, headers)
        assert response.status_code in (401, 429)
        assert set(response.json()) == {"error"}


def test_every_route_stands_in_the_table(here: World) -> None:
    document = here.client.get("/v1/openapi.json", headers=here.admin).json()
    routes = {(method.upper(), path) for path, verbs in document["paths"].items() for method in verbs}

    assert routes == (set(RULES) | {("GET", path) for path in OPEN}) - {("GET", "/v1/openapi.json")}


@pytest.mark.parametrize(("method", "path"), RULES)
@pytest.mark.parametrize("role", Role)
def test_a_role_may_what_the_table_says(here: World, method: str, path: str, role: Role) -> None:
    headers = here.token(role, None if role is Role.ADMIN else "own")
    response = ask(here, method, path, headers)

    if role not in RULES[method, path] or (path == "/v1/journal" and role is Role.VIEWER):
        assert (response.status_code, response.json()["error"]["code"]) == (403, "not_allowed")
    else:
        assert response.status_code not in (401, 403)


# What happens to the job of a tenant when the token belongs to (role, tenant).
MATRIX = {
    (Role.ADMIN, None): (200, 200, 202),
    (Role.MEMBER, "own"): (200, 200, 202),
    (Role.MEMBER, "other"): (404, 404, 404),
    (Role.VIEWER, None): (200, 200, 403),
    (Role.VIEWER, "own"): (200, 200, 403),
    (Role.VIEWER, "other"): (404, 404, 403),
}


@pytest.mark.parametrize(("who", "expected"), MATRIX.items(), ids=[f"{r}-{t}" for r, t in MATRIX])
def test_a_tenant_sees_and_touches_its_own_only(
    here: World, who: tuple[Role, str | None], expected: tuple[int, int, int]
) -> None:
    id_ = here.submit(tenant="own", name=f"secret-name-{who[0]}-{who[1]}")
    here.take()
    headers = here.token(*who)
    look, logs, touch = expected

    assert here.client.get(f"/v1/jobs/{id_}", headers=headers).status_code == look
    assert here.client.get(f"/v1/jobs/{id_}/logs", headers=headers).status_code == logs
    for verb in ("hold", "release", "cancel"):
        assert here.client.post(f"/v1/jobs/{id_}/{verb}", headers=headers).status_code == touch
    listed = here.client.get("/v1/jobs", params={"limit": 1000}, headers=headers).json()["jobs"]
    assert (id_ in {job["id"] for job in listed}) == (look == 200)
    for path in ("/v1/events?limit=100000", "/v1/decisions", "/v1/tenants"):
        text = here.client.get(path, headers=headers).text
        if look != 200:
            assert f'"{id_}"' not in text
            assert '"own"' not in text


def test_a_member_submits_for_its_tenant_only(here: World) -> None:
    member = here.token(Role.MEMBER, "own")
    mine = here.submit(member)
    response = here.client.post("/v1/jobs", json={**JOB, "tenant": "other"}, headers=member)
    asked = here.client.get("/v1/jobs?tenant=other", headers=member)

    assert here.client.get(f"/v1/jobs/{mine}", headers=here.admin).json()["tenant"] == "own"
    assert (response.status_code, asked.status_code) == (403, 403)


@pytest.mark.parametrize(
    "name",
    [
        "..",
        "../j1",
        "%2e%2e%2f%2e%2e",
        "j1%2f..%2f..",
        "j1/../../requests.db",
        "j01",
        "j1 ",
        "J1",
        "j1%00",
        "j-1",
        "x" * 300,
    ],
)
def test_ids_are_no_paths(here: World, name: str) -> None:
    for path in (f"/v1/jobs/{name}", f"/v1/jobs/{name}/logs", f"/v1/jobs/{name}/cancel"):
        response = here.client.request("POST" if path.endswith("cancel") else "GET", path, headers=here.admin)
        assert response.status_code in (404, 405, 422)
        assert "SQLite" not in response.text


# ---- tokens -------------------------------------------------------------------------------------------------------


def test_a_token_is_shown_once_and_stored_as_a_digest(here: World) -> None:
    made = here.client.post(
        "/v1/tokens", json={"name": "ci", "role": "member", "tenant": "a"}, headers=here.admin
    ).json()
    shown = made["token"]
    secret = shown.split("_", 2)[2]

    assert here.client.get("/v1/me", headers={"Authorization": f"Bearer {shown}"}).json()["tenant"] == "a"
    assert secret not in here.client.get("/v1/tokens", headers=here.admin).text
    assert secret not in here.client.get("/v1/changes", headers=here.admin).text
    for file in here.service.directory.path.glob("*.db*"):
        assert secret.encode() not in file.read_bytes()


def test_a_revoked_token_opens_nothing_also_after_a_restart(here: World) -> None:
    made = here.client.post("/v1/tokens", json={"name": "x", "role": "viewer"}, headers=here.admin).json()
    headers = {"Authorization": f"Bearer {made['token']}"}
    assert here.client.get("/v1/me", headers=headers).status_code == 200
    assert here.client.delete(f"/v1/tokens/{made['id']}", headers=here.admin).status_code == 200
    assert here.client.get("/v1/me", headers=headers).status_code == 401

    with closing(open_reader(here.service.directory.requests)) as reader:
        assert Tokens(reader).find(made["token"], time.time()) is None


@pytest.mark.parametrize("path", ["/v1/events?follow=true", "/v1/jobs/{id}/logs?follow=true"])
@pytest.mark.parametrize("end", ["revoked", "expired"])
def test_a_stream_ends_with_its_token(here: World, path: str, end: str) -> None:
    id_ = here.submit()
    here.take()
    headers = here.token(Role.VIEWER)
    token = here.client.get("/v1/me", headers=headers).json()["id"]
    with here.client.stream("GET", path.replace("{id}", id_), headers=headers) as stream:
        if end == "expired":
            here.expire(token)
        else:
            assert here.client.delete(f"/v1/tokens/{token}", headers=here.admin).status_code == 200
        assert stream.status_code == 200
        assert b"".join(stream.iter_raw()) == b""
    here.client.post(f"/v1/jobs/{id_}/cancel", headers=here.admin)


def test_a_token_ends_when_it_says(here: World) -> None:
    headers = here.token(Role.ADMIN)
    token = here.client.get("/v1/me", headers=headers).json()["id"]
    here.expire(token)
    assert here.client.get("/v1/me", headers=headers).status_code == 401


def test_a_wrong_secret_with_a_right_id_opens_nothing() -> None:
    connection = sqlite3.connect(":memory:")
    connection.row_factory = sqlite3.Row
    connection.execute("CREATE TABLE tokens (id, digest, name, role, tenant, created_s, expires_s, revoked_s)")
    shown, token = new_token("a", Role.ADMIN, None, 0.0, 10.0)
    other, _ = new_token("a", Role.ADMIN, None, 0.0, 10.0)
    store_token(connection, token)
    tokens = Tokens(connection)

    assert tokens.find(shown, 5.0) == token
    assert tokens.find(shown, 10.0) is None
    assert tokens.find(shown[:16] + other[16:], 5.0) is None
    assert tokens.find(shown[:-1], 5.0) is None
    connection.close()


@pytest.mark.parametrize(
    "bad",
    [
        {"name": "x", "role": "member"},
        {"name": "x", "role": "admin", "tenant": "a"},
        {"name": "x", "role": "root"},
        {"name": "x", "role": "viewer", "lifetime": "9000d"},
        {"name": "x", "role": "viewer", "lifetime": 0},
        {"name": "x\ny", "role": "viewer"},
    ],
)
def test_a_token_that_makes_no_sense_is_refused(here: World, bad: dict[str, object]) -> None:
    assert here.client.post("/v1/tokens", json=bad, headers=here.admin).status_code == 422


def test_nothing_outside_v1_answers_but_pages(here: World, tmp_path: Path) -> None:
    for path in ("/docs", "/openapi.json", "/redoc", "/v1", "/v1/"):
        assert here.client.get(path).status_code in (401, 404, 429)
    health = here.client.get("/v1/health").json()
    wanted = {"status", "decision_age_s", "decision_overdue", "policy_failed", "intake_overdue"}
    assert set(health) == wanted, "nothing about jobs"
    assert health["status"] == "ok"
