"""Notices: signed, retried, bounded, and without an effect on anything else if their receiver is slow or dead."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairlead.model.decision import Cause, Decision
from fairlead.model.errors import InputError
from fairlead.model.events import Failed, Finished, Started
from fairlead.service.store.followed import read_page
from fairlead.service.telemetry import notices as module
from fairlead.service.telemetry.channels import command, read_secret, webhook
from fairlead.service.telemetry.follower import LogFollower
from fairlead.service.telemetry.notices import Channel, DeliveryError, Notice, Notices
from notices_receiver import receiving
from serving import World, world
from waiting import wait_for

SECRET = b"0123456789abcdef"


@pytest.fixture
def here(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as made:
        yield made


def start(here: World, j: int) -> None:
    at_s = here.log.state.now_s
    decide(here, [], {j: ((0, 1),)})
    here.happen(Started(at_s, np.array([j]), np.array([1.0]), np.array([at_s])))
    here.log.commit(here.log.taken)


def decide(here: World, stop: list[int], begin: dict[int, tuple[tuple[int, int], ...]]) -> None:
    at_s, jobs = here.log.state.now_s, np.array(list(begin), dtype=np.int64)
    stops = np.array(stop, dtype=np.int64)
    decision = Decision(at_s, Cause.ROUND, stops, jobs, tuple(begin.values()), at_s + 60, "optimal")
    here.log.decision(decision)
    here.log.state.fold(decision)
    here.log.commit(here.log.taken)


def submit(here: World, count: int) -> list[str]:
    ids = [here.submit(name="a-job", tenant="vision") for _ in range(count)]
    here.take()
    return ids


def end(follower: LogFollower) -> None:
    follower.stop()
    wait_for(lambda: not follower.is_running, "the end of a follower")


def follow(here: World, channel: Channel) -> tuple[LogFollower, Notices]:
    notices = Notices(here.service.reads, channel)
    return LogFollower(here.service.directory, here.service.reads, notices), notices


def test_a_webhook_gets_signed_notices_of_what_happens_from_now_on(here: World) -> None:
    first, second, third = submit(here, 3)
    start(here, 0)  # before the service had a webhook
    with receiving() as receiver:
        follower, notices = follow(here, webhook(receiver.url, SECRET))
        follower.start()
        wait_for(lambda: follower.after > 0, "the follower")
        start(here, 1)
        start(here, 2)
        decide(here, [1], {})
        here.happen(Finished(here.log.state.now_s, np.array([0]), np.array([1.0])))
        here.happen(Failed(here.log.state.now_s, np.array([2]), "exit code 1"))
        here.log.commit(here.log.taken)
        wait_for(lambda: len(receiver.events()) >= 5, "five notices")
        end(follower)

    assert receiver.events() == [
        ("job_started", second),
        ("job_started", third),
        ("job_preempted", second),
        ("job_finished", first),
        ("job_failed", third),
    ]
    for header, body in receiver.posts:
        time_s, digest = (part.partition("=")[2] for part in header.split(","))
        assert hmac.new(SECRET, f"{time_s}.".encode() + body, hashlib.sha256).hexdigest() == digest
        assert json.loads(body)["fairlead"] == "notices/1"
    last = json.loads(receiver.posts[-1][1])["notices"][-1]
    assert {key: last[key] for key in ("name", "tenant", "reason")} == {
        "name": "a-job",
        "tenant": "vision",
        "reason": "exit code 1",
    }
    assert notices.figures().delivered == 5


def test_a_dead_receiver_is_tried_again_after_growing_pauses_and_nothing_is_lost(here: World) -> None:
    submit(here, 2)
    now, attempts = [0.0], list[float]()
    received: list[Notice] = []

    def deliver(batch: Any) -> None:
        attempts.append(now[0])
        if len(attempts) <= 4:
            raise DeliveryError("the receiver answered with status 503")
        received.extend(batch)

    notices = Notices(here.service.reads, Channel("webhook", deliver), lambda: now[0])
    after = notices.begin(None)
    start(here, 0)
    start(here, 1)
    page = read_page(here.service.reads, after, 100, notices.kinds)
    notices.take(page)
    stuck = notices.settled(page[-1].seq)
    while not received:
        now[0] += 0.5
        notices.take([])

    assert [later - earlier for earlier, later in pairwise(attempts)] == [1.0, 2.0, 4.0, 8.0]
    assert [one.event for one in received] == ["job_started", "job_started"]
    assert stuck < received[0].seq, "a restart would have read them again"
    assert notices.settled(page[-1].seq) == page[-1].seq
    assert notices.figures().failed_attempts == 4
    assert notices.figures().dropped == 0


def test_notices_that_were_not_delivered_come_after_a_restart_with_the_same_id(here: World) -> None:
    submit(here, 2)
    with receiving() as receiver:
        receiver.statuses = [500] * 10**6
        follower, notices = follow(here, webhook(receiver.url, SECRET))
        follower.start()
        wait_for(lambda: follower.after > 0, "the follower")
        start(here, 0)
        wait_for(lambda: notices.figures().failed_attempts, "an attempt that fails")
        tried = notices._pending[0].id
        end(follower)
        receiver.statuses = []
        follower, notices = follow(here, webhook(receiver.url, SECRET))
        follower.start()
        wait_for(lambda: receiver.posts, "the notice")
        end(follower)
        follower, notices = follow(here, webhook(receiver.url, SECRET))
        follower.start()
        start(here, 1)
        wait_for(lambda: len(receiver.posts) > 1, "the next notice")
        end(follower)

    ids = [one["id"] for _, body in receiver.posts for one in json.loads(body)["notices"]]
    assert ids[0] == tried
    assert len(ids) == len(set(ids)) == 2, "what was delivered is not sent again"
    assert notices.figures().failed_attempts >= 1, "counts continue"


def test_the_queue_is_bounded_and_drops_are_counted_and_reported(
    here: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "MOST_PENDING", 2)
    submit(here, 4)

    def refuse(_: Any) -> None:
        raise DeliveryError("the receiver answered with status 503")

    notices = Notices(here.service.reads, Channel("webhook", refuse))
    after = notices.begin(None)
    for j in range(4):
        start(here, j)
    notices.take(read_page(here.service.reads, after, 100, notices.kinds))

    assert notices.figures().dropped == 2
    assert [one.job for one in notices._pending] == ["j3", "j4"]
    assert "2 notices dropped" in capsys.readouterr().err


def test_a_redirect_is_not_followed() -> None:
    with receiving() as receiver:
        receiver.statuses = [302]
        with pytest.raises(DeliveryError, match="status 302"):
            webhook(receiver.url, SECRET).deliver([NOTICE])

    assert receiver.posts == []


NOTICE = Notice(7, "s-1-7-j1", "job_failed", 0.0, "j1", "$(touch /tmp/x)", "vision", "exit code 1")


def test_a_command_gets_the_notice_on_its_input_and_no_shell_sees_it(tmp_path: Path) -> None:
    script = tmp_path / "hook.sh"
    script.write_text(
        f'#!/bin/sh\necho "$FAIRLEAD_EVENT $FAIRLEAD_JOB $FAIRLEAD_TENANT" > {tmp_path}/about\ncat > {tmp_path}/input\n'
    )
    script.chmod(0o755)

    command(str(script)).deliver([NOTICE])

    assert (tmp_path / "about").read_text() == "job_failed j1 vision\n"
    assert json.loads((tmp_path / "input").read_text()) == NOTICE.to_json()


def test_a_command_that_fails_or_hangs_is_given_up(here: World) -> None:
    with pytest.raises(DeliveryError, match="code 3"):
        command("sh -c 'exit 3'").deliver([NOTICE])
    with pytest.raises(DeliveryError, match="was killed"):
        command("sleep 3600", limit_s=0.1).deliver([NOTICE])

    submit(here, 1)
    notices = Notices(here.service.reads, command("false"))
    after = notices.begin(None)
    start(here, 0)
    notices.take(read_page(here.service.reads, after, 100, notices.kinds))
    figures = notices.figures()
    assert (figures.failed_attempts, figures.dropped, figures.pending) == (1, 1, 0)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://example.org/x", "use https"),
        ("ftp://127.0.0.1/x", "is no address"),
        ("https://user:password@example.org/x", "password"),
        ("127.0.0.1:80", "is no address"),
        ("https://example.org/\u00e4", "is no address"),
        ("https://a..b/", "is no address"),
        ("https://example.org:99999/", "is no address"),
        ("https://[", "is no address"),
    ],
)
def test_addresses_that_would_leak_are_refused(url: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        webhook(url, SECRET)


def test_a_secret_is_private_and_long(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("0123456789abcdef\n")
    file.chmod(0o644)
    with pytest.raises(InputError, match="chmod 600"):
        read_secret(file)
    file.chmod(0o600)
    assert read_secret(file) == SECRET
    file.write_text("short")
    with pytest.raises(InputError, match="at least 16"):
        read_secret(file)
    with pytest.raises(InputError, match="cannot be read"):
        read_secret(tmp_path / "none")
