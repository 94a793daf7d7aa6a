"""Nothing is lost and nothing runs twice, wherever kill -9 strikes: scheduler, API, or both."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from daemons import Service, insist, running
from fairlead.service.client import RefusedError
from waiting import until_told, wait_for

KILLS = {"scheduler": 36, "service": 7, "both": 7}
# After the kill before: at once, which mostly strikes a start; once somebody was answered; once another job has begun.
MOMENTS = ("at once", "an answer", "a job")
BACKLOG = (
    12  # jobs that are not over, above which a stream submits no more: the queue stays short on a slow machine too
)


class Stream(threading.Thread):
    """Submits, cancels, holds and releases, and remembers what was acknowledged."""

    def __init__(self, service: Service, marks: Path, seed: int) -> None:
        super().__init__()
        self.service, self.marks, self.random = service, marks, random.Random(seed)
        self.acknowledged: dict[str, tuple[str, str]] = {}  # id -> (kind, key)
        self.over = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            number = 0
            while not self.over.wait(0.03):
                if self.backlog() < BACKLOG:
                    number += 1
                    self.one(f"{self.ident}-{number}")
        except BaseException as error:
            self.error = error

    def backlog(self) -> int:
        return len(insist(lambda: self.service.client().get("/jobs", phase="active"))["jobs"])

    def one(self, key: str) -> None:
        kind = self.random.choice(["plain", "plain", "plain", "fails", "cancelled", "held"])
        run = {
            "plain": f"echo . >> {self.marks}/{key}; sleep {self.random.choice([0, 0.05])}",
            "fails": f"echo . >> {self.marks}/{key}; exit 3",
            "cancelled": f"echo . >> {self.marks}/{key}; {until_told(self.marks.parent / 'over')}",
            "held": "sleep 0.2",
        }[kind]
        job = {"name": kind, "tenant": self.random.choice(["ann", "bob"]), "run": run, "grace": 0.2}
        client = self.service.client()
        id_ = insist(lambda: client.post("/jobs", job, {"Idempotency-Key": key}))["id"]
        assert id_ not in self.acknowledged, f"{id_} was given away twice"
        self.acknowledged[id_] = (kind, key)
        time.sleep(self.random.choice([0, 0, 0.1, 0.4]))
        if kind == "cancelled":
            insist(lambda: client.post(f"/jobs/{id_}/cancel"))
        elif kind == "held":
            with suppress(RefusedError):  # it may have ended by then
                insist(lambda: client.post(f"/jobs/{id_}/hold"))
                insist(lambda: client.post(f"/jobs/{id_}/release"))


@pytest.fixture
def marks(tmp_path: Path) -> Iterator[Path]:
    """A folder in which jobs that begin leave a mark. In the end those that were not cancelled are stopped."""
    folder = tmp_path / "marks"
    folder.mkdir()
    yield folder
    (tmp_path / "over").touch()


def strike(service: Service, who: str, dice: random.Random, streams: list[Stream]) -> None:
    """Kills at a moment that depends on what was done since the last one, so that a slow machine gets on as well."""

    def answers() -> int:
        return sum(len(stream.acknowledged) for stream in streams)

    def jobs() -> int:
        return sum(1 for _ in streams[0].marks.iterdir())

    moment = dice.choice(MOMENTS)
    if moment != "at once":
        count = answers if moment == "an answer" else jobs
        before = count()
        wait_for(lambda: count() > before or any(stream.error for stream in streams), moment)
    time.sleep(dice.uniform(0.0, 0.6))  # anywhere in what follows
    service.kill(who)


@pytest.mark.slow
def test_every_acknowledged_job_is_accounted_for_after_fifty_kills(tmp_path: Path, marks: Path) -> None:
    dice = random.Random(8)
    victims = [who for who, times in KILLS.items() for _ in range(times)]
    dice.shuffle(victims)
    assert len(victims) >= 50
    with running(tmp_path) as service:
        streams = [Stream(service, marks, seed) for seed in range(2)]
        for stream in streams:
            stream.start()
        try:
            for who in victims:
                strike(service, who, dice, streams)
        finally:
            for stream in streams:
                stream.over.set()
            for stream in streams:
                stream.join()
        assert [stream.error for stream in streams] == [None, None]
        acknowledged = {id_: what for stream in streams for id_, what in stream.acknowledged.items()}
        shown = _settled(service)
        health = insist(lambda: service.client().get("/status"))
    _account(acknowledged, shown, marks)
    assert health["gpus"]["v100"]["held"] == health["gpus"]["k80"]["held"] == 0
    _check_leases(service.state)
    _check_secrets(service)


def _settled(service: Service) -> dict[str, dict[str, Any]]:
    """All jobs, once each has ended."""

    def everything() -> list[dict[str, Any]]:
        jobs: list[dict[str, Any]] = []
        after: int | None = 0
        while after is not None:
            page = insist(partial(service.client().get, "/jobs", limit=1000, after=after))
            jobs, after = jobs + page["jobs"], page["next"]
        return jobs

    wait_for(lambda: not insist(lambda: service.client().get("/jobs", phase="active"))["jobs"], "the end of all jobs")
    return {job["id"]: job for job in everything()}


def _account(acknowledged: dict[str, tuple[str, str]], shown: dict[str, dict[str, Any]], marks: Path) -> None:
    assert set(shown) == set(acknowledged)
    assert {kind for kind, _ in acknowledged.values()} == {"plain", "fails", "cancelled", "held"}
    ends = {"plain": "finished", "fails": "failed", "cancelled": "cancelled", "held": "finished"}
    for id_, (kind, key) in acknowledged.items():
        ran = (marks / key).read_text().count(".") if (marks / key).exists() else 0
        assert shown[id_]["phase"] == ends[kind], (kind, ran, shown[id_])
        if kind in ("plain", "fails"):
            assert ran == 1, f"{id_} ({kind}) ran {ran} times: {shown[id_]}"
        elif kind == "cancelled":
            assert ran <= shown[id_]["leases"], (
                f"{id_} ran {ran} times on {shown[id_]['leases']} leases"
            )  # pre-empted ones run again


def _check_leases(state: Path) -> None:
    """Every lease that began has ended."""
    for claim in state.glob("leases/*/*/claim"):
        if "revoked" not in claim.read_text():
            assert (claim.parent / "exit.json").exists(), claim.parent


def _check_secrets(service: Service) -> None:
    token = service.client().token
    assert token is not None
    secret = token.split("_", 2)[2]
    log = (service.folder / "serve.log").read_text()
    assert secret not in log
    assert "Traceback" not in log, log[-4000:]
    for lease in service.state.glob("leases/*/*/lease.json"):
        text = lease.read_text()
        assert secret not in text
        assert "hunter2" not in text
