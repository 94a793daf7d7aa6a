"""Requests that try to confuse the parser, and text that tries to confuse what comes after it."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import pytest

from serving import JOB, World, world
from waiting import PATIENCE_S

SMUGGLED = b"GET /v1/status HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("hostile")) as made:
        yield made


def send(here: World, data: bytes) -> bytes:
    """Everything that the service answers until it closes the connection."""
    with socket.create_connection(("127.0.0.1", here.client.base_url.port), timeout=PATIENCE_S) as connection:
        parts = []
        try:
            connection.sendall(data)
            while part := connection.recv(65536):
                parts.append(part)
        except (ConnectionResetError, BrokenPipeError):
            pass
    return b"".join(parts)


def post(here: World, more: bytes, body: bytes = b"") -> bytes:
    token = here.admin["Authorization"].encode()
    head = b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: " + token + b"\r\nContent-Type: application/json\r\n"
    return send(here, head + more + b"\r\n" + body)


JOB_BODY = json.dumps(JOB).encode()
CHUNKED = b"%x\r\n%b\r\n0\r\n\r\n" % (len(JOB_BODY), JOB_BODY)


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        (b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", CHUNKED),
        (b"Transfer-Encoding: chunked\r\nContent-Length: %d\r\n" % len(JOB_BODY), CHUNKED),
        (b"Content-Length: %d\r\nContent-Length: 4\r\n" % len(JOB_BODY), JOB_BODY),
        (b"Content-Length: +%d\r\n" % len(JOB_BODY), JOB_BODY),
        (b"Content-Length: %d, %d\r\n" % (len(JOB_BODY), len(JOB_BODY) + 1), JOB_BODY),
        (b"Content-Length : %d\r\n" % len(JOB_BODY), JOB_BODY),
        (b"Transfer-Encoding: xchunked\r\n", CHUNKED),
        (b"Transfer-Encoding: chunked, identity\r\n", CHUNKED),
        (b"Transfer-Encoding: identity\r\nContent-Length: 4\r\n", JOB_BODY),
        (b"Transfer-Encoding: chunked\r\n", b"0x%x\r\n%b\r\n0\r\n\r\n" % (len(JOB_BODY), JOB_BODY)),
        (b"Transfer-Encoding: chunked\r\n", b"-1\r\n%b\r\n0\r\n\r\n" % JOB_BODY),
        (b"Transfer-Encoding: chunked\r\n", b"%x;%b\r\n%b\r\n0\r\n\r\n" % (len(JOB_BODY), b"a" * 10**6, JOB_BODY)),
        (b"".join(b"X-%d: y\r\n" % i for i in range(50_000)), b""),
        (b"X: " + b"y" * 10**6 + b"\r\n", b""),
    ],
)
def test_a_request_that_can_be_read_in_two_ways_or_never_ends_is_refused(
    here: World, headers: bytes, body: bytes
) -> None:
    before = here.client.get("/v1/jobs", headers=here.admin).json()["jobs"]

    answer = post(here, headers, body + SMUGGLED)

    assert answer.count(b"HTTP/1.1 ") <= 1, answer
    assert answer[:12] in (b"", b"HTTP/1.1 400", b"HTTP/1.1 413", b"HTTP/1.1 431", b"HTTP/1.1 501"), answer
    assert here.client.get("/v1/jobs", headers=here.admin).json()["jobs"] == before


@pytest.mark.parametrize(
    "path",
    [
        "/v1/jobs/%ED%A0%80",
        "/v1/jobs?tenant=%ED%A0%80",
        "/v1/jobs?phase=%ED%A0%80",
        "/v1/nodes/%00",
        "/v1/jobs?tenant=%00%1b%5B2J",
        "/v1/%ED%A0%80",
        "/v1/events?after=%F0",
    ],
)
def test_half_characters_in_an_address_are_an_error_of_the_client(here: World, path: str) -> None:
    assert here.client.get(path, headers=here.admin).status_code in (200, 404, 405, 422)


@pytest.mark.parametrize("key", [b"\xed\xa0\x80", b"\x1b[2J", b"\xff" * 200, b"\x7f"])
def test_any_bytes_may_be_an_idempotency_key_or_are_refused(here: World, key: bytes) -> None:
    body = JOB_BODY
    answer = post(here, b"Idempotency-Key: %b\r\nContent-Length: %d\r\nConnection: close\r\n" % (key, len(body)), body)

    assert answer[:12] in (b"HTTP/1.1 201", b"HTTP/1.1 200", b"HTTP/1.1 400", b"HTTP/1.1 422"), answer


@pytest.mark.parametrize(
    "field",
    [
        {"run": "echo \0"},
        {"setup": "\0"},
        {"env": {"A": "b\0"}},
        {"env": {"A\0": "b"}},
        {"env": {"A=B": "c"}},
        {"workdir": "/tmp/\0"},
        {"checkpoint_dir": "a\0b"},
        {"warm": ["os\0"]},
    ],
    ids=str,
)
def test_a_null_character_never_reaches_a_command(here: World, field: dict[str, object]) -> None:
    answer = here.client.post("/v1/jobs", json={**JOB, **field}, headers=here.admin)

    assert answer.status_code == 422, answer.text


def test_a_terminal_is_not_controlled_by_messages_about_a_request(here: World) -> None:
    answer = here.client.put("/v1/tenants/a", json={"quotas": [{"type": "\x1b[2J", "nominal": 1}]}, headers=here.admin)

    assert answer.status_code == 422
    assert "\x1b" not in answer.json()["error"]["message"]
