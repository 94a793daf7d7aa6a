"""Clients that connect too often, send too slowly or send too much do not keep the service from its work."""

from __future__ import annotations

import json
import logging
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from daemons import insist, running
from fairlead.service.api.limits import RESERVED_DESCRIPTORS, Limits, connection_limit
from fairlead.service.api.repeated_messages import RepeatedMessages
from serving import JOB, World, world
from waiting import PATIENCE_S, wait_for

HALF = b"GET /v1/health HTTP/1.1\r\nHost: x\r\n"


def connect(port: int | None, data: bytes = b"") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
    connection.sendall(data)
    return connection


def port_of(here: World) -> int | None:
    return here.client.base_url.port


def answer_of(connection: socket.socket) -> bytes:
    """Everything that the service sends until it closes the connection."""
    parts = []
    try:
        while part := connection.recv(65536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


@contextmanager
def many_descriptors(number: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(number, hard)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.slow
def test_half_sent_requests_do_not_silence_the_service(tmp_path: Path) -> None:
    with many_descriptors(4096), running(tmp_path, descriptors=1024) as service, ExitStack() as held:
        client = service.client()
        insist(lambda: client.get("/status"))
        for _ in range(1300):
            held.enter_context(connect(service.port, HALF))

        id_ = client.post("/jobs", {"name": "a", "run": "true"})["id"]
        service.kill("scheduler")  # there are descriptors left for the pipes of its successor
        wait_for(lambda: client.get(f"/jobs/{id_}")["phase"] == "finished", "a job of a service under attack")
        assert len((tmp_path / "serve.log").read_text().splitlines()) < 20


def test_connections_leave_descriptors_for_the_rest_of_the_service() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
        assert connection_limit(Limits()) == 1024 - RESERVED_DESCRIPTORS
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_header_that_does_not_end_is_given_up(tmp_path: Path) -> None:
    with world(tmp_path, Limits(head_s=0.2)) as here, connect(port_of(here), HALF) as slow:
        assert answer_of(slow).startswith(b"HTTP/1.1 408 ")


def test_a_connection_without_a_request_is_closed_without_an_answer(tmp_path: Path) -> None:
    with world(tmp_path, Limits(head_s=0.2)) as here, connect(port_of(here)) as silent:
        assert answer_of(silent) == b""


def test_a_header_that_arrives_byte_by_byte_is_given_up(tmp_path: Path) -> None:
    with world(tmp_path, Limits(head_s=0.3)) as here, connect(port_of(here), HALF) as slow:
        slow.settimeout(0.05)
        give_up_s = time.monotonic() + PATIENCE_S
        answer = b""
        while not answer and time.monotonic() < give_up_s:
            try:
                slow.sendall(b"X")
                answer = slow.recv(100)
            except TimeoutError:
                continue
            except OSError:
                break  # the service has closed it
        assert time.monotonic() < give_up_s


def test_a_body_that_does_not_end_is_given_up(tmp_path: Path) -> None:
    with world(tmp_path, Limits(body_s=0.2)) as here:
        head = f"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: {here.admin['Authorization']}\r\nContent-Length: 99\r\n\r\n"
        with connect(port_of(here), head.encode() + b'{"name"') as slow:
            assert answer_of(slow).startswith(b"HTTP/1.1 408 ")
        # The body of a request that was refused already does not keep its connection open either.
        with connect(port_of(here), b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{") as refused:
            answer = answer_of(refused)
        assert answer.startswith(b"HTTP/1.1 401 ")
        assert answer.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize("limits", [Limits(connections=40), Limits(connections_per_peer=40)], ids=["all", "one peer"])
def test_a_request_takes_the_place_of_one_that_is_only_half_sent(tmp_path: Path, limits: Limits) -> None:
    with world(tmp_path, limits) as here, ExitStack() as held:
        waiting = [held.enter_context(connect(port_of(here), HALF)) for _ in range(60)]

        assert here.client.get("/v1/me", headers=here.admin).status_code == 200
        assert answer_of(waiting[0]).startswith((b"HTTP/1.1 408 ", b""))
        waiting[-1].sendall(b"\r\n")
        assert waiting[-1].recv(100).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    "limits",
    [Limits(connections=40, head_s=PATIENCE_S), Limits(connections_per_peer=40, head_s=PATIENCE_S)],
    ids=["all", "one peer"],
)
def test_the_connection_that_has_owed_a_request_for_longest_is_closed_and_not_the_oldest(
    tmp_path: Path, limits: Limits
) -> None:
    with world(tmp_path, limits) as here, ExitStack() as held:
        oldest, silent = (
            held.enter_context(closing(HTTPConnection("127.0.0.1", port_of(here), PATIENCE_S))) for _ in range(2)
        )
        for connection in (oldest, silent, oldest):  # after this, the first one has owed its next request for less long
            assert health_over(connection) == 200
        for _ in range(38):
            held.enter_context(connect(port_of(here), HALF))
        assert health_over(oldest) == 200

        held.enter_context(connect(port_of(here), HALF))

        assert silent.sock.recv(1) == b""
        assert health_over(oldest) == 200


def health_over(connection: HTTPConnection) -> int:
    connection.request("GET", "/v1/health")
    answer = connection.getresponse()
    answer.read()
    return answer.status


def test_a_full_service_says_so(tmp_path: Path) -> None:
    limits = Limits(connections_per_peer=3, streams=3)
    with world(tmp_path, limits) as here, ExitStack() as held:
        for _ in range(3):
            stream = here.client.stream("GET", "/v1/events?follow=true", headers=here.admin)
            assert held.enter_context(stream).status_code == 200
        with connect(port_of(here), HALF) as fourth:
            assert answer_of(fourth).startswith(b"HTTP/1.1 503 ")


# ---- streams ------------------------------------------------------------------------------------------------------


def test_streams_that_are_opened_together_do_not_exceed_their_limit(tmp_path: Path) -> None:
    with world(tmp_path, Limits(streams=3)) as here, ExitStack() as held:
        head = f"GET /v1/events?follow=true HTTP/1.1\r\nHost: x\r\nAuthorization: {here.admin['Authorization']}\r\n\r\n"
        opened = [held.enter_context(connect(port_of(here))) for _ in range(30)]
        for connection in opened:
            connection.sendall(head.encode())
        codes = [connection.recv(100).split()[1] for connection in opened]

        assert sorted(codes) == [b"200"] * 3 + [b"429"] * 27
        held.close()
        wait_for(lambda: not here.service.streams, "the end of streams whose clients have gone")


# ---- proxies ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("proxies", "expected"), [((), [401, 401, 429, 429]), (("127.0.0.1",), [401] * 4)], ids=["none", "configured"]
)
def test_only_a_configured_proxy_states_the_address_of_a_client(
    tmp_path: Path, proxies: tuple[str, ...], expected: list[int]
) -> None:
    with world(tmp_path, Limits(failures_per_s=0.001, failures_burst=2), proxies) as here:
        codes = [
            here.client.get("/v1/me", headers={"X-Forwarded-For": f"10.0.0.{number}"}).status_code
            for number in range(4)
        ]
    assert codes == expected


# ---- bodies -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("api")) as made:
        yield made


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/jobs", {**JOB, "resources": {"gpus": [0] * 300_000}}),
        ("POST", "/v1/jobs", {**JOB, "resources": {"accelerators": [0] * 300_000}}),
        ("POST", "/v1/jobs", {**JOB, "resources": {"accelerators": "a b " * 220_000}}),
        ("POST", "/v1/jobs", {**JOB, **{f"a{number}": 0 for number in range(70_000)}}),
        ("POST", "/v1/jobs", {**JOB, "env": {f"a{number}": [] for number in range(60_000)}}),
        ("PUT", "/v1/tenants/a", {"quotas": [{"type": "v1" * 400_000, "nominal": 1}]}),
        ("PUT", "/v1/policy", {"name": "las", "parameters": {"queues_gpu_s": list(range(100_000))}}),
    ],
    ids=["widths", "alternatives", "type", "fields", "variables", "quota", "parameter"],
)
def test_a_large_body_is_refused_in_little_time(here: World, method: str, path: str, body: dict[str, Any]) -> None:
    content = json.dumps(body)
    headers = {**here.admin, "Content-Type": "application/json"}
    began_s = time.process_time()
    response = here.client.request(method, path, content=content, headers=headers)
    spent_s = time.process_time() - began_s

    assert response.status_code == 422
    assert len(response.text) < 2000
    assert spent_s < 1.0  # CPU time; 2 to 10 s if each of its values were checked


