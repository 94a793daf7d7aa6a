"""Nothing is lost and nothing runs twice, wherever kill -9 strikes: scheduler, API, or both."""

from __future__ import annotations

import random
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from daemons import Service, insist, running, wait_for
from fairlead.service.client import RefusedError

KILLS = {"scheduler": 36, "service": 7, "both": 7}


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
            while not self.over.is_set():
                number += 1
                self.one(f"{self.ident}-{number}")
                time.sleep(0.03)
        except BaseException as error:
            self.error = error

    def one(self, key: str) -> None:
        kind = self.random.choice(["plain", "plain", "plain", "fails", "cancelled", "held"])
        run = {
            "plain": f"echo . >> {self.marks}/{key}; sleep {self.random.choice([0, 0.05])}",
            "fails": f"echo . >> {self.marks}/{key}; exit 3",
            "cancelled": f"echo . >> {self.marks}/{key}; sleep 600",
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


@pytest.mark.slow
def test_every_acknowledged_job_is_accounted_for_after_fifty_kills(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
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
                time.sleep(dice.uniform(0.0, 1.2))
                service.kill(who)
        finally:
            for stream in streams:
                stream.over.set()
            for stream in streams:
                stream.join()
        for stream in streams:
            assert stream.error is None, stream.error
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

    wait_for(lambda: not insist(lambda: service.client().get("/jobs", phase="active"))["jobs"], 90)
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
    told = (service.folder / "serve.log").read_text()
    assert secret not in told
    assert "Traceback" not in told, told[-4000:]
    for lease in service.state.glob("leases/*/*/lease.json"):
        text = lease.read_text()
        assert secret not in text
        assert "hunter2" not in text