def test_a_body_that_is_nested_deeply_is_a_clear_error(here: World) -> None:
    for depth in (40, 900, 400_000):
        content = b'{"name": "a", "run": ' + b"[" * depth + b"]" * depth + b"}"
        response = here.client.post(
            "/v1/jobs", content=content, headers={**here.admin, "Content-Type": "application/json"}
        )
        assert response.status_code == 422
        assert "nested too deeply; at most 32 levels" in response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/jobs", b'{"name": "a", "run": "\\ud800"}'),
        ("POST", "/v1/jobs", b'{"name": "a", "run": "\xed\xa0\x80"}'),
        ("POST", "/v1/jobs", '{"name": "a", "run": "\\ud800"}'.encode("utf-16")),
        ("POST", "/v1/jobs", b'{"name": "a", "run": "x", "env": {"A": "\\ud800"}}'),
        ("POST", "/v1/jobs", b'{"name": "a", "run": "x", "\\ud800": 1}'),
        ("POST", "/v1/jobs", b'{"name": "a", "run": "x", "resources": {"accelerators": "\\ud800"}}'),
        ("PUT", "/v1/policy", b'{"name": "fifo", "parameters": {"\\ud800": 1}}'),
        ("PUT", "/v1/policy", b'{"name": "fft", "parameters": {"work": "\\ud800"}}'),
    ],
)
def test_a_lone_surrogate_is_refused(here: World, method: str, path: str, body: bytes) -> None:
    headers = {**here.admin, "Content-Type": "application/json"}
    response = here.client.request(method, path, content=body, headers=headers)

    assert (response.status_code, response.json()["error"]["code"]) == (422, "invalid_request")


def test_characters_beyond_ascii_are_accepted_however_they_are_written(here: World) -> None:
    headers = {**here.admin, "Content-Type": "application/json"}
    for run in ('"echo \\ud83d\\ude00"', '"echo 😀"'):
        body = f'{{"name": "a", "run": {run}}}'.encode()
        assert here.client.post("/v1/jobs", content=body, headers=headers).status_code == 201


# ---- the log ------------------------------------------------------------------------------------------------------


def test_a_message_that_repeats_is_written_now_and_then_with_its_count() -> None:
    now_s = 0.0
    passes = RepeatedMessages(10.0, lambda: now_s)

    def record(message: str, *values: object) -> logging.LogRecord:
        return logging.LogRecord("a", logging.WARNING, "", 0, message, values, None)

    assert [passes(record("bad request %d", number)) for number in range(5)] == [True, False, False, False, False]
    assert passes(record("something else"))
    now_s = 11.0
    later = record("bad request %d", 6)
    assert passes(later)
    assert later.getMessage() == "bad request 6 (and 4 more like this)"
    for number in range(5000):
        assert passes(record(f"lost the connection of stranger {number}"))
    assert len(passes._last) <= 1000, "messages with names in them do not fill the memory"
